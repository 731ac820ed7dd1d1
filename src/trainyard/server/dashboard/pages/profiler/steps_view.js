/** Where the time of the steps goes: by phase, over all steps and of each rank; the data loaders, lines and memory of the program. */

import { Breakdown } from "../../charts/breakdown.js";
import { formatSpan } from "../../charts/scales.js";
import { StackChart } from "../../charts/stack_chart.js";
import { formatBytes, formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { dataTable, meter } from "./data_table.js";
import { formatShare, PHASES, workerName } from "./words.js";

const MAX_SHOWN_WORKERS = 16;
const SLOWEST = 10;

export class StepsView {
  /** @param {{state: {worker: string, span: string}, onChoose: (changes: object) => void}} options */
  constructor({ state, onChoose }) {
    this.state = state;
    this.all = { workers: [] };
    this.recent = { workers: [] };
    this.chart = null;
    this.breakdowns = new Map();
    this.workerSelect = document.querySelector("#worker");
    this.spanSelect = document.querySelector("#stacks-span");
    this.spanSelect.value = state.span;
    this.workerSelect.addEventListener("change", () => onChoose({ worker: this.workerSelect.value }));
    this.spanSelect.addEventListener("change", () => onChoose({ span: this.spanSelect.value }));
  }

  /** All steps, in groups. */
  setAll(found) {
    this.all = found;
    this.#listWorkers();
    this.draw();
  }

  /** The newest steps, one by one. */
  setRecent(found) {
    this.recent = found;
    if (this.state.span === "recent") this.draw();
  }

  /**
   * Parts of the time that steps tell apart: what came before the first step, evaluations, and where attempts begin.
   * Times are seconds since 1970.
   */
  get periods() {
    const regions = [];
    const marks = [];
    const first = this.all.workers[0];
    const sameRank = this.all.workers.filter((each) => each.rows?.numbers.length > 0 && each.worker === first.worker && each.instance === first.instance);
    for (const { rows, attempt } of sameRank) {
      const at = (name, number) => rows[name][number] / 1e6;
      if (attempt > 1) marks.push({ x: at("started_us", 0), kind: "note", text: `first step of attempt ${attempt}` });
      else regions.push({ from: 0, to: at("started_us", 0), text: "before the first step" });
      for (let number = 0; number < rows.modes.length; number++) {
        if (rows.modes[number] === "EVAL" && rows.modes.includes("TRAIN")) regions.push({ from: at("started_us", number), to: at("ended_us", number), text: "evaluation", kind: "decision" });
      }
    }
    return { regions, marks };
  }

  draw() {
    this.#drawPhases();
    if (document.querySelector("#view-steps").hidden) return;
    this.#drawStacks();
    this.#drawProgram();
  }

  #listWorkers() {
    const { workers } = this.all;
    document.querySelector("#worker-choice").hidden = workers.length < 2;
    const options = workers.map((each) => Object.assign(document.createElement("option"), { value: keyOf(each), textContent: workerName(each, workers) }));
    this.workerSelect.replaceChildren(...options);
    this.workerSelect.value = keyOf(this.#chosen(this.all) ?? { instance: "", attempt: 0, worker: "" });
  }

  /** The rank that is shown: the one in the address, otherwise the last attempt of the first. */
  #chosen({ workers }) {
    const wanted = workers.find((each) => keyOf(each) === this.state.worker);
    const last = Math.max(...workers.map((each) => each.attempt));
    return wanted ?? workers.find((each) => each.attempt === last) ?? null;
  }

  #drawPhases() {
    const { workers } = this.all;
    const place = document.querySelector("#phases");
    const timed = workers.map((each) => ({ each, mean: meanOf(each.rows) })).filter(({ mean }) => mean.steps > 0);
    document.querySelector("#phases-note").textContent = timed.length > 1 ? "by rank" : "";
    if (timed.length === 0) {
      this.breakdowns.clear();
      const known = workers.some((each) => each.facts?.framework);
      replaceChildren(place, element`<p class="faint">${known ? "The program has not finished a step yet." : "No steps were timed. Steps of PyTorch and XGBoost are timed by themselves; of other frameworks the hardware tells where the time goes."}</p>`);
      return;
    }
    if (this.breakdowns.size !== Math.min(timed.length, MAX_SHOWN_WORKERS)) {
      this.breakdowns.clear();
      replaceChildren(place, element`<div class="workers"></div>`);
      for (const { each } of timed.slice(0, MAX_SHOWN_WORKERS)) {
        const row = element`<div><p class="worker-head"><strong></strong><span class="faint"></span></p><div></div></div>`;
        place.firstElementChild.append(row);
        this.breakdowns.set(keyOf(each), { row, chart: new Breakdown(row.lastElementChild, { format: formatSpan, label: `Phases of ${workerName(each, workers)}` }) });
      }
      if (timed.length > MAX_SHOWN_WORKERS) place.append(element`<p class="faint">and ${timed.length - MAX_SHOWN_WORKERS} more ranks</p>`);
    }
    for (const { each, mean } of timed.slice(0, MAX_SHOWN_WORKERS)) {
      const shown = this.breakdowns.get(keyOf(each));
      if (!shown) continue;
      const name = shown.row.querySelector("strong");
      name.textContent = workerName(each, workers);
      name.hidden = timed.length < 2;
      shown.row.querySelector(".faint").textContent = `${formatSpan(mean.seconds)} on average over ${mean.steps.toLocaleString("en-US")} ${mean.mode === "TRAIN" ? "training" : mean.mode.toLowerCase()} steps, with the warm-up`;
      const parts = PHASES.filter(({ key }) => mean.phases[key] > 0).map(({ key, name, colour }) => ({ name, value: mean.phases[key], colour: `var(--chart-${colour + 1})` }));
      shown.chart.setData({ parts });
    }
  }

  #drawStacks() {
    const place = document.querySelector("#stacks");
    const found = this.state.span === "recent" ? this.recent : this.all;
    const worker = this.#chosen(found);
    const bars = worker?.rows ? barsOf(worker.rows) : { x: [], widths: [], parts: [], rows: [] };
    this.bars = bars;
    const options = { ...bars, nameOf: (number) => nameOf(bars.rows[number]) };
    if (this.chart) this.chart.setData(options);
    else {
      this.chart = new StackChart(place, { ...options, xLabel: "step", label: "Time of steps by phase", height: 280, empty: "The program has not finished a step yet" });
    }
    const grouped = bars.rows.some((row) => row.count > 1);
    document.querySelector("#stacks-note").textContent = grouped ? "A bar stands for several steps, and shows their mean." : "";
    this.#drawSlowest(bars);
  }

  #drawSlowest({ rows }) {
    const usual = Object.fromEntries(PHASES.map(({ key }) => [key, median(rows.map((row) => row.phases[key]))]));
    const typical = median(rows.map((row) => row.seconds));
    const slowest = rows.filter((row) => row.slowest > typical * 1.05).sort((one, other) => other.slowest - one.slowest).slice(0, SLOWEST);
    const culprit = (row) => PHASES.map(({ key, name }) => ({ name, excess: row.phases[key] - usual[key] })).reduce((most, each) => (each.excess > most.excess ? each : most));
    replaceChildren(document.querySelector("#slowest"), dataTable({
      label: "Slowest steps",
      rows: slowest,
      empty: rows.length === 0 ? "No steps yet." : "No step took much longer than the others.",
      columns: [
        { title: "Step", value: (row) => nameOf(row) },
        { title: "Takes", isNumber: true, value: (row) => formatSpan(row.slowest) },
        { title: "Times the usual", isNumber: true, value: (row) => (typical > 0 ? `${(row.slowest / typical).toFixed(1)}×` : "–") },
        { title: "Because of", value: (row) => `${culprit(row).name}, ${formatSpan(culprit(row).excess)} more` },
        { title: "", className: "bar-cell", value: (row) => meter(row.slowest / slowest[0].slowest, 1) },
      ],
    }));
  }

  #drawProgram() {
    const worker = this.#chosen(this.all);
    const facts = worker?.facts ?? {};
    replaceChildren(document.querySelector("#loaders"), loaderTable(facts.loaders ?? []));
    const lines = facts.hot_lines ?? [];
    const samples = facts.stack_samples ?? 0;
    document.querySelector("#lines-note").textContent = samples > 0 ? `${samples.toLocaleString("en-US")} looks at the training thread` : "";
    replaceChildren(document.querySelector("#lines"), lineTable(lines, samples));
    replaceChildren(document.querySelector("#program"), programFacts(facts));
    replaceChildren(document.querySelector("#holders"), holderTable(facts.memory_holders ?? []));
  }
}

function keyOf({ instance, attempt, worker }) {
  return `${instance}/${attempt}/${worker}`;
}

/** The mean training step, or the mean of all modes if the program does not train. */
function meanOf(rows) {
  const mean = { steps: 0, seconds: 0, mode: "TRAIN", phases: {} };
  if (!rows) return mean;
  mean.mode = rows.modes.includes("TRAIN") ? "TRAIN" : (rows.modes[0] ?? "TRAIN");
  const phases = Object.fromEntries(PHASES.map(({ key }) => [key, 0]));
  for (let number = 0; number < rows.numbers.length; number++) {
    if (rows.modes[number] !== mean.mode) continue;
    mean.steps += rows.counts[number];
    for (const { key } of PHASES) phases[key] += rows.phases_ns[key][number] / 1e9;
  }
  for (const { key } of PHASES) {
    mean.phases[key] = mean.steps > 0 ? phases[key] / mean.steps : 0;
    mean.seconds += mean.phases[key];
  }
  return mean;
}

function barsOf(table) {
  const mode = meanOf(table).mode;
  const rows = [];
  for (let number = 0; number < table.numbers.length; number++) {
    if (table.modes[number] !== mode) continue;
    const count = table.counts[number];
    const phases = Object.fromEntries(PHASES.map(({ key }) => [key, table.phases_ns[key][number] / 1e9 / count]));
    const slowest = table.slowest_us ? table.slowest_us[number] / 1e6 : (table.ended_us[number] - table.started_us[number]) / 1e6 / count;
    rows.push({ number: table.numbers[number], count, phases, slowest, seconds: PHASES.reduce((sum, { key }) => sum + phases[key], 0), at: table.started_us[number] / 1e6 });
  }
  // A later attempt begins again at the number of its checkpoint; rows are in the order of time.
  const x = rows.map((row) => row.number);
  const widths = rows.map((row, number) => Math.max(1, number + 1 < rows.length && x[number + 1] > x[number] ? Math.min(row.count, x[number + 1] - x[number]) : row.count));
  const parts = PHASES.filter(({ key }) => rows.some((row) => row.phases[key] > 0)).map(({ key, name, colour }) => ({ name, colour, values: rows.map((row) => row.phases[key]) }));
  return { x, widths, parts, rows };
}

function nameOf(row) {
  const first = row.number.toLocaleString("en-US");
  return row.count > 1 ? `steps ${first} to ${(row.number + row.count - 1).toLocaleString("en-US")}` : `step ${first}`;
}

function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted.length > 0 ? sorted[sorted.length >> 1] : 0;
}

function quantile(values, share) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted.length > 0 ? formatSpan(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]) : "–";
}

function loaderTable(loaders) {
  return dataTable({
    label: "Data loaders",
    rows: loaders,
    empty: "The program uses no data loader of PyTorch.",
    columns: [
      { title: "Loader", className: "name", value: (each) => showInvisible(each.name) },
      { title: "Workers", isNumber: true, value: (each) => each.workers },
      { title: "Batch size", isNumber: true, value: (each) => each.batch_size ?? "–" },
      { title: "Prefetch", isNumber: true, value: (each) => each.prefetch ?? "–" },
      { title: "Pinned", value: (each) => (each.is_pinning ? "yes" : "no") },
      { title: "Kept between epochs", value: (each) => (each.is_persistent ? "yes" : "no") },
      { title: "Making a batch", isNumber: true, value: (each) => [quantile(each.fetch_s ?? [], 0.5), subtext(`p95 ${quantile(each.fetch_s ?? [], 0.95)}`)] },
      { title: "Waiting for one", isNumber: true, value: (each) => [quantile(each.wait_s ?? [], 0.5), subtext(`p95 ${quantile(each.wait_s ?? [], 0.95)}`)] },
    ],
  });
}

function subtext(text) {
  return element`<span class="sub">${text}</span>`;
}

function lineTable(lines, samples) {
  const named = (phase) => PHASES.find(({ key }, number) => key === String(phase).toLowerCase() || number === phase)?.name ?? String(phase);
  const rows = [...lines].sort((one, other) => other.samples - one.samples);
  return dataTable({
    label: "Hot lines of Python",
    rows,
    empty: "The training thread was not looked at yet. Looking begins after the first training step.",
    columns: [
      { title: "Line", className: "name", value: (each) => [showInvisible(`${each.file}:${each.line}`), subtext(showInvisible(`in ${each.function}`))] },
      { title: "What it calls", className: "name", value: (each) => showInvisible(each.called) },
      { title: "Phase", value: (each) => named(each.phase) },
      { title: "Of all looks", isNumber: true, sort: (each) => each.samples, value: (each) => formatShare(samples > 0 ? each.samples / samples : NaN) },
      { title: "", className: "bar-cell", value: (each) => meter(samples > 0 ? each.samples / samples : 0) },
    ],
  });
}

function programFacts(facts) {
  const synchronizations = [...(facts.synchronizations ?? [])].sort((one, other) => other.seconds_per_step - one.seconds_per_step);
  const rows = [
    ["Framework", facts.framework && `${facts.framework} ${facts.framework_version ?? ""}`],
    ["Device", facts.device],
    ["Computes in", facts.precision],
    ["Threads", facts.threads],
    ["Parameters", facts.parameters && formatNumber(facts.parameters)],
    ["Compiled", facts.framework && (facts.is_compiled ? "yes" : "no")],
    ["Samples in a step", facts.samples_per_step && formatNumber(facts.samples_per_step)],
    ["Waits for the device", synchronizations.map((each) => `${each.name}: ${formatNumber(Number(each.calls_per_step.toPrecision(3)))} a step, ${formatSpan(each.seconds_per_step)}`).join("; ")],
  ].filter(([, value]) => value);
  if (rows.length === 0) return element`<p class="faint">The program has told nothing about itself yet.</p>`;
  return element`<dl class="facts">${rows.flatMap(([name, value]) => [element`<dt>${name}</dt>`, element`<dd>${showInvisible(value)}</dd>`])}</dl>`;
}

function holderTable(holders) {
  const total = holders.reduce((sum, each) => sum + each.bytes, 0);
  return dataTable({
    label: "What holds the memory",
    rows: [...holders].sort((one, other) => other.bytes - one.bytes),
    empty: "Nothing is known about the memory yet.",
    columns: [
      { title: "Held by", value: (each) => showInvisible(each.name) },
      { title: "Size", isNumber: true, value: (each) => formatBytes(each.bytes) },
      { title: "", className: "bar-cell", value: (each) => meter(total > 0 ? each.bytes / total : 0, 2) },
    ],
  });
}
