/** The page of a tuning job: keeps its trials live, and links all charts and the table. */

import { AXIS_WIDTH, Parallel } from "../../charts/parallel.js";
import { onThemeChange } from "../../charts/theme.js";
import { formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { showInvisible } from "../../text.js";
import { showToast } from "../../toast.js";
import { ImportanceChart, drawBest, drawFigures, drawLimits, drawNextTrial, drawNotices, drawPinned } from "./overview.js";
import { CurvesChart, SlotsChart } from "./run_charts.js";
import { STATES, Study } from "./study.js";
import { ContourChart, HistoryChart, SliceCharts, brushText, pointerActions, stateColour } from "./trial_charts.js";
import { TrialTable, parseFilter } from "./trial_table.js";

const DEFAULTS = { algorithm: "", log: false, clip: true, brush: [], order: [], x: "", y: "", trial: 0, sort: "", filter: "", columns: [] };
// How much longer the page waits before it asks for a survey again than the last one took.
const SURVEY_SHARE = 60;
const SURVEY_MS = { least: 5000, most: 60_000 };
// Drawing a hundred rows takes longer than all charts, so the table follows a selection when it rests.
const TABLE_AFTER_MS = 100;
const OBJECTIVE = "objective";
const MAX_COMPARED = 10;

const data = JSON.parse(document.getElementById("data").textContent);
const address = `/-/tuning/${data.name}`;
const at = (id) => document.getElementById(id);
const view = readState(DEFAULTS);
const study = new Study(data);
const began = { runtime: data.state.runtime, at: Date.now() };
let survey = null;
let surveyed = { measured: -1, at: 0, took: 0, key: "" };
let asked = { trials: -1, at: 0 };

/** The hyperparameters by importance, and how many trials told so. */
let ranking = [];
let rankedTrials = 0;

const history = new HistoryChart(at("history"), study);
const slices = new SliceCharts(at("slices"), study);
const contour = new ContourChart(at("contour"), study);
const curves = new CurvesChart(at("curves"), study);
const slots = new SlotsChart(at("slots"), study);
const importance = new ImportanceChart(at("importance"));
const parallel = new Parallel(at("parallel"), {
  label: "Hyperparameters and objective of each trial", height: 340, empty: "No trial has an objective yet",
  onBrush: (key, range) => study.brush({ [key]: range && (key === OBJECTIVE ? objectiveRange(range) : range) }),
  onOrder: (keys) => remember({ order: keys }),
  onClear: () => study.clearBrushes(),
  ...pointerActions(study),
});
const table = new TrialTable({ table: at("trials"), more: at("more"), count: at("trial-count"), columns: at("columns") }, study, { sort: view.sort, columns: view.columns, onChange: remember });
const linked = [history, slices, contour, curves, slots];

function remember(changes) {
  Object.assign(view, changes);
  writeState(changes, { defaults: DEFAULTS });
  if ("order" in changes) drawParallel();
}

/** The objective as an axis of the parallel coordinates. */
function objectiveAxis() {
  const scale = study.objectiveScale;
  return {
    key: OBJECTIVE, name: study.metric,
    ticks: (count) => scale.ticks(count).map(({ fraction, text }) => ({ position: fraction, text })),
    textAt: (position) => formatNumber(Number(scale.value(position).toPrecision(4))),
  };
}

/** A part of the objective axis as values. A part that reaches an end includes what lies beyond it. */
function objectiveRange([low, high]) {
  const scale = study.objectiveScale;
  return [low <= 0 ? -Infinity : scale.value(low), high >= 1 ? Infinity : scale.value(high)];
}

function drawParallel() {
  const known = [...study.definition.axes.map((axis) => ({ key: `p:${axis.name}`, name: axis.name, isCategorical: axis.isCategorical, count: axis.values?.length, ticks: (count) => axis.ticks(count), textAt: (position) => axis.textAt(position), of: axis })), objectiveAxis()];
  const rank = (each) => (view.order.includes(each.key) ? view.order.indexOf(each.key) : known.length + known.indexOf(each));
  const axes = known.sort((one, other) => rank(one) - rank(other));
  const scale = study.objectiveScale;
  const place = (trial, axis) => (axis.key === OBJECTIVE ? Math.max(0, Math.min(1, scale.fraction(trial.value))) : axis.of.position(trial.values[axis.name]));
  const trials = study.shownOfDefinition.filter((each) => Number.isFinite(each.value)).sort((one, other) => (study.isBetter(one.value, other.value) ? 1 : -1));
  const rows = trials.map((trial) => ({ id: trial.number, positions: axes.map((axis) => place(trial, axis)), colour: study.colour(trial.value), isFaint: !study.isSelected(trial) }));
  const brushes = {};
  for (const axis of axes) {
    const range = study.brushes.get(axis.key);
    if (range) brushes[axis.key] = axis.key === OBJECTIVE ? range.map((value) => (Number.isFinite(value) ? Math.max(0, Math.min(1, scale.fraction(value))) : value > 0 ? 1 : 0)) : range;
  }
  at("parallel").style.minWidth = `${axes.length * AXIS_WIDTH}px`;
  parallel.setData({ axes, rows, brushes });
}

function drawContour() {
  const names = study.definition.axes.map((each) => each.name);
  const best = survey?.JointDependence?.Names ?? names;
  const x = names.includes(view.x) ? view.x : (best.find((each) => each !== view.y) ?? "");
  const y = names.includes(view.y) && view.y !== x ? view.y : (best.find((each) => each !== x) ?? names.find((each) => each !== x) ?? "");
  for (const [select, chosen] of [[at("contour-x"), x], [at("contour-y"), y]]) {
    replaceChildren(select, names.map((name) => element`<option value=${name} selected=${name === chosen}>${showInvisible(name)}</option>`));
    select.disabled = names.length < 2;
  }
  at("contour").closest("section").hidden = names.length < 2;
  contour.draw([x, y], survey?.JointDependence);
}

function drawSelection() {
  const chips = [...study.brushes].map(
    ([key, range]) => element`<span class="chip">${showInvisible(brushText(study, key, range))}<button type="button" aria-label=${`Remove the selection: ${brushText(study, key, range)}`} onclick=${() => study.brush({ [key]: null })}>×</button></span>`,
  );
  const count = study.selected.length;
  replaceChildren(
    at("selection"),
    study.isFiltered ? [`${count} of ${study.shown.length} trials:`, chips, element`<button class="button button-small" type="button" onclick=${() => study.clearBrushes()}>Clear</button>`, compareLink()] : [],
  );
}

/** A link to the comparison of the best of the selected trials. */
function compareLink() {
  const compared = study.selected.filter((each) => each.isMeasured).sort((one, other) => (study.isBetter(one.value, other.value) ? -1 : 1)).slice(0, MAX_COMPARED);
  if (compared.length < 2) return [];
  return element`<a class="button button-small" href=${`/-/compare?jobs=${compared.map((each) => each.job).join(",")}`}>Compare ${compared.length < study.selected.length ? `the best ${compared.length}` : `these ${compared.length}`}</a>`;
}

function drawCharts() {
  history.draw();
  drawParallel();
  slices.draw(survey, ranking);
  drawContour();
  curves.draw();
  slots.draw();
  drawSelection();
}

let tableTimer = 0;
function drawTableSoon() {
  const region = at("trials").parentElement;
  region.setAttribute("aria-busy", "true");
  clearTimeout(tableTimer);
  tableTimer = setTimeout(() => {
    table.draw();
    region.removeAttribute("aria-busy");
  }, TABLE_AFTER_MS);
}

function drawState() {
  drawFigures(at("figures"), study);
  drawBest(at("best"), study);
  drawNotices(at("notices"), at("notes"), study);
  drawRuntime();
  drawStatus();
}

/** The status in the head, which the actions beside it follow. */
function drawStatus() {
  const { status } = study.state;
  const place = at("job-status");
  if (place.dataset.status === status) return;
  place.dataset.status = status;
  const kind = { InProgress: "running", Completed: "completed", Failed: "failed" }[status] ?? "stopped";
  replaceChildren(place, element`<span class=${`badge badge-${kind}`}>${status === "InProgress" ? "Running" : status}</span>`);
}

function isRunning() {
  return ["InProgress", "Stopping"].includes(study.state.status);
}

function drawRuntime() {
  drawLimits(at("limits"), study, isRunning() ? began.runtime + (Date.now() - began.at) / 1000 : study.state.runtime);
}

function drawLegends() {
  const { name } = study.definition;
  if (at("definition")) at("shown-definition").textContent = study.chosenDefinition ? "" : `Hyperparameters are those of ${showInvisible(name)}${study.best ? ", which has the best trial" : ""}`;
  const marks = { completed: "●", pruned: "▼", running: "○", failed: "✕", stopped: "■" };
  const items = Object.entries(marks).map(([state, mark]) => {
    const item = element`<span><span aria-hidden="true">${mark}</span>${STATES[state]}</span>`;
    item.firstChild.style.color = stateColour(state);
    return item;
  });
  const line = (mark, name) => element`<span><span aria-hidden="true">${mark}</span>${name}</span>`;
  replaceChildren(at("history-legend"), items, line("━", "Best so far"), study.bestOfParents === null ? [] : line("┅", "Best of the parents"));
  at("history-legend").children[items.length].firstChild.style.color = "var(--accent)";
  const bars = items.map((each) => each.cloneNode(true));
  for (const bar of bars) bar.firstChild.textContent = "■";
  replaceChildren(at("timeline-legend"), bars, element`<span><span aria-hidden="true">▭</span>Best</span>`);
  at("log").disabled = !study.canBeLog;
  at("log").setAttribute("aria-pressed", String(study.isLog));
  at("clip").setAttribute("aria-pressed", String(study.options.clip));
}

/** Ask for a survey when there are new results, rarely if it takes long. */
async function refreshSurvey() {
  const { definition } = study;
  const key = `${definition.name}\n${view.x}\n${view.y}`;
  // Without a survey, the answer cost nothing; after the end, it is the last one.
  const isCheap = survey === null || !isRunning();
  const wait = isCheap ? SURVEY_MS.least : Math.max(SURVEY_MS.least, Math.min(SURVEY_MS.most, surveyed.took * SURVEY_SHARE));
  const isDue = key !== surveyed.key || (study.state.measured !== surveyed.measured && Date.now() - surveyed.at > wait);
  if (!isDue || surveyed.isAsking || document.hidden) return;
  surveyed = { ...surveyed, isAsking: true, key, measured: study.state.measured };
  const started = Date.now();
  try {
    const query = new URLSearchParams({ definition: definition.name, ...(view.x && view.y && view.x !== view.y ? { x: view.x, y: view.y } : {}) });
    const answer = await getJson(`${address}/survey?${query}`);
    survey = answer.Survey ?? null;
    showSurvey(answer);
  } catch (error) {
    at("survey-note").textContent = error.message;
  }
  surveyed = { ...surveyed, isAsking: false, at: Date.now(), took: Date.now() - started };
}

function showSurvey(answer) {
  if (survey) {
    importance.draw(survey);
    const explained = Math.round(100 * survey.ExplainedVariance);
    const metric = showInvisible(study.metric);
    at("survey-note").textContent = `A model of ${survey.FittedTrials} trials explains ${explained} % of the variance. The lines are its ${metric}, averaged over all other hyperparameters; later trials stand out more.`;
    replaceChildren(at("importance-note"), importance.legend());
  } else {
    const missing = answer.NeededTrials - answer.MeasuredTrials;
    at("survey-note").textContent = missing > 0 ? `The model needs ${missing} more measured ${missing === 1 ? "trial" : "trials"}` : "All trials have the same objective";
    importance.bars.setData({ items: [], empty: "No model yet" });
    at("importance-note").textContent = "";
  }
  // Charts that change places often would be worse than an order that is a little outdated.
  if (survey && (survey.FittedTrials >= 2 * rankedTrials || !isRunning())) {
    ranking = survey.Importances.map((each) => each.Name);
    rankedTrials = survey.FittedTrials;
  }
  slices.draw(survey, ranking);
  drawContour();
}

/** Ask what would be tried next, when something has changed. */
async function refreshNextTrial() {
  const version = `${study.state.planned} ${study.state.running} ${study.state.measured} ${study.state.status} ${study.state.stopReason ?? ""}`;
  if (version === asked.version || asked.isAsking || (isRunning() && Date.now() - asked.at < SURVEY_MS.least) || document.hidden) return;
  asked = { ...asked, isAsking: true, version };
  try {
    drawNextTrial(at("next-trial"), study, await getJson(`${address}/next`));
  } catch (error) {
    replaceChildren(at("next-trial"), element`<p class="notice notice-warn">${error.message}</p>`);
  }
  asked = { ...asked, isAsking: false, at: Date.now() };
}

function refresh() {
  refreshSurvey();
  refreshNextTrial();
}

/** Brushes as the address holds them: key, low and high, and of curves also a range of values. */
function writeBrushes() {
  const brush = [...study.brushes].map(([key, range]) => [...range.map((value) => (Number.isFinite(value) ? String(Number(value.toPrecision(6))) : "")), key].join("~"));
  remember({ brush });
}

function readBrushes() {
  for (const text of view.brush) {
    const parts = text.split("~");
    const isCurve = parts.at(-1) === "curve";
    const key = isCurve ? "curve" : parts.slice(2).join("~");
    const numbers = parts.slice(0, isCurve ? 4 : 2).map((each, place) => (each === "" ? (place % 2 ? Infinity : -Infinity) : Number(each)));
    if (key && numbers.length === (isCurve ? 4 : 2) && numbers.every((each) => !Number.isNaN(each))) study.brushes.set(key, numbers);
  }
}

let pending = 0;
/** Draw once for all changes that come together. */
function drawSoon() {
  pending ||= requestAnimationFrame(() => {
    pending = 0;
    drawCharts();
    mark();
  });
  drawTableSoon();
}

function drawAll() {
  drawSoon();
  drawState();
  drawLegends();
}

/** Draw the trial that was picked, and that under the pointer, over all others. */
function mark() {
  const numbers = study.marked.map((each) => each.number);
  for (const chart of linked) chart.mark(numbers);
  parallel.mark(numbers);
  table.mark();
}

study.subscribe((change) => {
  if (change === "pointer") return mark();
  if (change === "pin") {
    drawPinned(at("pinned"), study);
    remember({ trial: study.pinned ?? 0 });
    return;
  }
  if (change === "selection") writeBrushes();
  if (change === "data" && study.pinned) drawPinned(at("pinned"), study);
  if (change === "selection") return drawSoon();
  drawAll();
  refresh();
});

function begin() {
  readBrushes();
  study.chosenDefinition = view.algorithm;
  study.options = { log: view.log, clip: view.clip };
  study.words = parseFilter(view.filter, study);
  study.pinned = view.trial || null;
  at("filter").value = view.filter;
  at("filter").addEventListener("input", (event) => {
    remember({ filter: event.target.value });
    study.filter(parseFilter(event.target.value, study));
  });
  at("log").addEventListener("click", () => {
    remember({ log: !study.options.log });
    study.set({ log: view.log });
  });
  at("clip").addEventListener("click", () => {
    remember({ clip: !study.options.clip });
    study.set({ clip: view.clip });
  });
  const definition = at("definition");
  if (definition) {
    definition.value = view.algorithm;
    definition.addEventListener("change", () => {
      remember({ algorithm: definition.value, x: "", y: "" });
      survey = null;
      ranking = [];
      rankedTrials = 0;
      study.choose(definition.value);
    });
  }
  for (const [id, other, key] of [["contour-x", "contour-y", "x"], ["contour-y", "contour-x", "y"]]) {
    at(id).addEventListener("change", () => {
      const [chosen, rest] = [at(id).value, at(other).value];
      remember(chosen === rest ? exchanged(key, chosen) : { x: at("contour-x").value, y: at("contour-y").value });
      refreshSurvey();
      drawContour();
    });
  }
  importance.onSelect = (name) => {
    remember({ x: name, y: view.y === name ? "" : view.y });
    refreshSurvey();
    drawContour();
  };
  document.querySelector("#columns").closest("details").addEventListener("toggle", () => table.drawMenu());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && study.pinned !== null && document.querySelector("dialog[open]") === null) study.pin(study.pinned);
  });
  onThemeChange(drawAll);
  drawAll();
  setInterval(() => {
    if (isRunning()) drawRuntime();
    refresh();
  }, 1000);
  listen(`${address}/live`, {
    trials: ({ trials }) => study.putTrials(trials),
    curves: ({ curves: changed, rungs }) => study.putCurves(changed, rungs),
    state: (state) => {
      Object.assign(began, { runtime: state.runtime, at: Date.now() });
      study.putState(state);
    },
    problem: ({ message }) => showToast(message, { kind: "error" }),
  });
  refresh();
}

/** The axes of the contour after one was set to what the other had. */
function exchanged(key, chosen) {
  const before = contour.names[key === "x" ? 0 : 1];
  return key === "x" ? { x: chosen, y: before } : { x: before, y: chosen };
}

begin();
