/** Dialogs that ask before something happens. */

import { element } from "./html.js";

/**
 * Ask before something that cannot be undone.
 * @param {{title: string, text: string | Node, action: string, isDangerous?: boolean}} question `action` is the word on the button
 * @returns {Promise<boolean>}
 */
export function confirmAction({ title, text, action, isDangerous = false }) {
  const dialog = element`<dialog class="dialog">
    <form method="dialog">
      <h2>${title}</h2>
      <div class="dialog-text">${text}</div>
      <div class="dialog-actions">
        <button class="button" value="" autofocus>Cancel</button>
        <button class=${`button ${isDangerous ? "button-danger" : "button-primary"}`} value="yes">${action}</button>
      </div>
    </form>
  </dialog>`;
  return showDialog(dialog).then((answer) => answer === "yes");
}

/** Show a dialog until it is closed. @param {HTMLDialogElement} dialog @returns {Promise<string>} the value of the button */
export function showDialog(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close("");
    });
  });
}
