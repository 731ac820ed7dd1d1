/** A dialog with the tags of a job, to change, add and remove them. */

import { showDialog } from "../../dialog.js";
import { element } from "../../html.js";
import { showInvisible } from "../../text.js";

const MAX_KEY = 128;
const MAX_VALUE = 256;

/**
 * Edit tags until they are saved or the dialog is left.
 * @param {string} name of the job @param {{Key: string, Value: string}[]} tags
 * @param {(changes: {add: Object<string, string>, remove: string[]}) => Promise<void>} save whose error is shown
 * @returns {Promise<boolean>} whether something was saved
 */
export async function editTags(name, tags, save) {
  const list = element`<div class="tag-list"></div>`;
  for (const tag of tags) list.append(row(tag));
  const empty = element`<p class="faint">There are no tags yet.</p>`;
  const refresh = () => (empty.hidden = list.childElementCount > 0);
  const add = element`<button class="button button-small" type="button">Add a tag</button>`;
  add.addEventListener("click", () => {
    const made = row(null);
    list.append(made);
    refresh();
    made.querySelector("input").focus();
  });
  list.addEventListener("click", (event) => {
    if (!event.target.closest("[data-removes]")) return;
    event.target.closest(".tag-row").remove();
    refresh();
    add.focus();
  });
  refresh();
  const problem = element`<p class="notice notice-error" role="alert" hidden></p>`;
  const cancel = element`<button class="button" type="button">Cancel</button>`;
  const dialog = element`<dialog class="dialog" aria-label="Tags"><form method="dialog"><h2>${`Tags of ${name}`}</h2>${empty}${list}${add}${problem}
    <div class="dialog-actions">${cancel}<button class="button button-primary">Save</button></div></form></dialog>`;
  cancel.addEventListener("click", () => dialog.close(""));
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const changes = changesOf(list, tags);
    try {
      if (Object.keys(changes.add).length + changes.remove.length === 0) return dialog.close("");
      await save(changes);
      dialog.close("saved");
    } catch (error) {
      problem.textContent = showInvisible(error.message);
      problem.hidden = false;
    }
  });
  return (await showDialog(dialog)) === "saved";
}

function changesOf(list, tags) {
  const kept = new Map([...list.querySelectorAll(".tag-row")].map(read).filter(([key]) => key !== ""));
  const before = new Map(tags.map(({ Key, Value }) => [Key, Value]));
  return {
    add: Object.fromEntries([...kept].filter(([key, value]) => before.get(key) !== value)),
    remove: [...before.keys()].filter((key) => !kept.has(key)),
  };
}

function read(made) {
  const key = made.dataset.key ?? made.querySelector("[name=key]").value.trim();
  return [key, made.querySelector("[name=value]").value];
}

function row(tag) {
  const label = tag ? `Value of ${showInvisible(tag.Key)}` : "Value";
  const key = tag
    ? element`<span class="tag-key mono" title=${showInvisible(tag.Key)}>${showInvisible(tag.Key)}</span>`
    : element`<input class="input tag-key" name="key" aria-label="Key" placeholder="Key" maxlength=${MAX_KEY} autocomplete="off">`;
  const made = element`<div class="tag-row">${key}<input class="input" name="value" aria-label=${label} placeholder="Value" maxlength=${MAX_VALUE} autocomplete="off" value=${tag?.Value ?? ""}>
    <button class="button button-quiet button-icon" type="button" data-removes aria-label=${tag ? `Remove ${showInvisible(tag.Key)}` : "Remove this tag"}>×</button></div>`;
  if (tag) made.dataset.key = tag.Key;
  return made;
}
