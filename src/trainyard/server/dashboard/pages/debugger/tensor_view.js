/** One tensor: a statistic of it over the steps, its distribution over the steps, and its elements in a step. */

import { Heatmap } from "../../charts/heatmap.js";
import { LineChart } from "../../charts/line_chart.js";
import { formatNumber } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { decodeBytes, decodeCounts, decodeDoubles, decodeFloats } from "./arrays.js";
import { isSigned, nameInModule, shapeText, sizeOf, statisticTitle, statisticsOf } from "./catalog.js";
import { ElementsView } from "./elements_view.js";

const MAX_SIBLINGS = 12;
const MAX_GROUPS = 1000;
// Values that range over more than this are shown on a logarithmic axis.
const WIDE = 1000;
const CONTENT_INFINITE = 2;

export class TensorView {
  /**
   * @param {string} address of the page's data
   * @param {{onSelect: (name: string) => void, onStep: (step: number) => void, onStatistic: (word: string) => void}} actions
   */
  constructor(address, actions) {
    this.address = address;
    this.actions = actions;
    this.place = document.getElementById("tensor");
    this.charts = [];
    this.asked = 0;
    this.isShown = false;
  }

  /**
   * @param {import("./catalog.js").Tensor} tensor
   * @param {{step: number|null, statistic: string, worker: string, mode: string, siblings: import("./catalog.js").Tensor[],
   *   findings: object[], thresholds: object[], lastStep: number}} view
   */
  async show(tensor, view) {
    Object.assign(this, { tensor, view, isShown: true });
    const known = statisticsOf(tensor);
    this.statistic = known.includes(view.statistic) ? view.statistic : this.#fittingStatistic(known);
    this.#layOut(known);
    await Promise.all([this.#readCurve(), this.#readHistograms(), this.showStep(view.step)]);
  }

  /** Read again what a running job has added. @param {{findings: object[], thresholds: object[], lastStep: number}} changes */
  async refresh(changes) {
    if (!this.isShown) return;
    Object.assign(this.view, changes);
    this.stepInput.max = String(changes.lastStep);
    await Promise.all([this.#readCurve(), this.#readHistograms()]);
  }

  /** Draw the moments at which rules fired anew. */
  showFindings(findings, thresholds) {
    if (!this.isShown) return;
    Object.assign(this.view, { findings, thresholds });
    this.#drawCurve();
    this.#drawHistograms();
  }

  /** Show another step of the same tensor. @param {number|null} step */
  async showStep(step) {
    this.view.step = step;
    this.stepInput.value = step ?? "";
    this.#drawCurve();
    this.#drawHistograms();
    await this.elements.show(this.tensor, step, this.view.worker);
  }

  /** The statistic that a rule compares with a threshold, else the value of a scalar, else the mean magnitude. */
  #fittingStatistic(known) {
    const compared = this.view.thresholds.find((each) => this.#isOfTensor(each) && known.includes(each.statistic));
    const hasFinding = this.view.findings.some((each) => each.tensor === this.tensor.name && each.rule === compared?.rule);
    return hasFinding ? compared.statistic : known.includes("value") ? "value" : "mean_abs";
  }

  #isOfTensor(threshold) {
    return threshold.kinds.length === 0 || threshold.kinds.includes(this.tensor.kind);
  }

  #layOut(known) {
    for (const chart of this.charts) chart.destroy();
    const { tensor, view } = this;
    const own = view.findings.filter((each) => each.tensor === tensor.name);
    const siblings = view.siblings.slice(0, MAX_SIBLINGS);
    const facts = [`${tensor.kind}`, `${shapeText(tensor.shape)}${sizeOf(tensor) > 1 ? ` = ${formatNumber(sizeOf(tensor))} elements` : ""}`, tensor.dtype, tensor.module ? `in ${tensor.module}` : ""];
    const isScalar = sizeOf(tensor) === 1;
    replaceChildren(
      this.place,
      html`<header class="tensor-head">
        <h3 class="mono" id="tensor-name">${showInvisible(tensor.name)}</h3>
        <p class="faint">${facts.filter(Boolean).map(showInvisible).join(" · ")}</p>
        <p class="tensor-chips">${tensor.collections.map((each) => html`<span class="chip">${showInvisible(each)}</span>`)}</p>
        ${siblings.length > 0 ? html`<p class="tensor-chips"><span class="faint">Also in this layer</span>${siblings.map((each) => html`<button class="button button-small" type="button" title=${each.name} onclick=${() => this.actions.onSelect(each.name)}>${showInvisible(nameInModule(each))}</button>`)}</p>` : null}
      </header>
      ${own.map((each) => html`<p class="notice notice-warn">${html`<strong>${showInvisible(each.rule)}</strong>`}${each.step === null ? "" : `, step ${formatNumber(each.step)}`}: ${showInvisible(each.message)}</p>`)}
      <div class="toolbar">
        <label>Statistic <select class="select" id="statistic" onchange=${(event) => this.#changeStatistic(event.target.value)}>${known.map((word) => html`<option value=${word} selected=${word === this.statistic}>${statisticTitle(word)}</option>`)}</select></label>
        <span class="grow"></span>
        <label>Step <input class="input step-input" id="step" type="number" min="0" max=${view.lastStep} onchange=${(event) => this.#changeStep(event.target)}></label>
      </div>
      <div id="tensor-curve"></div>
      ${isScalar ? null : html`<h4>Distribution over steps</h4><div id="tensor-histograms"><div class="loading">Loading</div></div>`}
      <section id="elements" aria-label="Elements in a step"></section>`,
    );
    this.stepInput = document.getElementById("step");
    this.curve = new LineChart(document.getElementById("tensor-curve"), {
      label: `${statisticTitle(this.statistic)} of ${tensor.name}`, height: 220, xLabel: "step", syncKey: "step", legend: false,
      onSelect: (step) => this.actions.onStep(Math.round(step)),
    });
    this.histograms = null;
    this.found = this.distribution = null;
    this.charts = [this.curve];
    this.elements = new ElementsView(this.address, document.getElementById("elements"), (step) => this.actions.onStep(step));
  }

  #changeStatistic(word) {
    this.statistic = word;
    this.actions.onStatistic(word);
    this.curve.surface.label = `${statisticTitle(word)} of ${this.tensor.name}`;
    this.#readCurve();
  }

  #changeStep(input) {
    if (input.value !== "" && input.checkValidity()) this.actions.onStep(Number(input.value));
  }

  #query(more) {
    return new URLSearchParams({ tensor: this.tensor.name, worker: this.view.worker, mode: this.view.mode, ...more });
  }

  async #readCurve() {
    const { tensor, statistic } = this;
    const found = await getJson(`${this.address}/statistics?${this.#query({ statistic, steps: String(MAX_GROUPS) })}`);
    if (tensor !== this.tensor || statistic !== this.statistic) return;
    this.found = { firsts: found.firsts, lasts: found.lasts, means: decodeFloats(found.means), minima: decodeFloats(found.minima), maxima: decodeFloats(found.maxima), contents: decodeBytes(found.contents), notes: found.notes };
    this.#drawCurve();
  }

  #drawCurve() {
    if (!this.found) return;
    const { found, statistic, view } = this;
    const isGrouped = found.firsts.some((first, number) => first !== found.lasts[number]);
    // Between the steps at which it was measured, the curve goes on; where it was not finite, it breaks.
    const measured = found.firsts.map((_, number) => number).filter((number) => found.contents[number] !== 0);
    const pick = (values) => measured.map((number) => values[number]);
    const band = isGrouped ? { lower: pick(found.minima), upper: pick(found.maxima) } : {};
    const series = [{ name: statisticTitle(statistic), x: pick(found.firsts), y: pick(found.means), ...band }];
    const ends = [found.firsts[0], found.firsts[found.firsts.length - 1]];
    const thresholds = view.thresholds.filter((each) => each.statistic === statistic && this.#isOfTensor(each));
    const finite = found.means.filter((each) => Number.isFinite(each));
    const isLog = !isSigned(statistic) && finite.length > 0 && finite.every((each) => each > 0) && Math.max(...finite) > WIDE * Math.min(...finite);
    for (const each of thresholds) {
      if (!isLog || each.value > 0) series.push({ name: `${each.rule}, ${each.parameter} ${formatNumber(each.value)}`, x: ends, y: [each.value, each.value], dashed: true, colour: "bad" });
    }
    // A measure, such as the ratio of an update, may have no value at a step.
    const broken = this.tensor.measures.includes(statistic) ? [] : found.firsts.filter((_, number) => found.contents[number] >= CONTENT_INFINITE);
    const marks = [...this.#marks(), ...(broken.length > 0 ? [{ x: broken[0], text: `not finite from step ${broken[0]}`, kind: "interruption" }] : [])];
    this.curve.setData({ series, marks, logY: isLog, legend: thresholds.length > 0, empty: found.notes[0] ?? "This tensor was captured in no step" });
  }

  /** The moments at which rules found something in this tensor, and the step that is shown. */
  #marks() {
    const { findings, step } = this.view;
    const own = findings.filter((each) => each.step !== null && each.tensor === this.tensor.name);
    const marks = own.map((each) => ({ x: each.step, text: `${each.rule}, step ${each.step}`, kind: "finding" }));
    for (const each of findings) {
      if (each.step !== null && each.tensor !== this.tensor.name) marks.push({ x: each.step, text: `${each.rule}, step ${each.step}, in another tensor`, kind: "note" });
    }
    return step === null ? marks : [...marks, { x: step, text: `step ${step} is shown below`, kind: "decision" }];
  }

  async #readHistograms() {
    const place = document.getElementById("tensor-histograms");
    const { tensor } = this;
    if (!place) return;
    const found = await getJson(`${this.address}/histograms?${this.#query({ steps: "120" })}`);
    if (tensor !== this.tensor || !place.isConnected) return;
    this.distribution = { ...found, edges: decodeDoubles(found.edges), counts: decodeCounts(found.counts) };
    this.elements.setSavedSteps(found.isRecorded ? [] : found.steps);
    if (found.steps.length === 0) {
      this.histograms?.destroy();
      this.histograms = null;
      return replaceChildren(place, html`<p class="faint">${found.notes.map(showInvisible).join(" ")}</p>`);
    }
    if (!this.histograms) {
      const chart = element`<div></div>`;
      replaceChildren(place, chart);
      this.histograms = new Heatmap(chart, { label: `Distribution of ${tensor.name} over steps`, height: 230, xLabel: "step", legend: "share of the elements", scale: "log" });
      this.charts.push(this.histograms);
    }
    this.#drawHistograms();
  }

  #drawHistograms() {
    if (!this.histograms || !this.distribution) return;
    const { steps, bins, edges, counts } = this.distribution;
    const totals = steps.map((_, number) => counts.subarray(number * bins, (number + 1) * bins).reduce((sum, each) => sum + each, 0));
    // The highest values on top.
    const values = new Float32Array(bins * steps.length);
    for (let bin = 0; bin < bins; bin++) {
      for (let number = 0; number < steps.length; number++) {
        const count = counts[number * bins + bin];
        values[(bins - 1 - bin) * steps.length + number] = count > 0 ? count / totals[number] : NaN;
      }
    }
    const edge = (number) => formatNumber(edges[number]);
    this.histograms.setData({
      rows: Array.from({ length: bins }, (_, row) => edge(bins - row)),
      columns: steps,
      values,
      marks: this.#marks(),
      tip: (row, column) => {
        const bin = bins - 1 - row;
        return { title: `${edge(bin)} to ${edge(bin + 1)}`, name: `step ${formatNumber(steps[column])}`, value: `${formatNumber(counts[column * bins + bin])} of ${formatNumber(totals[column])}` };
      },
      format: (value) => `${formatNumber(100 * value)} %`,
      onSelect: (_, column) => this.actions.onStep(steps[column]),
    });
  }
}
