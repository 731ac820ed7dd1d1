/** What the hardware of each instance did, on the x axis of the metrics. */

import { LineChart } from "../../charts/line_chart.js";
import { ChartGrid } from "./chart_grid.js";
import { chartOptions, rangeOf } from "./chart_settings.js";

// The charts of an instance: their names, the metrics in them, and how their values are written.
const CHARTS = [
  { name: "GPU", metrics: { gpu_percent: "" }, unit: "%", yRange: [0, 100] },
  { name: "GPU memory", metrics: { gpu_memory_bytes: "" }, unit: "bytes", yRange: [0, null] },
  { name: "GPU power", metrics: { gpu_power_watts: "" }, unit: "W", yRange: [0, null] },
  { name: "CPU", metrics: { job_cpu_percent: "of its cores" }, unit: "%", yRange: [0, null] },
  { name: "Memory", metrics: { job_memory_bytes: "used" }, unit: "bytes", yRange: [0, null] },
  { name: "Disk", metrics: { job_read_bytes_s: "read", job_write_bytes_s: "written" }, unit: "bytes/s", yRange: [0, null] },
  { name: "Network", metrics: { network_received_bytes_s: "received", network_sent_bytes_s: "sent" }, unit: "bytes/s", yRange: [0, null] },
];

export class HardwareCharts {
  /**
   * @param {HTMLElement} place @param {import("./metric_store.js").MetricStore} store
   * @param {() => {settings: object, marks: object[]}} view @param {(range: object|null) => void} onSelectRange
   */
  constructor(place, store, view, onSelectRange) {
    Object.assign(this, { store, view, onSelectRange });
    this.series = [];
    this.grid = new ChartGrid(place, { makeChart: (target, id, height) => this.#makeChart(target, id, height) });
  }

  get isEmpty() {
    return this.series.length === 0;
  }

  /** @param {{instance: string, attempt: number, metric: string, device: string, at: number[], values: number[]}[]} series */
  show(series) {
    this.series = series;
    const instances = [...new Set(series.map((each) => each.instance))];
    const items = instances.flatMap((instance) =>
      CHARTS.filter(({ metrics }) => series.some((each) => each.instance === instance && each.metric in metrics)).map(({ name }) => ({
        id: instances.length > 1 ? `${instance} ${name}` : name, title: name, group: instances.length > 1 ? instance : "",
      })),
    );
    this.instances = instances;
    this.grid.setItems(items);
    this.redraw();
  }

  redraw() {
    for (const [id, chart] of this.grid.charts()) this.#fill(chart, id);
  }

  setRange(range) {
    for (const [, chart] of this.grid.charts()) chart.setRange(range);
  }

  #makeChart(place, id, height) {
    const chart = new LineChart(place, { label: id, height, syncKey: "job", onSelectRange: this.onSelectRange });
    this.#fill(chart, id);
    return chart;
  }

  #fill(chart, id) {
    const { settings, marks, xRange } = this.view();
    const { name, metrics, unit, yRange } = CHARTS.find((each) => id === each.name || id.endsWith(` ${each.name}`));
    const instance = id.slice(0, -name.length).trim() || this.instances[0];
    const curves = new Map();
    for (const each of this.series) {
      if (each.instance !== instance || !(each.metric in metrics)) continue;
      const title = each.device || metrics[each.metric];
      const curve = curves.get(title) ?? { name: title, x: [], y: [], lower: [], upper: [] };
      curves.set(title, curve);
      for (let number = 0; number < each.at.length; number++) {
        curve.x.push(this.store.place(settings.axis, each.attempt, each.at[number]));
        curve.y.push(each.values[number] ?? NaN);
        curve.lower.push(each.minima[number] ?? NaN);
        curve.upper.push(each.maxima[number] ?? NaN);
      }
      // Between two attempts the instance did nothing for this job.
      curve.x.push(curve.x.at(-1));
      for (const column of [curve.y, curve.lower, curve.upper]) column.push(NaN);
    }
    chart.setData({
      ...chartOptions({ ...settings, log: false, clip: false }, this.store.steps.isKnown),
      ...unitOptions(unit), yRange, marks, xRange, series: [...curves.values()],
    });
    chart.setRange(rangeOf(settings));
  }
}

function unitOptions(unit) {
  return unit.startsWith("bytes") ? { yKind: unit } : { yLabel: unit };
}
