/** The traces of a job: their list, a request for one of the next steps, and what one says in figures. */

import { Breakdown } from "../../charts/breakdown.js";
import { LineChart } from "../../charts/line_chart.js";
import { formatSpan } from "../../charts/scales.js";
import { StackChart } from "../../charts/stack_chart.js";
import { formatBytes, formatNumber } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { getJson, postJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { decodeDoubles } from "./arrays.js";
import { dataTable, meter } from "./data_table.js";
import { TraceTimeline } from "./trace_timeline.js";
import { deviceName, formatShare, ROLES } from "./words.js";

// Ranks record the same steps at about the same time; later ones may have the same numbers after a restart.
const SAME_WINDOW_MS = 300_000;
const MAX_RANKS = 16;
const ROLE_COLOUR = new Map(ROLES.map(({ name, colour }) => [name, colour]));

export class TracesView {
  /**
   * @param {{address: string, job: string, isRunning: boolean, isTraining: boolean, isEnabled: boolean,
   *   state: {trace: string, from: number, to: number, ranks: boolean}, onChoose: (changes: object) => void}} options
   */
  constructor({ address, job, isRunning, isTraining, isEnabled, state, onChoose }) {
    Object.assign(this, { address, job, isRunning, isTraining, isEnabled, state, onChoose });
    this.traces = null;
    this.charts = [];
    this.form = document.querySelector("#profile-form");
    this.notice = document.querySelector("#profile-state");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#request();
    });
    this.#showForm();
  }

  setState({ isRunning = this.isRunning, isTraining = this.isTraining }) {
    Object.assign(this, { isRunning, isTraining });
    this.#showForm();
    if (!isRunning && this.waitingFor) this.#say("The job ended. What was recorded until then is in the list as soon as it is stored.");
    if (this.traces) this.#drawList();
  }

  /** @param {{Traces: any[], TotalCount: number}} found */
  setTraces(found) {
    const before = new Set(this.traces?.Traces.map((each) => each.TraceId));
    const isFirst = this.traces === null;
    this.traces = found;
    document.querySelector("#trace-count").textContent = found.TotalCount > 0 ? String(found.TotalCount) : "";
    const added = found.Traces.filter((each) => !before.has(each.TraceId));
    if (!isFirst && this.waitingFor && added.some((each) => !each.IsOfProgram)) {
      this.#say(`The trace of ${this.waitingFor} has arrived.`, "good");
      this.waitingFor = null;
      return this.#choose(added.find((each) => !each.IsOfProgram).TraceId);
    }
    this.#drawList();
    this.draw();
  }

  showError(error) {
    replaceChildren(document.querySelector("#traces"), element`<p class="notice notice-error">The traces could not be listed. ${showInvisible(error.message)}</p>`);
  }

  /** @param {{files: {name: string, kind: string, size: number, at: string}[]}} found what was recorded besides traces */
  setFiles({ files }) {
    document.querySelector("#files-card").hidden = files.length === 0;
    replaceChildren(document.querySelector("#files"), dataTable({
      label: "Other profiles", rows: files, limit: 8, of: "files",
      columns: [
        { title: "File", className: "name", value: (each) => showInvisible(each.name) },
        { title: "What it has", value: (each) => each.kind },
        { title: "Size", isNumber: true, value: (each) => formatBytes(each.size) },
        { title: "Stored", value: (each) => element`<time datetime=${each.at}></time>` },
        { title: "", isNumber: true, value: (each) => element`<a href=${`${this.address}/file?${new URLSearchParams({ file: each.name })}`}>Download</a>` },
      ],
    }));
  }

  /** Draw the chosen trace, if this view is open and shows another one. */
  draw() {
    const chosen = this.#chosen();
    if (document.querySelector("#view-traces").hidden || !chosen || this.shown === chosen.TraceId) return;
    this.#load(chosen);
  }

  #chosen() {
    const traces = this.traces?.Traces ?? [];
    return traces.find((each) => each.TraceId === this.state.trace) ?? traces[0] ?? null;
  }

  #choose(traceId) {
    this.state.from = this.state.to = 0;
    this.onChoose({ trace: traceId, from: 0, to: 0 });
    this.#drawList();
    this.draw();
  }

  #showForm() {
    this.form.hidden = !this.isRunning || !this.isEnabled;
    const button = this.form.querySelector("button");
    button.disabled = !this.isTraining || Boolean(this.waitingFor);
    button.title = this.isTraining ? "" : "Steps can be recorded once the program runs";
  }

  async #request() {
    const steps = Number(document.querySelector("#profile-steps").value);
    const what = `${steps} ${steps === 1 ? "step" : "steps"}`;
    this.waitingFor = what;
    this.#showForm();
    this.#say(`Asking the program for a trace of ${what} …`);
    try {
      await postJson(`${this.address}/profile`, { steps });
      this.#say(`The program records ${what}. The trace appears here when it is stored, which takes some seconds after the last step.`);
    } catch (error) {
      this.waitingFor = null;
      this.#say(error.message, "error");
    }
    this.#showForm();
  }

  #say(text, kind = "") {
    this.notice.className = `notice${kind ? ` notice-${kind}` : ""}`;
    this.notice.textContent = showInvisible(text);
    this.notice.hidden = false;
    this.#showForm();
  }

  #drawList() {
    const { Traces: traces, TotalCount: total } = this.traces;
    const chosen = this.#chosen();
    if (traces.length === 0) return replaceChildren(document.querySelector("#traces"), this.#nothing());
    const open = (each) => html`<button class="link mono" type="button" aria-current=${each.TraceId === chosen.TraceId && "true"} onclick=${() => this.#choose(each.TraceId)}>${showInvisible(each.Location.split("/").at(-1))}</button>`;
    replaceChildren(document.querySelector("#traces"), dataTable({
      label: "Traces",
      rows: traces,
      limit: 8,
      total,
      of: "traces",
      onRow: (each, line) => line.setAttribute("aria-selected", String(each.TraceId === chosen.TraceId)),
      columns: [
        { title: "Trace", className: "name", value: (each) => element`<span>${open(each)}</span>` },
        { title: "Rank", value: (each) => (each.Worker ? each.Worker.replace("worker_", "rank ") : "–") },
        { title: "Node", value: (each) => each.Instance ?? "–" },
        { title: "From step", isNumber: true, value: (each) => (each.Step === undefined ? "–" : each.Step.toLocaleString("en-US")) },
        { title: "Recorded by", value: (each) => (each.IsOfProgram ? "the program" : "the profiler") },
        { title: "Size", isNumber: true, value: (each) => formatBytes(each.SizeInBytes) },
        { title: "Stored", value: (each) => element`<time datetime=${each.ModifiedAt}></time>` },
        { title: "", isNumber: true, value: (each) => element`<a href=${`${this.address}/trace-file?trace=${each.TraceId}`} title="For Perfetto and chrome://tracing">Download</a>` },
      ],
    }));
  }

  #nothing() {
    if (this.isRunning && this.isEnabled) {
      return element`<div class="empty"><p class="empty-title">No trace yet</p>
        <p>A trace shows every operator, kernel and copy of a few steps. Record the next steps with the button above, or from a shell:</p>
        ${copyable(`trainyard profile ${this.job} --steps 5`)}</div>`;
    }
    return element`<div class="empty"><p class="empty-title">This job recorded no trace</p>
      <p>A trace shows every operator, kernel and copy of a few steps. Ask for one while a job runs, or when it is created:</p>
      ${copyable("FrameworkProfile(detailed_profiling_config=DetailedProfilingConfig(start_step=20, num_steps=5))")}
      <p>Traces that a script takes with <code>torch.profiler</code> itself are shown here, too.</p></div>`;
  }

  async #load(chosen) {
    const place = document.querySelector("#trace");
    this.shown = chosen.TraceId;
    this.#clear();
    replaceChildren(place, element`<section class="card"><div class="loading" role="status">Reading the trace, ${formatBytes(chosen.SizeInBytes)}</div></section>`);
    try {
      const query = new URLSearchParams({ trace: chosen.TraceId });
      const trace = await getJson(`${this.address}/trace?${query}`);
      if (this.shown === chosen.TraceId) this.#show(place, chosen, trace);
    } catch (error) {
      if (this.shown !== chosen.TraceId) return;
      this.shown = null;
      replaceChildren(place, element`<section class="card"><div class="empty"><p class="empty-title">The trace could not be read</p><p>${showInvisible(error.message)}</p>
        <button class="button" type="button" onclick=${() => this.draw()}>Try again</button></div></section>`);
    }
  }

  #clear() {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    this.timeline = null;
  }

  #show(place, chosen, trace) {
    const hasDevice = trace.Kernels.length > 0;
    const nameOf = (name) => this.#nameButton(name);
    const cards = [this.#timelineCard(chosen, trace), this.#rolesCard(trace), operatorsCard(trace, hasDevice, nameOf), hasDevice && kernelsCard(trace, nameOf), trace.PythonFunctions.length > 0 && pythonCard(trace, nameOf), ...trace.Memory.map((each) => this.#memoryCard(each)), trace.Collectives.length > 0 && collectivesCard(trace)];
    replaceChildren(place, cards.filter(Boolean));
    for (const start of this.starts ?? []) start();
    this.starts = [];
  }

  /** A name that goes to its first slice in the timeline. Long ones are shortened to two lines. */
  #nameButton(name) {
    const find = () => {
      this.timeline?.chartPlace.scrollIntoView({ block: "center" });
      this.timeline?.chart.find(name);
    };
    const shown = showInvisible(name);
    return element`<button class="link mono clamp" type="button" title=${`${shown}\n\nClick to find it in the timeline`} onclick=${find}>${shown.replace(/^void /, "")}</button>`;
  }

  #timelineCard(chosen, trace) {
    const card = cardOf("Timeline", `${trace.SliceCount.toLocaleString("en-US")} slices, ${formatSpan(trace.Duration / 1e9)}${trace.WorldSize > 1 ? `, rank ${trace.Rank} of ${trace.WorldSize}` : ""}`);
    if (trace.Notes.length > 0) card.append(element`<ul class="profiler-notes">${trace.Notes.map((each) => html`<li>${showInvisible(each)}</li>`)}</ul>`);
    if (trace.SliceCount === 0) {
      card.append(element`<p class="faint">The file has no events that can be drawn.</p>`);
      return card;
    }
    const others = this.#ofOtherRanks(chosen);
    const box = element`<div></div>`;
    if (others.length > 0) {
      const ranks = element`<label class="trace-ranks"><input type="checkbox"> All ${others.length + 1} ranks</label>`;
      ranks.firstElementChild.checked = this.state.ranks;
      ranks.addEventListener("change", () => {
        this.onChoose({ trace: chosen.TraceId, ranks: ranks.firstElementChild.checked, from: 0, to: 0 });
        this.#startTimeline(box, chosen, trace, others);
      });
      card.append(ranks);
    }
    card.append(box);
    (this.starts ??= []).push(() => this.#startTimeline(box, chosen, trace, others));
    return card;
  }

  /** The traces that other ranks recorded of the same steps. */
  #ofOtherRanks(chosen) {
    if (chosen.IsOfProgram || chosen.Step === undefined) return [];
    const found = new Map();
    for (const each of this.traces.Traces) {
      const isSame = each.Instance === chosen.Instance && each.Worker === chosen.Worker;
      const isTogether = Math.abs(new Date(each.ModifiedAt) - new Date(chosen.ModifiedAt)) < SAME_WINDOW_MS;
      const rank = `${each.Instance} ${each.Worker}`;
      if (!each.IsOfProgram && each.Step === chosen.Step && !isSame && isTogether && !found.has(rank)) found.set(rank, each);
    }
    return [...found.values()].sort((one, other) => one.Worker.localeCompare(other.Worker, "en", { numeric: true })).slice(0, MAX_RANKS - 1);
  }

  async #startTimeline(box, chosen, trace, others) {
    const range = this.state.to > this.state.from && this.state.trace === chosen.TraceId ? [this.state.from, this.state.to] : null;
    const beside = this.state.ranks ? others : [];
    const rankOf = (each) => (beside.length > 0 ? each.Worker.replace("worker_", "rank ") : "");
    if (beside.length > 0) box.replaceChildren(element`<div class="loading" role="status">Reading the traces of ${beside.length} more ranks</div>`);
    const sources = [{ traceId: chosen.TraceId, trace, name: rankOf(chosen) }];
    try {
      const read = await Promise.all(beside.map((each) => getJson(`${this.address}/trace?${new URLSearchParams({ trace: each.TraceId })}`)));
      sources.push(...read.map((each, number) => ({ traceId: beside[number].TraceId, trace: each, name: rankOf(beside[number]) })));
    } catch (error) {
      box.replaceChildren(element`<p class="notice notice-error">The traces of the other ranks could not be read. ${showInvisible(error.message)}</p>`);
      return;
    }
    if (this.shown !== chosen.TraceId) return;
    this.charts = this.charts.filter((each) => each !== this.timeline);
    this.timeline?.destroy();
    this.timeline = new TraceTimeline(box, {
      address: this.address, sources, range,
      onRange: (shown) => this.onChoose({ trace: chosen.TraceId, from: shown ? Math.round(shown.from) : 0, to: shown ? Math.round(shown.to) : 0 }),
    });
    this.charts.push(this.timeline);
  }

  #rolesCard(trace) {
    if (trace.Roles.length === 0) return null;
    const steps = trace.Steps;
    const card = cardOf("Step time by role", steps.length > 0 ? `${steps.length} steps` : "the trace marks no steps");
    const bar = element`<div></div>`;
    card.append(bar);
    const parts = trace.Roles.map((each) => ({ name: each.Name, value: each.MeanSeconds, colour: `var(--chart-${(ROLE_COLOUR.get(each.Name) ?? 9) + 1})` }));
    (this.starts ??= []).push(() => this.charts.push(new Breakdown(bar, { parts, format: formatSpan, label: "Step time by role" })));
    if (steps.length > 1) {
      const box = element`<div></div>`;
      card.append(box);
      const names = ROLES.filter(({ name }) => steps.some((step) => step.RoleSeconds[name] > 0));
      (this.starts ??= []).push(() => this.charts.push(new StackChart(box, {
        label: "Steps of the trace by role", height: 180, xLabel: "step", x: steps.map((step) => step.Number), widths: steps.map(() => 1),
        parts: names.map(({ name, colour }) => ({ name, colour, values: steps.map((step) => step.RoleSeconds[name] ?? 0) })),
        onSelect: (number) => this.timeline?.showStep(steps[number]),
      })));
    }
    if (trace.Gpus.length > 0) card.append(gpuTable(trace.Gpus));
    else if (trace.Kernels.length === 0) card.append(element`<p class="faint profiler-hint">The program used no GPU in these steps, so there are no kernels and no copies.</p>`);
    return card;
  }

  #memoryCard(memory) {
    const device = deviceName(memory.Device.toLowerCase().startsWith("gpu") ? memory.Device.toLowerCase() : memory.Device);
    const card = cardOf(`Memory of ${device}`, `at most ${formatBytes(memory.PeakBytes)}, ${formatSpan(memory.PeakAt / 1e9)} after the start`);
    const box = element`<div></div>`;
    card.append(box);
    (this.starts ??= []).push(() => {
      const x = decodeDoubles(memory.Times).map((at) => at / 1e9);
      const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]].find(([size]) => memory.PeakBytes >= size) ?? [1, "bytes"];
      const series = [["allocated", memory.Allocated], ["reserved", memory.Reserved]].map(([label, text]) => ({ name: label, x, y: decodeDoubles(text).map((size) => size / unit) })).filter(({ y }) => y.length > 0);
      this.charts.push(new LineChart(box, { label: `Memory of ${device}`, height: 190, xKind: "duration", xLabel: "since the start of the trace", yLabel: name, yRange: [0, null], series }));
    });
    const peak = memory.PeakBytes || 1;
    card.append(element`<div class="grid grid-2"><div><h3>Held at the peak</h3>${dataTable({
      label: `What was held in ${device} at the peak`, rows: memory.HeldAtPeak, limit: 8,
      columns: [
        { title: "Allocated by", className: "name", value: (each) => showInvisible(each.Name) || "outside of operators" },
        { title: "Size", isNumber: true, value: (each) => formatBytes(each.SizeInBytes) },
        { title: "", className: "bar-cell", value: (each) => meter(each.SizeInBytes / peak, 2) },
      ],
    })}</div><div><h3>Allocated by operators</h3>${dataTable({
      label: `What operators allocated in ${device}`, rows: memory.Operators, limit: 8,
      columns: [
        { title: "Operator", className: "name", value: (each) => showInvisible(each.Name) },
        { title: "Allocations", isNumber: true, sort: (each) => each.Allocations, value: (each) => each.Allocations.toLocaleString("en-US") },
        { title: "Itself", isNumber: true, sort: (each) => each.SelfAllocatedBytes, value: (each) => formatBytes(each.SelfAllocatedBytes) },
        { title: "Kept", isNumber: true, sort: (each) => each.SelfIncreaseBytes, value: (each) => signedBytes(each.SelfIncreaseBytes) },
      ],
    })}</div></div>`);
    return card;
  }
}

function signedBytes(size) {
  return size < 0 ? `−${formatBytes(-size)}` : formatBytes(size);
}

function cardOf(title, note = "") {
  return element`<section class="card" aria-label=${title}><div class="card-head"><h2>${title}</h2><span class="faint">${note}</span></div></section>`;
}

function copyable(text) {
  return html`<span class="copyable"><code>${text}</code><button class="button button-quiet" type="button" data-copies=${text}>Copy</button></span>`;
}

function operatorsCard(trace, hasDevice, nameOf) {
  if (trace.Operators.length === 0) return null;
  const card = cardOf("Operators", hasDevice ? "by their own time on the device" : "by their own time");
  card.append(operatorTable(trace.Operators, trace.OperatorCount, hasDevice, "Operators", nameOf));
  if (trace.OperatorShapes.length > 0) {
    card.append(element`<details class="fold"><summary>By the shapes of their inputs</summary>${operatorTable(trace.OperatorShapes, trace.OperatorShapeCount, hasDevice, "Operators by shape", nameOf)}</details>`);
  }
  return card;
}

function operatorTable(operators, total, hasDevice, label, nameOf) {
  const own = (each) => (hasDevice ? each.DeviceSelfSeconds : each.HostSelfSeconds);
  const all = operators.reduce((sum, each) => sum + own(each), 0) || 1;
  const seconds = (title, name) => ({ title, isNumber: true, sort: (each) => each[name], value: (each) => formatSpan(each[name]) });
  return dataTable({
    label, rows: operators, total, of: "operators",
    columns: [
      { title: "Operator", className: "name", value: (each) => [nameOf(each.Name), each.Shape && element`<span class="sub">${showInvisible(each.Shape)}</span>`].filter(Boolean) },
      { title: "Calls", isNumber: true, sort: (each) => each.Calls, value: (each) => each.Calls.toLocaleString("en-US") },
      ...(hasDevice ? [seconds("Device, itself", "DeviceSelfSeconds"), seconds("Device, all", "DeviceTotalSeconds")] : []),
      seconds(hasDevice ? "Host, itself" : "Itself", "HostSelfSeconds"),
      seconds(hasDevice ? "Host, all" : "With what it calls", "HostTotalSeconds"),
      ...(hasDevice ? [{ title: "Tensor cores", isNumber: true, value: (each) => formatShare(each.TensorCoreShare) }] : []),
      { title: "Share", isNumber: true, value: (each) => formatShare(own(each) / all) },
      { title: "", className: "bar-cell", value: (each) => meter(own(each) / all, 2) },
    ],
  });
}

function kernelsCard(trace, nameOf) {
  const all = trace.Kernels.reduce((sum, each) => sum + each.TotalSeconds, 0) || 1;
  const onTensorCores = trace.Kernels.filter((each) => each.UsesTensorCores).reduce((sum, each) => sum + each.TotalSeconds, 0) / all;
  const card = cardOf("Kernels", `${formatShare(onTensorCores)} of their time on tensor cores`);
  const seconds = (title, name) => ({ title, isNumber: true, sort: (each) => each[name], value: (each) => formatSpan(each[name]) });
  card.append(dataTable({
    label: "Kernels", rows: trace.Kernels, total: trace.KernelCount, of: "kernels",
    columns: [
      { title: "Kernel", className: "name", value: (each) => nameOf(each.Name) },
      { title: "Calls", isNumber: true, sort: (each) => each.Calls, value: (each) => each.Calls.toLocaleString("en-US") },
      seconds("Total", "TotalSeconds"), seconds("Mean", "MeanSeconds"), seconds("Max", "MaxSeconds"),
      { title: "Blocks per SM", isNumber: true, value: (each) => (each.BlocksPerMultiprocessor ? formatNumber(Number(each.BlocksPerMultiprocessor.toPrecision(3))) : "–") },
      { title: "Occupancy", isNumber: true, value: (each) => (each.OccupancyPercent ? formatShare(each.OccupancyPercent / 100) : "–") },
      { title: "Tensor cores", value: (each) => (each.UsesTensorCores ? "yes" : "no") },
      { title: "Share", isNumber: true, value: (each) => formatShare(each.TotalSeconds / all) },
      { title: "", className: "bar-cell", value: (each) => meter(each.TotalSeconds / all) },
    ],
  }));
  return card;
}

function pythonCard(trace, nameOf) {
  const all = trace.PythonFunctions.reduce((sum, each) => sum + each.SelfSeconds, 0) || 1;
  const card = cardOf("Python functions", "by their own time, in a trace with stacks");
  card.append(dataTable({
    label: "Python functions", rows: trace.PythonFunctions, total: trace.PythonFunctionCount, of: "functions",
    columns: [
      { title: "Function", className: "name", value: (each) => nameOf(each.Name) },
      { title: "Calls", isNumber: true, sort: (each) => each.Calls, value: (each) => each.Calls.toLocaleString("en-US") },
      { title: "Itself", isNumber: true, sort: (each) => each.SelfSeconds, value: (each) => formatSpan(each.SelfSeconds) },
      { title: "With what it calls", isNumber: true, sort: (each) => each.TotalSeconds, value: (each) => formatSpan(each.TotalSeconds) },
      { title: "Share", isNumber: true, value: (each) => formatShare(each.SelfSeconds / all) },
      { title: "", className: "bar-cell", value: (each) => meter(each.SelfSeconds / all, 3) },
    ],
  }));
  return card;
}

function gpuTable(gpus) {
  return dataTable({
    label: "Use of GPUs", rows: gpus,
    columns: [
      { title: "GPU", value: (each) => `${each.Device}, ${showInvisible(each.Name)}` },
      { title: "Busy", isNumber: true, value: (each) => formatShare(each.Utilization) },
      { title: "", className: "bar-cell", value: (each) => meter(each.Utilization) },
      { title: "SM efficiency", isNumber: true, value: (each) => formatShare(each.MultiprocessorEfficiency) },
      { title: "Occupancy", isNumber: true, value: (each) => formatShare(each.Occupancy) },
      { title: "Tensor cores", isNumber: true, value: (each) => formatShare(each.TensorCoreShare) },
    ],
  });
}

function collectivesCard(trace) {
  const card = cardOf("Collectives", `${formatShare(trace.ExposedCommunication)} of the time of steps is communication that no computing hides`);
  const all = trace.Collectives.reduce((sum, each) => sum + each.TotalSeconds, 0) || 1;
  card.append(dataTable({
    label: "Collectives", rows: trace.Collectives,
    columns: [
      { title: "Collective", className: "name", value: (each) => showInvisible(each.Name) },
      { title: "Calls", isNumber: true, value: (each) => each.Calls.toLocaleString("en-US") },
      { title: "Size", isNumber: true, value: (each) => (each.TotalBytes ? formatBytes(each.TotalBytes) : "–") },
      { title: "Total", isNumber: true, value: (each) => formatSpan(each.TotalSeconds) },
      { title: "Mean", isNumber: true, value: (each) => formatSpan(each.MeanSeconds) },
      { title: "Max", isNumber: true, value: (each) => formatSpan(each.MaxSeconds) },
      { title: "Throughput", isNumber: true, value: (each) => (each.BytesPerSecond ? `${formatBytes(each.BytesPerSecond)}/s` : "–") },
      { title: "", className: "bar-cell", value: (each) => meter(each.TotalSeconds / all, 5) },
    ],
  }));
  return card;
}
