/** The debugger of a training job: what rules found, all tensors over the steps, one tensor in detail, replay. */

import { showInvisible } from "../../text.js";
import { formatNumber } from "../../format.js";
import { html, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { asTensor, isSigned } from "./catalog.js";
import { MapView } from "./map_view.js";
import { RecordsView } from "./records_view.js";
import { RuleRun } from "./rule_run.js";
import { RulesView, findingsOf } from "./rules_view.js";
import { TensorTree } from "./tensor_tree.js";
import { TensorView } from "./tensor_view.js";

// A running job is read again no sooner than this after the last time, and seldom if reading takes long.
const PAUSE_MS = 2000;
const PAUSES_PER_READ = 20;

const DEFAULTS = { kind: "", statistic: "", log: true, worker: "", mode: "GLOBAL", from: -1, to: -1, tensor: "", step: -1, show: "", filter: "", collection: "" };
const data = JSON.parse(document.getElementById("data").textContent);
const address = location.pathname.replace(/\/$/, "");
const place = (id) => document.getElementById(id);

const page = {
  state: readState(DEFAULTS),
  rules: data.rules,
  thresholds: data.thresholds,
  findings: findingsOf(data.rules),
  tensors: [],
  catalog: null,
  isRunning: data.running,
};

const rules = new RulesView((finding) => showMoment(finding));
const tree = new TensorTree((name) => selectTensor(name, { isNewEntry: true }));
const map = new MapView(address, { onSelect: (tensor, step) => selectTensor(tensor, { step, isNewEntry: true, scrolls: true }), onRange: showRange });
const tensorView = new TensorView(address, {
  onSelect: (name) => selectTensor(name, { isNewEntry: true }),
  onStep: (step) => selectStep(step),
  onStatistic: (show) => change({ show }),
});
const records = new RecordsView(address, data.job, (step) => selectStep(step));

const ruleRun = new RuleRun(address, data.job);

function change(changes, isNewEntry = false) {
  Object.assign(page.state, changes);
  writeState(changes, { defaults: DEFAULTS, isNewEntry });
}

/** Run something that reads from the yard; what fails is said where it would have been shown. */
async function within(id, work) {
  try {
    return await work();
  } catch (error) {
    replaceChildren(place(id), html`<div class="notice notice-error" role="alert">${showInvisible(error.message)} <button class="button button-small" type="button" onclick=${() => location.reload()}>Try again</button></div>`);
    return null;
  }
}

// Rules

function showRules() {
  rules.show(page.rules);
  const names = new Set(page.findings.map((each) => each.tensor).filter(Boolean));
  tree.show(page.tensors, { filter: page.state.filter, collection: page.state.collection, alarmed: names });
}

/** Show the tensor of a finding at its step; without a tensor, all layers. */
function showMoment({ tensor, step }) {
  if (page.tensors.some((each) => each.name === tensor)) return selectTensor(tensor, { step, isNewEntry: true, scrolls: true });
  if (step !== null) selectStep(step);
  place("map-title").scrollIntoView({ block: "start" });
}

// All tensors

async function loadTensors() {
  const found = await getJson(`${address}/tensors`);
  page.catalog = found;
  page.tensors = found.tensors.map(asTensor);
  const more = found.total > page.tensors.length ? `, of which ${formatNumber(page.tensors.length)} are listed` : "";
  const steps = found.steps > 0 ? `, ${countOf(found.steps, "step")}` : "";
  replaceChildren(place("tensors-note"), found.total > 0 ? `${countOf(found.total, "tensor")}${more}${steps}` : "");
  showNotes(found.notes);
  fillChoices();
  showRules();
}

function showNotes(notes) {
  place("notes").hidden = notes.length === 0 || page.tensors.length === 0;
  replaceChildren(place("notes"), notes.map((each) => html`<li class="notice notice-warn">${showInvisible(each)}</li>`));
}

function fillChoices() {
  const { catalog, state } = page;
  const groups = MapView.groupsOf(page.tensors);
  place("map-tools").hidden = groups.length === 0;
  const fired = page.findings.map((each) => page.tensors.find((tensor) => tensor.name === each.tensor)?.kind).filter(Boolean);
  const group = groups.find((each) => each.id === state.kind) ?? groups.find((each) => each.kind === fired[0]) ?? groups[0];
  fill("map-kind", groups.map((each) => [each.id, each.title]), group?.id);
  page.group = group;
  const statistics = MapView.statisticsOf(group, page.tensors);
  page.statistic = statistics.some(([word]) => word === state.statistic) ? state.statistic : (statistics[0]?.[0] ?? "l2");
  fill("map-statistic", statistics, page.statistic);
  fill("collection", [["", "All collections"], ...Object.entries(catalog.collections).map(([name, count]) => [name, `${name} (${count})`])], state.collection);
  fill("mode", [["GLOBAL", "all modes"], ...catalog.modes.map((each) => [each, each])], state.mode);
  fill("worker", catalog.workers.map((each) => [each, each]), state.worker);
  place("mode-choice").hidden = catalog.modes.length < 2;
  place("worker-choice").hidden = catalog.workers.length < 2;
  place("map-log").checked = state.log;
  place("map-log").disabled = isSigned(page.statistic);
}

function fill(id, choices, chosen) {
  replaceChildren(place(id), choices.map(([value, text]) => html`<option value=${value} selected=${value === chosen}>${showInvisible(text)}</option>`));
}

function showMap() {
  const { state } = page;
  if (page.tensors.length === 0) {
    const text = page.isRunning ? "No tensors have arrived yet. They appear here during the first steps." : "This job captured no tensors.";
    return replaceChildren(place("map"), html`<div class="empty"><p>${text}</p></div>`);
  }
  if (page.group === undefined) return replaceChildren(place("map"), place("no-layers").content.cloneNode(true));
  const range = state.from >= 0 && state.to >= state.from ? { from: state.from, to: state.to } : null;
  return within("map", async () => {
    const found = await map.show({
      group: page.group, statistic: page.statistic, isLog: state.log, worker: state.worker, mode: state.mode, range,
      count: page.tensors.filter((each) => !page.group?.kind || each.kind === page.group.kind).length,
      findings: page.findings, selected: { tensor: state.tensor, step: state.step },
    });
    if (found) replaceChildren(place("map-note"), noteOnMap(found, range));
  });
}

function noteOnMap({ tensors, total, firsts, lasts }, range) {
  const rows = tensors.length < total ? `${formatNumber(tensors.length)} of ${formatNumber(total)} tensors` : countOf(total, "tensor");
  const isGrouped = firsts.some((first, number) => first !== lasts[number]);
  const columns = isGrouped ? `${formatNumber(firsts.length)} groups of steps` : countOf(firsts.length, "step");
  const part = range && html`<button class="button button-small" type="button" onclick=${() => showRange(null)}>Steps ${formatNumber(range.from)} to ${formatNumber(range.to)} ✕<span class="chart-hidden">Show all steps</span></button>`;
  return [`${rows}, ${columns} `, part];
}

function countOf(count, noun) {
  return `${formatNumber(count)} ${count === 1 ? noun : `${noun}s`}`;
}

function showRange(range) {
  change({ from: range?.from ?? -1, to: range?.to ?? -1 }, true);
  return showMap();
}

// One tensor

function selectTensor(name, { step, isNewEntry = false, scrolls = false } = {}) {
  change({ tensor: name, ...(step === undefined || step === null ? {} : { step }) }, isNewEntry);
  tree.choose(name);
  if (scrolls) place("explorer").scrollIntoView({ block: "start" });
  map.select({ tensor: name, step: page.state.step });
  return showTensor();
}

function selectStep(step) {
  change({ step });
  map.select({ tensor: page.state.tensor, step });
  return within("elements", () => tensorView.showStep(step));
}

function showTensor() {
  const { state } = page;
  const tensor = page.tensors.find((each) => each.name === state.tensor);
  if (!tensor) return undefined;
  const siblings = tensor.module ? page.tensors.filter((each) => each.module === tensor.module && each !== tensor) : [];
  return within("tensor", () =>
    tensorView.show(tensor, {
      step: state.step < 0 ? null : state.step, statistic: state.show, worker: state.worker, mode: state.mode, siblings,
      findings: page.findings, thresholds: page.thresholds, lastStep: page.catalog.lastStep ?? 0,
    }),
  );
}

/** Begin with what a rule found, else with the loss. */
function selectFirst() {
  if (page.tensors.length === 0) {
    replaceChildren(place("tensor"), html`<p class="empty">${page.isRunning ? "Nothing yet" : "Nothing was captured"}</p>`);
    return undefined;
  }
  if (page.tensors.some((each) => each.name === page.state.tensor)) {
    tree.choose(page.state.tensor);
    return showTensor();
  }
  const fired = page.findings.find((each) => page.tensors.some((tensor) => tensor.name === each.tensor));
  const name = fired?.tensor ?? (page.tensors.find((each) => each.kind === "loss") ?? page.tensors[0]).name;
  Object.assign(page.state, { tensor: name, step: page.state.step >= 0 ? page.state.step : (fired?.step ?? -1) });
  tree.choose(name);
  map.select({ tensor: name, step: page.state.step });
  return showTensor();
}

// Live

let due = false;
let isReading = false;
async function readAgain() {
  due = true;
  if (isReading || document.hidden) return;
  isReading = true;
  while (due && !document.hidden) {
    due = false;
    const start = performance.now();
    const had = page.tensors.length;
    if (had === 0 || page.expected !== page.catalog.total) {
      await within("tree", loadTensors);
      if (had === 0) await selectFirst();
    }
    await Promise.all([showMap(), within("tensor-curve", () => tensorView.refresh({ findings: page.findings, thresholds: page.thresholds, lastStep: page.lastStep ?? 0 }))]);
    const took = performance.now() - start;
    await new Promise((done) => setTimeout(done, Math.max(PAUSE_MS, PAUSES_PER_READ * took)));
  }
  isReading = false;
}

function follow() {
  listen(`${address}/live`, {
    rules: (told) => {
      Object.assign(page, { rules: told.rules, thresholds: told.thresholds, findings: findingsOf(told.rules) });
      showRules();
      if (page.tensors.length > 0) {
        map.draw({ findings: page.findings });
        tree.choose(page.state.tensor);
        tensorView.showFindings(page.findings, page.thresholds);
      }
      within("records", () => records.show({ hasRules: page.rules.length > 0, isRunning: page.isRunning }));
    },
    steps: ({ last, tensors }) => {
      Object.assign(page, { lastStep: last, expected: tensors });
      readAgain();
    },
    end: () => {
      page.isRunning = false;
      within("records", () => records.show({ hasRules: page.rules.length > 0, isRunning: false }));
    },
  });
  document.addEventListener("visibilitychange", () => due && readAgain());
}

// Controls

function onChoice(id, changes) {
  place(id).addEventListener("change", (event) => {
    change(changes(event.target));
    fillChoices();
    showMap();
    if (id === "mode" || id === "worker") showTensor();
  });
}

onChoice("map-kind", ({ value }) => ({ kind: value, statistic: "" }));
onChoice("map-statistic", ({ value }) => ({ statistic: value }));
onChoice("map-log", ({ checked }) => ({ log: checked }));
onChoice("mode", ({ value }) => ({ mode: value }));
onChoice("worker", ({ value }) => ({ worker: value }));
place("filter").value = page.state.filter;
place("filter").addEventListener("input", (event) => {
  change({ filter: event.target.value });
  showRules();
  tree.choose(page.state.tensor);
});
place("collection").addEventListener("change", (event) => {
  change({ collection: event.target.value });
  showRules();
  tree.choose(page.state.tensor);
});
place("rule-run").addEventListener("toggle", () => within("rule-run-form", () => ruleRun.open()));
addEventListener("popstate", () => location.reload());

showRules();
within("records", () => records.show({ hasRules: page.rules.length > 0, isRunning: page.isRunning }));
if (await within("tree", async () => (await loadTensors(), true))) {
  showMap();
  await selectFirst();
}
if (page.isRunning) follow();
