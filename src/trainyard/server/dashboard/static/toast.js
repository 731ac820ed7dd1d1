/** Short messages at the edge of the page. */

import { showInvisible } from "./text.js";

const KEPT = "trainyard-toast";

/** Show a message on the page that is opened next. @param {string} message */
export function keepToast(message) {
  sessionStorage.setItem(KEPT, message);
}

/** Show the message that the page before has kept. */
export function showKeptToast() {
  const message = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (message) showToast(message);
}

/** @param {string} message @param {{kind?: "" | "error"}} options errors stay until they are closed */
export function showToast(message, { kind = "" } = {}) {
  const toast = document.createElement("div");
  toast.className = `toast${kind ? ` toast-${kind}` : ""}`;
  const text = document.createElement("span");
  text.textContent = showInvisible(message);
  const close = document.createElement("button");
  close.type = "button";
  close.className = "button button-quiet button-icon";
  close.setAttribute("aria-label", "Close the message");
  close.textContent = "×";
  close.addEventListener("click", () => toast.remove());
  toast.append(text, close);
  document.querySelector(".toasts").append(toast);
  if (kind !== "error") setTimeout(() => toast.remove(), 6000);
}
