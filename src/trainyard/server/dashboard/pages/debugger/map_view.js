/** The map: a statistic of all tensors of a kind, layers x steps. */

import { Heatmap } from "../../charts/heatmap.js";
import { formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { decodeBytes, decodeFloats } from "./arrays.js";
import { GROUPS, STATISTICS, isSigned, shorten, statisticTitle } from "./catalog.js";

const NOT_FINITE = 2;
const CONTENT_WORDS = ["not captured", "", "infinite elements", "NaN elements"];
const MAX_STEPS = 600;
const MAX_CELLS = 200_000;

export class MapView {
  /**
   * @param {string} address of the page's data
   * @param {{onSelect: (tensor: string, step: number) => void, onRange: (range: {from: number, to: number}) => void}} actions
   */
  constructor(address, actions) {
    this.address = address;
    this.actions = actions;
    this.place = document.getElementById("map");
    this.chart = null;
    this.asked = 0;
  }

  /** The groups that the tensors of a job have. @param {import("./catalog.js").Tensor[]} tensors */
  static groupsOf(tensors) {
    return GROUPS.filter((group) => tensors.some((each) => (group.measures ? group.measures.some((word) => each.measures.includes(word)) : each.kind === group.kind)));
  }

  /** The statistics of a group, as pairs of word and title. */
  static statisticsOf(group, tensors) {
    if (!group?.measures) return STATISTICS;
    return group.measures.filter((word) => tensors.some((each) => each.measures.includes(word))).map((word) => [word, statisticTitle(word)]);
  }

  /**
   * Read and draw. Only the newest call draws; the others return null.
   * @param {{group: object, statistic: string, isLog: boolean, worker: string, mode: string, count: number,
   *   range: {from: number, to: number}|null, findings: object[], selected: {tensor: string, step: number}}} view
   */
  async show(view) {
    const number = ++this.asked;
    const steps = Math.max(60, Math.min(MAX_STEPS, Math.floor(MAX_CELLS / Math.max(1, view.count))));
    const query = new URLSearchParams({ statistic: view.statistic, steps: String(steps), most: "2000", worker: view.worker, mode: view.mode });
    if (view.group?.kind) query.set("kind", view.group.kind);
    if (view.range) for (const end of ["from", "to"]) query.set(end, String(view.range[end]));
    const found = await getJson(`${this.address}/statistics?${query}`);
    if (number !== this.asked) return null;
    document.getElementById("map-hint").hidden = false;
    document.getElementById("map-gaps").hidden = !decodeBytes(found.contents).includes(0);
    this.view = view;
    this.found = withoutEmptyRows({ ...found, means: decodeFloats(found.means), minima: decodeFloats(found.minima), maxima: decodeFloats(found.maxima), contents: decodeBytes(found.contents) });
    this.draw();
    return this.found;
  }

  /** Frame the cell of a tensor at a step. @param {{tensor: string, step: number}} selected */
  select(selected) {
    if (!this.chart || !this.view) return;
    this.view.selected = selected;
    this.chart.setData({ selected: this.#cellOf(selected) });
  }

  /** Draw again, with another scale or other findings. @param {object} changes */
  draw(changes = {}) {
    if (!this.found) return;
    Object.assign(this.view, changes);
    const { found, view } = this;
    const isLog = view.isLog && !isSigned(view.statistic);
    const { values, lowest } = this.#values(isLog);
    // A measure, such as the ratio of an update, may have no value at a step.
    const alarms = view.group?.measures ? null : Uint8Array.from(found.contents, (content) => (content >= NOT_FINITE ? 1 : 0));
    const options = {
      rows: shorten(found.tensors),
      columns: found.firsts,
      values,
      alarms,
      scale: isLog ? "log" : "linear",
      palette: isSigned(view.statistic) ? "diverging" : "sequential",
      xLabel: "step",
      legend: statisticTitle(view.statistic),
      label: `${statisticTitle(view.statistic)} of ${view.group?.title ?? "all tensors"}, layers over steps`,
      empty: "Nothing was captured of these tensors. Name their collection in the job's CollectionConfigurations.",
      selected: this.#cellOf(view.selected),
      marks: view.findings.filter((each) => each.step !== null).map((each) => ({ x: each.step, text: `${each.rule}, step ${each.step}`, kind: "finding" })),
      tip: (row, column) => this.#tip(row, column),
      format: (value) => (isLog && value === lowest ? `≤ ${formatNumber(value)}` : formatNumber(value)),
      onSelect: (row, column) => this.actions.onSelect(found.tensors[row], this.#stepOf(row, column)),
      onZoomColumns: (first, last) => this.#enlarge(first, last),
    };
    const height = Math.max(140, Math.min(560, found.tensors.length * 16 + 64));
    if (this.chart && this.height === height) this.chart.setData(options);
    else {
      this.chart?.destroy();
      const place = element`<div></div>`;
      replaceChildren(this.place, place);
      this.chart = new Heatmap(place, { ...options, height });
      this.height = height;
    }
  }

  /** Ask for the steps of some columns, if each of these stands for several. */
  #enlarge(first, last) {
    const { firsts, lasts } = this.found;
    if (firsts[last] - firsts[first] === last - first && lasts[last] === firsts[last]) return false;
    this.actions.onRange({ from: firsts[first], to: lasts[last] });
    return true;
  }

  #cellOf({ tensor, step }) {
    const row = this.found.tensors.indexOf(tensor);
    const column = this.found.lasts.findIndex((last) => last >= step);
    return row < 0 || column < 0 || step < this.found.firsts[column] ? null : [row, column];
  }

  /** The step of a cell: the one at which the tensor fired a rule, if it is in there, else the first. */
  #stepOf(row, column) {
    const [first, last] = [this.found.firsts[column], this.found.lasts[column]];
    const fired = this.view.findings.find((each) => each.tensor === this.found.tensors[row] && each.step >= first && each.step <= last);
    return fired?.step ?? first;
  }

  /** The values to draw: of several steps the one that stands out, and something for 0, which has no logarithm. */
  #values(isLog) {
    const { means, maxima } = this.found;
    const shown = isSigned(this.view.statistic) ? means : maxima;
    if (!isLog) return { values: shown, lowest: null };
    let lowest = Infinity;
    for (const value of shown) if (value > 0 && value < lowest) lowest = value;
    if (lowest === Infinity) return { values: shown, lowest: null };
    lowest /= 10;
    return { values: Float32Array.from(shown, (value) => (value === 0 ? lowest : value)), lowest: Math.fround(lowest) };
  }

  #tip(row, column) {
    const { found } = this;
    const place = row * found.firsts.length + column;
    const steps = found.firsts[column] === found.lasts[column] ? `step ${found.firsts[column]}` : `steps ${found.firsts[column]} to ${found.lasts[column]}`;
    const content = CONTENT_WORDS[found.contents[place]];
    const [low, high] = [found.minima[place], found.maxima[place]];
    const values = Number.isNaN(low) ? "" : low === high ? formatNumber(low) : `${formatNumber(low)} to ${formatNumber(high)}`;
    return { title: found.tensors[row], name: steps, value: [values, content].filter(Boolean).join(", ") };
  }
}

/** Leave out tensors that were captured in no step. */
function withoutEmptyRows(found) {
  const width = found.firsts.length;
  const rows = found.tensors.map((_, row) => row).filter((row) => found.contents.subarray(row * width, (row + 1) * width).some(Boolean));
  if (rows.length === found.tensors.length) return found;
  const pick = (values) => {
    const picked = new values.constructor(rows.length * width);
    for (const [place, row] of rows.entries()) picked.set(values.subarray(row * width, (row + 1) * width), place * width);
    return picked;
  };
  const arrays = Object.fromEntries(["means", "minima", "maxima", "contents"].map((name) => [name, pick(found[name])]));
  return { ...found, ...arrays, tensors: rows.map((row) => found.tensors[row]), total: found.total - found.tensors.length + rows.length };
}
