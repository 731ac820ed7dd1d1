/** Compare runs: their curves, in what they differ, and the lines of their code. The address holds what is shown. */

import { element, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { showInvisible } from "../../text.js";
import { readSettings, settingControls, writeSettings } from "../job/chart_settings.js";
import { CodeDifference } from "./code.js";
import { Curves, drawMetricChoice } from "./curves.js";
import { drawDifferences } from "./differences.js";
import { drawRuns } from "./runs.js";

const DEFAULTS = { jobs: [], metrics: [], hidden: [], same: false, codeFrom: "", codeTo: "" };
const FIRST_METRICS = 4;
const REFRESH_MS = 10_000;
// A page may take one part in this of the time.
const PAUSE = 50;
const SUGGEST_MS = 150;
const ENDED = new Set(["Completed", "Failed", "Stopped"]);

const part = (id) => document.getElementById(id);
const state = readState(DEFAULTS);
const settings = readSettings();
const curves = new Curves(part("charts"), { onSelectRange: selectRange, onProblem: (error) => showProblems([error.message]) });
const code = new CodeDifference(part("code"), part("code-from"), part("code-to"), (codeFrom, codeTo) => change({ codeFrom, codeTo }));
let found = { jobs: [], facts: [], problems: [] };
let reading = new AbortController();

function change(changes, { isNewEntry = false } = {}) {
  Object.assign(state, changes);
  writeState(changes, { defaults: DEFAULTS, isNewEntry });
}

/** Every metric, those that most runs have first. */
function knownMetrics() {
  const counts = new Map();
  for (const { metrics } of found.jobs) for (const metric of metrics) counts.set(metric, (counts.get(metric) ?? 0) + 1);
  return [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one));
}

function chosenMetrics() {
  const known = knownMetrics();
  const chosen = state.metrics.filter((metric) => known.includes(metric));
  return chosen.length > 0 ? chosen : known.slice(0, FIRST_METRICS);
}

function drawCurves() {
  const chosen = chosenMetrics();
  part("curves").hidden = knownMetrics().length === 0;
  drawMetricChoice(part("metrics"), knownMetrics(), chosen, toggleMetric);
  curves.show(found.jobs, chosen, settings, state.hidden);
}

function draw() {
  const names = found.jobs.map(({ name }) => name);
  const isEnough = names.length > 1;
  part("few").hidden = isEnough;
  part("comparison").hidden = !isEnough;
  part("facts").textContent = isEnough ? `${names.length} runs` : "";
  showProblems(found.problems);
  if (!isEnough) return;
  drawCurves();
  drawDifferences(part("differences"), found, { showsSame: state.same });
  part("same").setAttribute("aria-pressed", String(state.same));
  code.show(names, { from: state.codeFrom, to: state.codeTo });
}

function drawRunList() {
  drawRuns(part("runs"), state.jobs, { hidden: state.hidden, onToggle: toggleRun, onRemove: removeRun });
}

async function load({ isQuiet = false } = {}) {
  drawRunList();
  reading.abort();
  reading = new AbortController();
  part("loading").hidden = isQuiet || state.jobs.length === 0;
  try {
    const query = new URLSearchParams({ jobs: state.jobs.map(encodeURIComponent).join(",") });
    found = await getJson(`/-/compare/facts?${query}`, { signal: reading.signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    found = { ...found, problems: [error.message] };
  }
  part("loading").hidden = true;
  draw();
}

function showProblems(messages) {
  replaceChildren(part("problems"), messages.map((message) => element`<p class="notice notice-error" role="alert">${showInvisible(message)}</p>`));
}

/* Gestures */

function toggleRun(name, isAlone) {
  const others = state.jobs.filter((each) => each !== name);
  const isAloneNow = others.length > 0 && others.every((each) => state.hidden.includes(each)) && !state.hidden.includes(name);
  const hidden = isAlone ? (isAloneNow ? [] : others) : state.hidden.includes(name) ? state.hidden.filter((each) => each !== name) : [...state.hidden, name];
  change({ hidden });
  drawRunList();
  [...part("runs").querySelectorAll(".run-toggle")][state.jobs.indexOf(name)]?.focus();
  if (found.jobs.length > 1) drawCurves();
}

function toggleMetric(metric) {
  const chosen = chosenMetrics();
  const metrics = chosen.includes(metric) ? chosen.filter((each) => each !== metric) : [...chosen, metric];
  change({ metrics });
  const at = knownMetrics().indexOf(metric);
  drawCurves();
  part("metrics").children[at]?.focus();
}

function removeRun(name) {
  change({ jobs: state.jobs.filter((each) => each !== name), hidden: state.hidden.filter((each) => each !== name) }, { isNewEntry: true });
  load();
  part("add-name").focus();
}

function selectRange(range) {
  const changes = { from: range ? String(range.from) : "", to: range ? String(range.to) : "" };
  Object.assign(settings, changes);
  writeSettings(changes);
  curves.setRange(range);
}

part("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = part("add-name").value.trim();
  if (!name) return;
  part("add-name").value = "";
  if (!state.jobs.includes(name)) change({ jobs: [...state.jobs, name] }, { isNewEntry: true });
  load();
});

let suggesting = 0;
async function suggest() {
  try {
    const names = await getJson(`/-/compare/jobs?${new URLSearchParams({ q: part("add-name").value })}`);
    replaceChildren(part("add-names"), names.filter((name) => !state.jobs.includes(name)).map((name) => element`<option value=${name}></option>`));
  } catch {
    // What is typed so far may be no filter yet.
  }
}
part("add-name").addEventListener("focus", suggest, { once: true });
part("add-name").addEventListener("input", () => {
  clearTimeout(suggesting);
  suggesting = setTimeout(suggest, SUGGEST_MS);
});
part("same").addEventListener("click", () => {
  change({ same: !state.same });
  draw();
});
addEventListener("popstate", () => {
  Object.assign(state, readState(DEFAULTS));
  load();
});

replaceChildren(part("settings"), settingControls(settings, (changes) => {
  Object.assign(settings, changes);
  writeSettings(changes);
  curves.redraw();
}));
/** Read new points of running runs, and everything once one of them has ended. Rarely, where that takes long. */
async function refresh() {
  const began = performance.now();
  const running = found.jobs.filter(({ status }) => !ENDED.has(status)).map(({ name }) => name);
  if (!document.hidden && running.length > 0) {
    try {
      await curves.refresh(running);
      const states = await Promise.all(running.map((name) => getJson(`/-/job-state/training/${encodeURIComponent(name)}`)));
      if (states.some(({ status }) => ENDED.has(status))) await load({ isQuiet: true });
    } catch (error) {
      showProblems([error.message]);
    }
  }
  setTimeout(refresh, Math.max(REFRESH_MS, (performance.now() - began) * PAUSE));
}

setTimeout(refresh, REFRESH_MS);
load();
