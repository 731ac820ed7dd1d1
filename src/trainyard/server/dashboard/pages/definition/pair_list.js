/** Rows of a form that each have a name and a value, and sometimes a choice: hyperparameters, channels, tags. */

import { element } from "../../html.js";
import { showInvisible } from "../../text.js";

/**
 * @param {{name: string, value: string, choice?: string, kept?: any}[]} rows `kept` comes back with the row
 * @param {{names: string, values: string, add: string, empty: string, choices?: string[], onChange: () => void}} words
 */
export class PairList {
  constructor(rows, words) {
    this.words = words;
    this.list = element`<div></div>`;
    this.empty = element`<p class="faint pairs-empty">${words.empty}</p>`;
    this.add = element`<button class="button button-small" type="button">${words.add}</button>`;
    this.add.addEventListener("click", () => {
      const made = this.#row({ name: "", value: "" });
      this.list.append(made);
      this.#refresh();
      made.querySelector("input").focus();
    });
    this.element = element`<div>${this.empty}${this.list}${this.add}</div>`;
    for (const row of rows) this.list.append(this.#row(row));
    this.list.addEventListener("input", () => words.onChange());
    this.#refresh();
  }

  /** The rows that have a name. */
  get rows() {
    return [...this.list.children].map((row) => ({
      name: row.querySelector("[name=name]").value.trim(),
      value: row.querySelector("[name=value]").value,
      choice: row.querySelector("select")?.value ?? "",
      kept: row.kept,
    })).filter(({ name }) => name !== "");
  }

  #refresh() {
    this.empty.hidden = this.list.childElementCount > 0;
  }

  #row({ name, value, choice = "", kept = null }) {
    const { names, values, choices } = this.words;
    const select = choices && element`<select class="select" aria-label=${`Mode of ${showInvisible(name) || "the channel"}`}>${choices.map((each) =>
      element`<option value=${each} selected=${each === choice}>${each || "Default mode"}</option>`)}</select>`;
    const remove = element`<button class="button button-quiet button-icon" type="button" aria-label=${`Remove ${showInvisible(name) || "this row"}`}>×</button>`;
    const made = element`<div class=${`pair${choices ? " has-mode" : ""}`}><input class="input mono" name="name" aria-label=${names} placeholder=${names} spellcheck="false" value=${name}>
      <input class="input mono" name="value" aria-label=${name ? `${values} of ${showInvisible(name)}` : values} placeholder=${values} spellcheck="false" value=${value}>${select ?? null}${remove}</div>`;
    made.kept = kept;
    remove.addEventListener("click", () => {
      const next = made.nextElementSibling?.querySelector("input") ?? this.add;
      made.remove();
      this.#refresh();
      this.words.onChange();
      next.focus();
    });
    return made;
  }
}
