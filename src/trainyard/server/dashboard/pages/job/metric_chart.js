/** The chart of one metric: its curves on the chosen axis, with the interruptions and findings of the job. */

import { LineChart } from "../../charts/line_chart.js";
import { showInvisible } from "../../text.js";
import { chartOptions, rangeOf, smoothingOf } from "./chart_settings.js";

/** @typedef {{at: string, attempt: number, text: string}} Interruption @typedef {{at: string, step?: number, rule: string, text: string}} Finding */

/** What all charts of a job have in common besides settings. @typedef {{marks: import("../../charts/marks.js").Mark[], xRange: [number, number]|null}} View */

export class MetricChart {
  /**
   * @param {HTMLElement} place @param {string} metric @param {import("./metric_store.js").MetricStore} store
   * @param {import("./chart_settings.js").Settings} settings
   * @param {{height: number, view: View, onSelectRange: (range: object|null) => void}} options
   */
  constructor(place, metric, store, settings, { height, view, onSelectRange }) {
    Object.assign(this, { metric, store, settings });
    this.chart = new LineChart(place, { label: showInvisible(metric), height, syncKey: "job", empty: "No values yet", onSelectRange });
    this.show(settings, view);
  }

  /** Show the points of the store anew. */
  show(settings, { marks, xRange }) {
    this.settings = settings;
    const instances = this.store.instances(this.metric);
    const nameOf = (instance) => (instances.length > 1 ? instance : this.metric);
    this.chart.setData({
      ...chartOptions(settings, this.store.steps.isKnown),
      smoothing: smoothingOf(settings, this.metric, this.store.extent(this.metric).here),
      marks,
      xRange,
      series: instances.map((instance) => ({ name: nameOf(instance), ...this.store.points(this.metric, instance, settings.axis) })),
    });
    this.setRange(rangeOf(settings));
  }

  setRange(range) {
    this.chart.setRange(range);
  }

  destroy() {
    this.chart.destroy();
  }
}

/** @param {import("./metric_store.js").MetricStore} store @returns {View} */
export function viewOf(facts, store, axis) {
  const marks = marksOf(facts, store, axis);
  const extent = store.extentOf(axis);
  if (!extent) return { marks, xRange: null };
  const places = marks.map(({ x }) => x);
  return { marks, xRange: [Math.min(extent[0], ...places), Math.max(extent[1], ...places)] };
}

/** What to mark on the x axis of every chart. @param {import("./metric_store.js").MetricStore} store */
function marksOf({ interruptions, findings }, store, axis) {
  const seconds = (at) => new Date(at).getTime() / 1000;
  const marks = interruptions.map((each) => ({
    x: store.placeOfEvent(axis, each.attempt, seconds(each.at)),
    text: `Interrupted: ${each.text}`,
    kind: "interruption",
  }));
  for (const { at, step, rule, text } of findings) {
    const exact = step === null || step === undefined ? NaN : store.placeOfStep(axis, step);
    const x = Number.isNaN(exact) && at ? store.placeOfEvent(axis, store.steps.attempts.keys().next().value ?? 1, seconds(at)) : exact;
    marks.push({ x, text: `${rule}: ${text}`, kind: "finding" });
  }
  const together = new Map();
  for (const mark of marks.filter(({ x }) => Number.isFinite(x))) {
    const key = `${mark.kind} ${mark.x}`;
    const known = together.get(key);
    if (known) known.others += 1;
    else together.set(key, { ...mark, others: 0 });
  }
  return [...together.values()].map(({ others, ...mark }) => (others > 0 ? { ...mark, text: `${mark.text} (and ${others} more)` } : mark));
}
