/** One chart alone, such as in a frame of another page or in a notebook. */

import { getJson } from "../../http.js";
import { readSettings, writeSettings } from "./chart_settings.js";
import { MetricChart, viewOf } from "./metric_chart.js";
import { MetricStore, StepTable } from "./metric_store.js";

const EVERY_MS = 3000;
// Above and below the chart.
const MARGIN = 64;
const MIN_HEIGHT = 120;

const { metric, facts } = JSON.parse(document.getElementById("chart-page").textContent);
const settings = readSettings();
let store = new MetricStore(new Date(facts.started).getTime() / 1000);
const chart = new MetricChart(document.getElementById("chart"), metric, store, settings, {
  height: Math.max(MIN_HEIGHT, innerHeight - MARGIN), view: { marks: [], xRange: null },
  onSelectRange: (range) => {
    Object.assign(settings, { from: range ? String(range.from) : "", to: range ? String(range.to) : "" });
    writeSettings({ from: settings.from, to: settings.to });
  },
});

async function load() {
  const [lines, steps] = await Promise.all([
    getJson(`${facts.address}/points/${encodeURIComponent(metric)}`),
    getJson(`${facts.address}/steps`),
  ]);
  // Other points stand for the same parts when there are more of them.
  store = new MetricStore(store.startedAt);
  store.steps = new StepTable(steps);
  store.add(lines);
  chart.store = store;
  chart.show(settings, viewOf(facts, store, settings.axis));
}

async function keepUpToDate() {
  const place = document.getElementById("problem");
  try {
    await load();
    place.hidden = true;
  } catch (error) {
    place.textContent = error.message;
    place.hidden = false;
  }
  if (facts.isRunning) setTimeout(keepUpToDate, EVERY_MS);
}

keepUpToDate();
