/** What the hardware did: every core and GPU as a heat map, the rest as curves, and a summary of each series. */

import { Heatmap } from "../../charts/heatmap.js";
import { LineChart } from "../../charts/line_chart.js";
import { formatBytes, formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { dataTable, meter } from "./data_table.js";
import { deviceName, metricName, metricUnit } from "./words.js";

const SUMMARY = ["job_cpu_percent", "job_memory_percent", "gpu_percent", "gpu_memory_percent", "io_wait_percent", "job_throttled_percent",
  "job_read_bytes_s", "job_write_bytes_s", "network_received_bytes_s", "network_sent_bytes_s", "gpu_power_watts"];
const CURVES = [
  { title: "CPU and GPU", metrics: ["job_cpu_percent", "cpu_percent", "gpu_percent"], unit: "%" },
  { title: "Memory", metrics: ["job_memory_percent", "memory_percent", "gpu_memory_percent"], unit: "%" },
  { title: "Waits for the disk, and stops", metrics: ["io_wait_percent", "job_throttled_percent", "pressure_some_percent"], unit: "%" },
  { title: "Disk and network", metrics: ["job_read_bytes_s", "job_write_bytes_s", "network_received_bytes_s", "network_sent_bytes_s"], unit: "B/s" },
  { title: "GPU power", metrics: ["gpu_power_watts"], unit: "W" },
  { title: "GPU temperature", metrics: ["gpu_temperature_celsius"], unit: "°C" },
];
const ORDER = { gpu: 0, core: 1 };

export class HardwareView {
  /** @param {{address: string, state: {heat: string, node: string}, periods: () => {regions: any[], marks: any[]}, onChoose: (changes: object) => void}} options */
  constructor({ address, state, periods, onChoose }) {
    Object.assign(this, { address, state, periods });
    /** @type {any[]|null} null until they are loaded */
    this.series = null;
    this.heat = null;
    this.curves = new Map();
    this.metricSelect = document.querySelector("#heat-metric");
    this.nodeSelect = document.querySelector("#node");
    this.metricSelect.addEventListener("change", () => onChoose({ heat: this.metricSelect.value }));
    this.nodeSelect.addEventListener("change", () => onChoose({ node: this.nodeSelect.value }));
  }

  /** Load the summary of the overview. */
  async loadSummary() {
    const { summary } = await getJson(`${this.address}/hardware?view=summary&points=1000`);
    showSummary(summary.filter((each) => each.count > 0));
  }

  /** Load all series and draw them. */
  async load() {
    const { series } = await getJson(`${this.address}/hardware`);
    this.series = series;
    this.draw();
  }

  draw() {
    if (this.series === null) return;
    const nodes = [...new Set(this.series.map((each) => each.instance))].sort();
    document.querySelector("#node-choice").hidden = nodes.length < 2;
    setOptions(this.nodeSelect, nodes.map((each) => [each, each]), this.state.node);
    const ofNode = this.series.filter((each) => each.instance === this.nodeSelect.value);
    this.#drawHeat(ofNode);
    this.#drawCurves(ofNode);
  }

  #drawHeat(series) {
    const choices = [];
    const has = (metric) => series.some((each) => each.metric === metric && each.device !== "total" && each.device !== "");
    if (has("cpu_percent") || has("gpu_percent")) choices.push(["use", "use of cores and GPUs"]);
    if (has("io_wait_percent")) choices.push(["wait", "I/O wait of cores"]);
    if (has("gpu_memory_percent")) choices.push(["memory", "memory of GPUs"]);
    const place = document.querySelector("#heat");
    if (choices.length === 0) {
      this.heat = null;
      return replaceChildren(place, element`<p class="faint">There are no samples of cores and GPUs yet.</p>`);
    }
    setOptions(this.metricSelect, choices, this.state.heat);
    const wanted = { use: ["gpu_percent", "cpu_percent"], wait: ["io_wait_percent"], memory: ["gpu_memory_percent"] }[this.metricSelect.value];
    const rows = series.filter((each) => wanted.includes(each.metric) && /^(gpu|core)\d+$/.test(each.device)).sort(byDevice);
    const grid = gridOf(rows);
    const options = { ...grid, range: [0, 100], xKind: "duration", xLabel: "since the first sample", legend: "%", format: (value) => `${Math.round(value)} %` };
    if (this.heat && this.rows === rows.length) return this.heat.setData(options);
    place.replaceChildren();
    this.rows = rows.length;
    this.heat = new Heatmap(place, { ...options, label: "Use of every core and GPU over time", height: Math.max(130, Math.min(560, rows.length * 18 + 70)) });
  }

  #drawCurves(series) {
    const place = document.querySelector("#curves");
    const shown = new Set();
    const { regions, marks } = this.periods();
    for (const { title, metrics, unit } of CURVES) {
      const chosen = series.filter((each) => metrics.includes(each.metric) && !/^core\d+$/.test(each.device));
      if (chosen.length === 0) continue;
      shown.add(title);
      const lines = joinAttempts(chosen).map((each) => ({ name: nameOf(each), x: Float64Array.from(each.at_us, (at) => at / 1e6), y: Float64Array.from(each.values, (value) => (value === null ? NaN : value)) }));
      if (this.curves.size === 0) place.replaceChildren();
      if (!this.curves.has(title)) {
        const box = element`<div><h3>${unit ? `${title}, ${unit}` : title}</h3><div></div></div>`;
        place.append(box);
        const yRange = unit === "%" ? [0, 100] : [0, null];
        this.curves.set(title, { box, chart: new LineChart(box.lastElementChild, { label: title, height: 190, xKind: "time", yRange, syncKey: "profiler-hardware", empty: "No samples yet" }) });
      }
      this.curves.get(title).chart.setData({ series: lines, regions, marks, onSelectRange: (range) => this.#zoomAll(title, range) });
    }
    for (const [title, { box }] of this.curves) box.hidden = !shown.has(title);
    if (shown.size === 0 && this.curves.size === 0) replaceChildren(place, element`<p class="faint">There are no samples yet.</p>`);
  }

  #zoomAll(from, range) {
    if (this.isZooming) return;
    this.isZooming = true;
    for (const [title, { chart }] of this.curves) if (title !== from) range ? chart.setRange?.(range) : chart.resetZoom();
    this.isZooming = false;
  }
}

function setOptions(select, choices, wanted) {
  const before = select.value;
  const known = [...select.options].map((each) => each.value).join();
  if (known !== choices.map(([value]) => value).join()) {
    select.replaceChildren(...choices.map(([value, textContent]) => Object.assign(document.createElement("option"), { value, textContent })));
  }
  const values = choices.map(([value]) => value);
  select.value = [wanted, before].find((each) => values.includes(each)) ?? values[0] ?? "";
}

function byDevice(one, other) {
  const [, oneKind, oneNumber] = /^(\D+)(\d+)$/.exec(one.device);
  const [, otherKind, otherNumber] = /^(\D+)(\d+)$/.exec(other.device);
  return ORDER[oneKind] - ORDER[otherKind] || oneNumber - otherNumber;
}

/** Rows of devices over the times of all attempts. */
function gridOf(series) {
  const times = [...new Set(series.flatMap((each) => each.at_us))].sort((one, other) => one - other);
  const place = new Map(times.map((at, column) => [at, column]));
  const devices = [...new Set(series.map((each) => each.device))];
  const values = new Float32Array(devices.length * times.length).fill(NaN);
  for (const each of series) {
    const row = devices.indexOf(each.device) * times.length;
    each.at_us.forEach((at, number) => (values[row + place.get(at)] = each.values[number] ?? NaN));
  }
  return { rows: devices.map(deviceName), columns: times.map((at) => Math.round((at - times[0]) / 1e5) / 10), values };
}

function joinAttempts(series) {
  const joined = new Map();
  for (const each of series) {
    const key = `${each.metric} ${each.device}`;
    const before = joined.get(key);
    if (before) {
      // The time between two attempts is a gap.
      before.at_us = [...before.at_us, each.at_us[0], ...each.at_us];
      before.values = [...before.values, null, ...each.values];
    } else joined.set(key, { ...each });
  }
  return [...joined.values()];
}

function nameOf({ metric, device }) {
  const name = metricName(metric);
  if (device === "" || device === "total") return name;
  return /^gpu\d+$/.test(device) ? name.replace(/^GPU/, deviceName(device)) : `${name} for ${deviceName(device)}`;
}

function showSummary(series) {
  const rows = SUMMARY.flatMap((metric) => series.filter((each) => each.metric === metric && !/^core\d+$/.test(each.device)));
  const nodes = new Set(rows.map((each) => each.instance));
  const attempts = new Set(rows.map((each) => each.attempt));
  const value = (name, title = name) => ({ title, isNumber: true, value: (each) => format(each[name], each.metric) });
  replaceChildren(document.querySelector("#utilization"), dataTable({
    label: "Utilization of the hardware",
    rows,
    limit: 20,
    empty: "There are no samples yet. They come once a second while the program runs.",
    columns: [
      { title: "Resource", value: (each) => nameOf(each) },
      ...(nodes.size > 1 ? [{ title: "Node", value: (each) => each.instance }] : []),
      ...(attempts.size > 1 ? [{ title: "Attempt", isNumber: true, value: (each) => each.attempt }] : []),
      value("mean", "Mean"),
      { title: "", className: "bar-cell", value: (each) => (metricUnit(each.metric) === "%" ? meter(each.mean / 100) : "") },
      value("min", "Min"), value("p50"), value("p90"), value("p99"), value("max", "Max"),
    ],
  }));
}

function format(value, metric) {
  const unit = metricUnit(metric);
  if (unit === "B/s") return `${formatBytes(value)}/s`;
  return `${formatNumber(Number(value.toPrecision(3)))}${unit ? ` ${unit}` : ""}`;
}
