/** The lines in which the code of two runs differs, file by file. */

import { element, html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";

const KINDS = { "+": "is-added", "-": "is-removed", "@": "is-place" };
const OPENED = 3;

export class CodeDifference {
  /** @param {HTMLElement} place @param {HTMLSelectElement} from @param {HTMLSelectElement} to @param {(from: string, to: string) => void} onChange */
  constructor(place, from, to, onChange) {
    Object.assign(this, { place, from, to });
    this.asked = "";
    for (const select of [from, to]) select.addEventListener("change", () => {
      onChange(from.value, to.value);
      this.#read();
    });
  }

  /** @param {string[]} names @param {{from: string, to: string}} chosen */
  show(names, { from, to }) {
    for (const [select, wanted, standard] of [[this.from, from, names[0]], [this.to, to, names[1]]]) {
      replaceChildren(select, names.map((name) => element`<option value=${name}>${showInvisible(name)}</option>`));
      select.value = names.includes(wanted) ? wanted : standard;
    }
    this.#read();
  }

  async #read() {
    const query = String(new URLSearchParams({ from: this.from.value, to: this.to.value }));
    if (query === this.asked) return;
    this.asked = query;
    replaceChildren(this.place, html`<p class="faint">Comparing…</p>`);
    let shown;
    try {
      shown = this.#draw(await getJson(`/-/compare/code?${query}`));
    } catch (error) {
      shown = html`<p class="notice notice-error" role="alert">${showInvisible(error.message)}</p>`;
    }
    if (query === this.asked) replaceChildren(this.place, shown);
  }

  #draw({ files, total }) {
    if (total === 0) return html`<p class="faint">Their code is the same, or neither has code that can be read.</p>`;
    const more = total - files.length;
    return html`${files.map((file, number) => fileOf(file, number < OPENED))}${more > 0 ? html`<p class="faint">${more} more files differ.</p>` : null}`;
  }
}

function fileOf({ name, state, lines, isCut }, isOpen) {
  const count = (sign) => lines.filter((line) => line.startsWith(sign)).length;
  const rows = lines.map((line) => element`<span class=${`code-line ${KINDS[line[0]] ?? ""}`}>${showInvisible(line) || " "}</span>`);
  return html`<details class="code-file" open=${isOpen}><summary><span class="mono">${showInvisible(name)}</span><span class="faint">${state}</span>
    <span class="good">+${count("+")}</span><span class="bad">−${count("-")}</span></summary>
    <pre class="code-lines" tabindex="0" aria-label=${`Differences in ${showInvisible(name)}`}>${rows}${isCut ? element`<span class="code-line is-place">More lines differ.</span>` : null}</pre></details>`;
}
