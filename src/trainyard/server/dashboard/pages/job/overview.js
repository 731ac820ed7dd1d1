/** The overview of a job: keeps its sections and charts up to date while it runs. */

import { formatNumber } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { showInvisible } from "../../text.js";
import { ChartGrid, groupOf } from "./chart_grid.js";
import { DEFAULTS, rangeOf, readSettings, settingControls, writeSettings } from "./chart_settings.js";
import { HardwareCharts } from "./hardware.js";
import { MetricChart, viewOf } from "./metric_chart.js";
import { MetricStore, StepTable } from "./metric_store.js";

const HARDWARE_EVERY_MS = 10_000;
const part = (id) => document.getElementById(id);

let facts = JSON.parse(part("job-overview").textContent);
const settings = readSettings();
const store = new MetricStore(new Date(facts.started).getTime() / 1000);
const grid = new ChartGrid(part("chart-groups"), { makeChart: makeMetricChart, linkOf: chartLink });
const hardware = new HardwareCharts(part("hardware-groups"), store, () => ({ settings, ...view() }), selectRange);

function makeMetricChart(place, metric, height) {
  const chart = new MetricChart(place, metric, store, settings, { height, view: view(), onSelectRange: selectRange });
  refine(metric);
  return chart;
}

function view() {
  return viewOf(facts, store, settings.axis);
}

function redraw() {
  const common = view();
  for (const [, chart] of grid.charts()) chart.show(settings, common);
  hardware.redraw();
}

/* Settings */

function change(changes) {
  Object.assign(settings, changes);
  writeSettings(changes);
  redraw();
  if ("from" in changes) refineAll();
}

/** All charts show the range that one of them was zoomed to. */
function selectRange(range) {
  Object.assign(settings, { from: range ? String(range.from) : "", to: range ? String(range.to) : "" });
  writeSettings({ from: settings.from, to: settings.to });
  for (const [, chart] of grid.charts()) chart.setRange(range);
  hardware.setRange(range);
  refineAll();
}

function refineAll() {
  for (const [metric] of grid.charts()) refine(metric);
}

/** Get the points between those that the page has, where they are in view. */
async function refine(metric) {
  const range = rangeOf(settings);
  const { here, recorded } = store.extent(metric);
  const times = range && here < recorded ? store.timesWithin(metric, settings.axis, range) : null;
  if (times === null) return;
  try {
    const query = new URLSearchParams({ from: times.from, to: times.to });
    const lines = await getJson(`${facts.address}/points/${encodeURIComponent(metric)}?${query}`);
    store.refine(metric, times.from, times.to, lines);
    for (const [name, chart] of grid.charts()) if (name === metric) chart.show(settings, view());
  } catch (error) {
    showProblem(error);
  }
}

function chartLink(metric) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (settings[name] !== value) query.set(name, typeof value === "boolean" ? "1" : settings[name]);
  return `${facts.address}/charts/${encodeURIComponent(metric)}${query.size > 0 ? `?${query}` : ""}`;
}

/* Metrics */

function showItems() {
  const all = [...new Set([...facts.definitions, ...store.metrics.keys()])];
  const hasValues = (name) => name in facts.summaries || store.metrics.has(name);
  const isExpecting = facts.isRunning && all.some(hasValues);
  const names = isExpecting ? all : all.filter(hasValues);
  const grouped = names.map((name) => ({ id: name, title: name, group: groupOf(name) }));
  grid.setItems(grouped);
  for (const name of names) grid.setSummary(name, facts.summaries[name]);
  const missing = facts.isRunning || !all.some(hasValues) ? [] : all.filter((name) => !hasValues(name));
  part("charts-missing").hidden = missing.length === 0;
  part("charts-missing").textContent = showInvisible(`The log has no values of ${missing.join(", ")}.`);
  const isEmpty = names.length === 0;
  part("charts-empty").hidden = !isEmpty;
  for (const id of ["chart-filter", "chart-settings"]) part(id).hidden = isEmpty && hardware.isEmpty;
  if (isEmpty) replaceChildren(part("charts-empty"), all.length > 0 ? noValues(all) : noMetrics());
}

function noValues(names) {
  return html`<p class="empty-title">${facts.isRunning ? "No values yet" : "No values"}</p>
    <p>${facts.isRunning ? "As soon as the log has values of these metrics, they are drawn here:" : "The log has no values of these metrics:"}
      <span class="mono">${showInvisible(names.join(", "))}</span></p>`;
}

function noMetrics() {
  return html`<p class="empty-title">This job has no metrics</p>
    <p>A metric is a name and a regular expression that finds its values in the log. Define it when you start the next job:</p>
    <span class="copyable"><code>trainyard run --md loss='loss=([0-9.]+)' train.py</code></span>`;
}

function addPoints(lines) {
  const isFirst = store.metrics.size === 0;
  const changed = store.add(lines);
  if ([...changed].some((metric) => !grid.cards.has(metric))) showItems();
  if (isFirst) return redraw();
  const common = view();
  for (const [metric, chart] of grid.charts()) if (changed.has(metric)) chart.show(settings, common);
}

/* Sections */

function showState({ sections, facts: newFacts }) {
  facts = newFacts;
  for (const [name, text] of Object.entries(sections)) {
    // The yard's templates wrote it, as they wrote the page itself.
    part(`job-${name}`).innerHTML = text;
  }
  part("job-facts").dataset.running = String(facts.isRunning);
  document.dispatchEvent(new CustomEvent("jobchange", { detail: { isRunning: facts.isRunning } }));
  if ("failure" in sections) showEvidence();
  showItems();
  redraw();
}

/** Show where the log has the failure, and which other jobs failed in the same way. */
async function showEvidence() {
  if (!part("failure-similar")) return;
  const [similar, cause] = await Promise.allSettled([getJson(`${facts.address}/similar-failures`), getJson(`${facts.address}/logs/cause`)]);
  const place = part("failure-similar");
  if (!place) return;
  if (similar.status === "fulfilled" && similar.value.count > 0) {
    const { count, isMore, jobs, filter } = similar.value;
    const links = jobs.flatMap((name, number) => [number > 0 ? ", " : "", element`<a href=${`/-/training/${name}`}>${name}</a>`]);
    replaceChildren(place, `Seen in ${isMore ? "at least " : ""}${formatNumber(count)} other job${count === 1 ? "" : "s"}: `, links,
      count > jobs.length ? html`, and <a href=${`/-/jobs?${new URLSearchParams({ filter })}`}>more</a>` : "");
    place.hidden = false;
  }
  if (cause.status === "fulfilled" && cause.value.instance && part("failure-log")) {
    const { instance, first, last } = cause.value;
    part("failure-log").href = `${facts.address}/logs?${new URLSearchParams({ instance })}#L${first}-L${last}`;
  }
}

function showProblem(error) {
  part("problem").textContent = error.message;
  part("problem").hidden = false;
}

/* Hardware */

async function loadHardware() {
  try {
    const { series, steps } = await getJson(`${facts.address}/hardware`);
    const hadSteps = store.steps.isKnown;
    store.steps = new StepTable(steps);
    part("hardware").hidden = series.length === 0;
    hardware.show(series);
    if (store.steps.isKnown || hadSteps) redraw();
  } catch (error) {
    showProblem(error);
  }
}

async function start() {
  replaceChildren(part("chart-settings"), settingControls(settings, change));
  part("chart-filter").addEventListener("input", (event) => {
    grid.filter(event.target.value);
    hardware.grid.filter(event.target.value);
    for (const name of facts.definitions) grid.setSummary(name, facts.summaries[name]);
  });
  showItems();
  showEvidence();
  loadHardware();
  if (!facts.isRunning) {
    addPoints(await getJson(`${facts.address}/points`));
    refineAll();
    return;
  }
  const refreshing = setInterval(() => document.visibilityState === "visible" && loadHardware(), HARDWARE_EVERY_MS);
  listen(`${facts.address}/live`, {
    state: showState,
    points: addPoints,
    problem: showProblem,
    end: () => {
      clearInterval(refreshing);
      loadHardware();
    },
  });
}

start().catch(showProblem);
