/** The profiler of a job: which view is open, what is loaded for it, and what changes while the job runs. */

import { element, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { showInvisible } from "../../text.js";
import { HardwareView } from "./hardware_view.js";
import { StepsView } from "./steps_view.js";
import { TracesView } from "./traces_view.js";
import { showVerdict, showVerdictError } from "./verdict_view.js";

const VIEWS = ["overview", "steps", "traces", "hardware"];
const DEFAULTS = { view: "overview", worker: "", span: "all", trace: "", from: 0, to: 0, ranks: false, heat: "", node: "" };
// How often all steps and samples of a running job are loaded anew. The newest steps come by themselves.
const REFRESH_MS = 15_000;
const SETTLE_MS = 4000;
const SETTLE_LOOKS = 30;

const page = JSON.parse(document.querySelector("#data").textContent);
const address = `/-/training/${encodeURIComponent(page.job)}/profiler`;
const state = readState(DEFAULTS);
if (!VIEWS.includes(state.view)) state.view = "overview";

const steps = new StepsView({ state, onChoose: choose });
const hardware = new HardwareView({ address, state, periods: () => steps.periods, onChoose: choose });
const traces = new TracesView({ address, job: page.job, isRunning: page.running, isTraining: page.training, isEnabled: page.enabled, state, onChoose: choose });

/** Keep what was chosen in the address, and draw what depends on it. */
function choose(changes) {
  Object.assign(state, changes);
  writeState(changes, { defaults: DEFAULTS });
  if ("worker" in changes || "span" in changes) steps.draw();
  if ("heat" in changes || "node" in changes) hardware.draw();
}

function openView(view, { isNewEntry = false } = {}) {
  state.view = view;
  writeState({ view }, { defaults: DEFAULTS, isNewEntry });
  for (const tab of document.querySelectorAll("[data-view]")) {
    const isOpen = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(isOpen));
    tab.tabIndex = isOpen ? 0 : -1;
    document.querySelector(`#view-${tab.dataset.view}`).hidden = !isOpen;
  }
  steps.draw();
  traces.draw();
  if (view === "hardware") load("#heat", () => hardware.load());
}

/** Run a loader, and say in a place why it failed if it did. */
async function load(place, loader) {
  try {
    await loader();
  } catch (error) {
    replaceChildren(document.querySelector(place), element`<p class="notice notice-error" role="alert">${showInvisible(error.message)}</p>`);
  }
}

const loadSteps = () =>
  load("#phases", async () => {
    steps.setAll(await getJson(`${address}/steps`));
    if (state.view === "hardware") hardware.draw();
  });
const loadSummary = () => load("#utilization", () => hardware.loadSummary());

/** Rules of a job that has just ended settle some seconds later, so they are asked for again. */
async function loadVerdict(looks = SETTLE_LOOKS) {
  try {
    const profile = await getJson(`${address}/verdict`);
    showVerdict(profile, page);
    const isSettling = !page.running && profile.Rules.some((rule) => rule.Status === "InProgress");
    if (isSettling && looks > 0) setTimeout(() => loadVerdict(looks - 1), SETTLE_MS);
  } catch (error) {
    showVerdictError(error);
  }
}

async function loadTraces() {
  try {
    traces.setTraces(await getJson(`${address}/traces`));
  } catch (error) {
    traces.showError(error);
  }
}

function refresh() {
  if (document.hidden) return;
  loadSteps();
  loadSummary();
  if (state.view === "hardware") load("#heat", () => hardware.load());
}

function follow() {
  const timer = setInterval(refresh, REFRESH_MS);
  let isFirst = true;
  listen(`${address}/live`, {
    state: ({ training }) => traces.setState({ isTraining: training }),
    steps: (found) => {
      steps.setRecent(found);
      // The first steps of a program are worth a look at once.
      if (isFirst && found.workers.some((each) => each.rows)) {
        isFirst = false;
        loadSteps();
      }
    },
    traces: (found) => traces.setTraces(found),
    verdict: (profile) => showVerdict(profile, page),
    end: () => {
      clearInterval(timer);
      page.running = false;
      traces.setState({ isRunning: false, isTraining: false });
      refresh();
      loadVerdict();
      loadTraces();
      loadFiles();
    },
  });
}

document.querySelector('[role="tablist"].profiler-views').addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by || !event.target.dataset.view) return;
  const next = VIEWS[(VIEWS.indexOf(state.view) + by + VIEWS.length) % VIEWS.length];
  openView(next);
  document.querySelector(`[data-view="${next}"]`).focus();
});
for (const tab of document.querySelectorAll("[data-view]")) tab.addEventListener("click", () => openView(tab.dataset.view, { isNewEntry: true }));
addEventListener("popstate", () => {
  Object.assign(state, readState(DEFAULTS));
  openView(VIEWS.includes(state.view) ? state.view : "overview");
});

async function loadFiles() {
  try {
    traces.setFiles(await getJson(`${address}/files`));
  } catch {
    traces.setFiles({ files: [] });
  }
}

/** What trials have measured is shown beside the advice. Without it, the advice says that nothing was measured. */
async function loadGains() {
  try {
    page.measured = (await getJson(`${address}/gains`)).Results;
  } catch {
    page.measured = [];
  }
}

openView(state.view);
loadSteps();
loadGains().then(() => loadVerdict());
loadSummary();
loadTraces();
loadFiles();
if (state.span === "recent" || page.running) getJson(`${address}/recent`).then((found) => steps.setRecent(found), () => {});
if (page.running) follow();
