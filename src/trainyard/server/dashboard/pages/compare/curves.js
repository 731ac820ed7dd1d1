/** The curves of several runs, one chart for each chosen metric. */

import { LineChart } from "../../charts/line_chart.js";
import { element, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { runColour } from "../../run_colours.js";
import { showInvisible } from "../../text.js";
import { chartOptions, rangeOf, smoothingOf } from "../job/chart_settings.js";
import { MetricStore, StepTable } from "../job/metric_store.js";
import { dashedRuns } from "./runs.js";

const HEIGHT = 280;
const AT_ONCE = 4;
// Drawing 50 runs anew for each that arrives would take longer than reading them.
const REDRAW_MS = 120;

export class Curves {
  /** @param {HTMLElement} place @param {{onSelectRange: (range: object|null) => void, onProblem: (error: Error) => void}} options */
  constructor(place, { onSelectRange, onProblem }) {
    Object.assign(this, { place, onSelectRange, onProblem });
    /** @type {Map<string, MetricStore>} */
    this.stores = new Map();
    /** @type {Map<string, {chart: LineChart, card: HTMLElement}>} */
    this.charts = new Map();
    this.busy = 0;
    this.redrawing = 0;
    document.addEventListener("themechange", () => this.redraw());
  }

  /** Show these metrics of these runs. @param {{name: string, started: string, metrics: string[]}[]} runs @param {string[]} metrics */
  show(runs, metrics, settings, hidden) {
    Object.assign(this, { runs, metrics, settings, hidden });
    for (const [metric, { chart, card }] of this.charts) {
      if (metrics.includes(metric)) continue;
      chart.destroy();
      card.remove();
      this.charts.delete(metric);
    }
    for (const metric of metrics) if (!this.charts.has(metric)) this.#addChart(metric);
    for (const metric of metrics) this.place.append(this.charts.get(metric).card);
    this.#readMissing();
  }

  redraw() {
    clearTimeout(this.redrawing);
    this.redrawing = 0;
    if (!this.runs) return;
    const dashed = dashedRuns(this.runs.map(({ name }) => name));
    for (const [metric, { chart }] of this.charts) {
      const shown = this.runs.filter(({ name }) => !this.hidden.includes(name) && this.stores.has(name));
      chart.setData({
        ...chartOptions(this.settings, [...this.stores.values()].some(({ steps }) => steps.isKnown)),
        smoothing: smoothingOf(this.settings, metric, Math.max(0, ...shown.map(({ name }) => this.stores.get(name).extent(metric).here))),
        series: shown.flatMap(({ name }) => this.#series(name, metric, dashed.has(name))),
        empty: this.busy > 0 ? "Reading…" : "No values",
      });
      chart.setRange(rangeOf(this.settings));
    }
  }

  setRange(range) {
    for (const { chart } of this.charts.values()) chart.setRange(range);
    this.refine();
  }

  /** Read the points in the range in view that were left out, where there are some. */
  async refine() {
    const range = rangeOf(this.settings);
    this.refining?.abort();
    if (!range) return;
    const { signal } = (this.refining = new AbortController());
    const wanted = this.runs.filter(({ name }) => !this.hidden.includes(name)).flatMap(({ name }) => this.metrics.map((metric) => [name, metric]));
    await this.#eachAtOnce(wanted, async (name, metric) => {
      const store = this.stores.get(name);
      const { here, recorded } = store?.extent(metric) ?? { here: 0, recorded: 0 };
      const times = here < recorded ? store.timesWithin(metric, this.settings.axis, range) : null;
      if (times === null || signal.aborted) return;
      const query = new URLSearchParams({ job: name, metric, from: times.from, to: times.to });
      try {
        store.refine(metric, times.from, times.to, await getJson(`/-/compare/finer-points?${query}`, { signal }));
        this.#redrawSoon();
      } catch (error) {
        if (error.name !== "AbortError") this.onProblem(error);
      }
    });
  }

  /** Read the points of runs anew, those that still get some. @param {string[]} names */
  async refresh(names) {
    await Promise.all(names.map((name) => this.#read(this.runs.find((run) => run.name === name), this.metrics, true)));
  }

  #series(name, metric, isDashed) {
    const store = this.stores.get(name);
    const instances = store.instances(metric);
    return instances.map((instance) => ({
      name: showInvisible(instances.length > 1 ? `${name} (${instance})` : name), colour: runColour(name), dashed: isDashed,
      ...store.points(metric, instance, this.settings.axis),
    }));
  }

  #addChart(metric) {
    const place = element`<div></div>`;
    const card = element`<article class="curve"><h3>${showInvisible(metric)}</h3>${place}</article>`;
    this.place.append(card);
    const chart = new LineChart(place, { label: `Chart of ${showInvisible(metric)}`, height: HEIGHT, syncKey: "compare", legend: false, onSelectRange: this.onSelectRange });
    this.charts.set(metric, { chart, card });
  }

  async #readMissing() {
    const asked = this.runs.map((run) => [run, this.metrics.filter((metric) => run.metrics.includes(metric) && !this.stores.get(run.name)?.asked.has(metric))]);
    this.busy += 1;
    this.place.setAttribute("aria-busy", "true");
    this.redraw();
    await this.#eachAtOnce(asked.filter(([, metrics]) => metrics.length > 0), (run, metrics) => this.#read(run, metrics));
    this.busy -= 1;
    this.redraw();
    this.place.setAttribute("aria-busy", String(this.busy > 0));
    await this.refine();
  }

  async #eachAtOnce(items, work) {
    const waiting = [...items];
    const workThrough = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) await work(...next);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, workThrough));
  }

  #redrawSoon() {
    this.redrawing ||= setTimeout(() => this.redraw(), REDRAW_MS);
  }

  async #read(run, metrics, isAgain = false) {
    if (!run || metrics.length === 0) return;
    if (!this.stores.has(run.name)) this.stores.set(run.name, Object.assign(new MetricStore(new Date(run.started).getTime() / 1000), { asked: new Set() }));
    const store = this.stores.get(run.name);
    for (const metric of metrics) store.asked.add(metric);
    try {
      const query = new URLSearchParams({ job: run.name, metrics: metrics.map(encodeURIComponent).join(","), jobs: this.runs.length });
      const { points, steps } = await getJson(`/-/compare/points?${query}`);
      if (isAgain) for (const metric of metrics) store.metrics.delete(metric);
      store.add(points);
      store.steps = new StepTable(steps);
    } catch (error) {
      this.onProblem(error);
    }
    this.#redrawSoon();
  }
}

/** Buttons that choose the metrics. @param {string[]} known @param {string[]} chosen @param {(metric: string) => void} onToggle */
export function drawMetricChoice(place, known, chosen, onToggle) {
  replaceChildren(place, known.map((metric) => element`<button class="button button-small" type="button" aria-pressed=${String(chosen.includes(metric))}
    onclick=${() => onToggle(metric)}>${showInvisible(metric)}</button>`));
}
