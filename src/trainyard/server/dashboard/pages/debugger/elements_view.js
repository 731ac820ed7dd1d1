/** The elements of a tensor in a step, as a table to page through, and the statistics of all of them. */

import { formatNumber } from "../../format.js";
import { html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { decodeDoubles } from "./arrays.js";
import { shapeText, statisticTitle } from "./catalog.js";

const ROWS = 12;
const COLUMNS = 8;
const SHOWN = ["mean", "std", "min", "max", "abs_mean", "l2", "zeros", "nans", "infs"];

export class ElementsView {
  /** @param {string} address of the page's data @param {HTMLElement} place @param {(step: number) => void} onStep */
  constructor(address, place, onStep) {
    this.address = address;
    this.place = place;
    this.onStep = onStep;
    this.savedSteps = [];
    this.asked = 0;
  }

  /** @param {import("./catalog.js").Tensor} tensor @param {number|null} step @param {string} worker */
  async show(tensor, step, worker) {
    Object.assign(this, { tensor, step, worker, row: 0, column: 0, found: null });
    if (step === null) return replaceChildren(this.place, html`<p class="faint">Select a step in a chart to see the elements of the tensor in it.</p>`);
    await this.#read();
  }

  /** @param {number[]} steps in which the elements were saved, once they are known */
  setSavedSteps(steps) {
    this.savedSteps = steps;
    if (this.found && this.found.values.length === 0) this.#draw(this.found);
  }

  async #read() {
    const number = ++this.asked;
    const { tensor, step, worker, row, column } = this;
    const query = new URLSearchParams({ tensor: tensor.name, step: String(step), worker, row: String(row), column: String(column), rows: String(ROWS), columns: String(COLUMNS) });
    let found;
    try {
      found = await getJson(`${this.address}/values?${query}`);
    } catch (error) {
      if (number === this.asked) replaceChildren(this.place, html`${this.#head()}<p class="notice">${showInvisible(error.message)}</p>`);
      return;
    }
    if (number !== this.asked) return;
    this.found = { ...found, values: decodeDoubles(found.values) };
    this.#draw(this.found);
  }

  #head(more) {
    return html`<h4>Step ${formatNumber(this.step)} <span class="faint">${more}</span></h4>`;
  }

  #draw(found) {
    const statistics = SHOWN.filter((word) => word in found.statistics).map((word) => html`<div><dt>${statisticTitle(word === "abs_mean" ? "mean_abs" : word)}</dt><dd>${formatNumber(found.statistics[word])}</dd></div>`);
    const isSaved = found.values.length > 0;
    const more = isSaved ? `${shapeText(found.shape)}, ${found.dtype}` : "";
    replaceChildren(
      this.place,
      html`${this.#head(more)}
      ${statistics.length > 0 ? html`<dl class="tensor-statistics">${statistics}</dl>` : null}
      ${isSaved ? this.#matrix(found) : html`<p class="faint">${found.notes.map(showInvisible).join(" ")} ${this.#nearest()}</p>`}`,
    );
  }

  #matrix({ values, firstRow, firstColumn, shownRows, shownColumns, rows, columns }) {
    const numbers = (first, count) => Array.from({ length: count }, (_, number) => first + number);
    const rowOf = (row) => html`<tr><th scope="row">${formatNumber(firstRow + row)}</th>${numbers(0, shownColumns).map((column) => cellOf(values[row * shownColumns + column]))}</tr>`;
    const page = (name, first, shown, count, size) => html`<span>${name} ${formatNumber(first)} to ${formatNumber(first + shown - 1)} of ${formatNumber(count)}</span>${count > size ? [this.#turn(name, -size, first > 0), this.#turn(name, size, first + shown < count)] : null}`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label="Elements"><table class="elements"><thead><tr><th><span class="chart-hidden">row</span></th>${numbers(firstColumn, shownColumns).map((each) => html`<th scope="col">${formatNumber(each)}</th>`)}</tr></thead><tbody>${numbers(0, shownRows).map(rowOf)}</tbody></table></div>
      <p class="elements-pages">${page("Rows", firstRow, shownRows, rows, ROWS)}<span class="grow"></span>${page("Columns", firstColumn, shownColumns, columns, COLUMNS)}</p>`;
  }

  #turn(name, by, isPossible) {
    const word = by < 0 ? "Previous" : "Next";
    const turn = () => {
      if (name === "Rows") this.row = Math.max(0, this.row + by);
      else this.column = Math.max(0, this.column + by);
      this.#read();
    };
    return html`<button class="button button-small" type="button" aria-label=${`${word} ${name.toLowerCase()}`} disabled=${!isPossible} onclick=${turn}>${by < 0 ? "‹" : "›"}</button>`;
  }

  #nearest() {
    if (this.savedSteps.length === 0) return null;
    const step = this.savedSteps.reduce((best, each) => (Math.abs(each - this.step) < Math.abs(best - this.step) ? each : best));
    return html`<button class="button button-small" type="button" onclick=${() => this.onStep(step)}>Show step ${formatNumber(step)}, the nearest that was saved</button>`;
  }
}

function cellOf(value) {
  return Number.isFinite(value) ? html`<td>${formatNumber(value)}</td>` : html`<td class="bad">${Number.isNaN(value) ? "NaN" : formatNumber(value)}</td>`;
}
