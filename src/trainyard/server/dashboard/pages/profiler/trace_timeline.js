/** The timeline of a trace: what is seen of it is loaded at the resolution of the screen, and a slice is told about when it is selected. */

import { formatSpan } from "../../charts/scales.js";
import { swatch } from "../../charts/surface.js";
import { Timeline } from "../../charts/timeline.js";
import { element, html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { decodeDoubles, decodeIntegers } from "./arrays.js";
import { formatShare, ROLES } from "./words.js";

// Half as much as is seen is loaded on either side, so that most pans need nothing new.
const MARGIN = 0.5;
// What was loaded is fine enough until it is this many times as coarse as the screen.
const MAX_COARSENESS = 2;
const MAX_FOUND = 1000;
const NO_SLICES = { lane: new Int32Array(0), depth: new Int32Array(0), start: new Float64Array(0), duration: new Float64Array(0), name: new Int32Array(0) };

/**
 * One trace of a timeline: its file, its figures, and the name of its rank if there are several.
 * @typedef {{traceId: string, trace: any, name: string}} Source
 */

export class TraceTimeline {
  /**
   * @param {HTMLElement} place
   * @param {{address: string, sources: Source[], range: [number, number]|null, onRange: (range: {from: number, to: number}|null) => void}} options
   *   the first of the sources has the steps that are drawn; traces of other ranks are put beside it on one clock
   */
  constructor(place, { address, sources, range, onRange }) {
    this.address = address;
    this.sources = onOneClock(sources);
    this.duration = Math.max(1, ...this.sources.map(({ offset, trace }) => offset + trace.Duration));
    this.loaded = null;
    this.chartPlace = element`<div class="trace-timeline"></div>`;
    this.problem = element`<p class="notice notice-error" role="alert" hidden></p>`;
    this.slicePlace = element`<div role="region" aria-label="Selected slice"></div>`;
    this.legend = element`<ul class="trace-legend" aria-label="Colours"></ul>`;
    place.replaceChildren(this.problem, this.chartPlace, this.legend, element`<p class="faint trace-keys">W and S zoom where the pointer is, A and D move, dragging zooms, shift and dragging moves, a double click shows everything. A click on a thread folds it.</p>`, this.slicePlace);
    const lanes = this.sources.flatMap(({ trace, name }) => trace.Lanes.map((lane) => ({ name: lane.Name, group: name ? `${name}, ${lane.Group}` : lane.Group, rows: lane.Rows })));
    const [first] = this.sources;
    this.chart = new Timeline(this.chartPlace, {
      lanes,
      steps: first.trace.Steps.map((step) => ({ from: first.offset + step.Start, to: first.offset + step.End, name: `step ${step.Number}` })),
      slices: NO_SLICES,
      names: [],
      unit: "ns",
      whole: [0, this.duration],
      label: "Timeline of the trace",
      height: Math.max(220, Math.min(620, lanes.reduce((sum, lane) => sum + lane.rows * 18 + 6, 60))),
      empty: "The trace has no events of a program",
      onView: (view) => this.#load(view),
      onSearch: (text) => this.#search(text),
      onSelect: (slice) => this.#showSlice(slice),
      onSelectRange: onRange,
    });
    if (range) this.chart.setRange({ from: range[0], to: range[1] });
  }

  /** Show a step of the first trace. */
  showStep(step) {
    const { offset } = this.sources[0];
    this.chart.setRange({ from: offset + step.Start, to: offset + step.End });
  }

  destroy() {
    this.loading?.abort();
    this.chart.destroy();
  }

  async #load({ from, to, resolution }) {
    const { loaded } = this;
    const isEnough = loaded && from >= loaded.from && to <= loaded.to && loaded.resolution <= resolution * MAX_COARSENESS && loaded.resolution >= resolution / 64;
    if (isEnough) return;
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    const margin = (to - from) * MARGIN;
    const asked = { from: Math.max(0, Math.floor(from - margin)), to: Math.min(this.duration + 1, Math.ceil(to + margin)) };
    const finest = Math.max(1, Math.floor(resolution));
    try {
      const parts = await Promise.all(this.sources.map((source) => this.#loadPart(source, asked, finest, loading.signal)));
      this.problem.hidden = true;
      this.#show(parts);
      this.loaded = { ...asked, resolution: Math.max(...parts.map((part) => part.resolution)) };
    } catch (error) {
      if (error.name === "AbortError") return;
      this.problem.textContent = `This part could not be loaded. ${showInvisible(error.message)}`;
      this.problem.hidden = false;
    }
  }

  async #loadPart({ traceId, trace, offset }, { from, to }, resolution, signal) {
    if (to <= offset || from >= offset + trace.Duration) return { resolution, texts: [], count: 0 };
    const query = new URLSearchParams({ trace: traceId, from: Math.max(0, from - offset), to: to - offset, resolution });
    const { texts, resolution: used, ...arrays } = await getJson(`${this.address}/slices?${query}`, { signal });
    const decoded = Object.fromEntries(Object.entries(arrays).map(([name, text]) => [name, name === "starts" || name === "durations" ? decodeDoubles(text) : decodeIntegers(text)]));
    return { resolution: used, texts, ...decoded, count: decoded.starts.length };
  }

  /** Put the parts of all traces into one. */
  #show(parts) {
    const total = parts.reduce((sum, part) => sum + part.count, 0);
    const whole = () => new Int32Array(total);
    const slices = { lane: whole(), depth: whole(), name: whole(), count: whole(), colour: whole(), start: new Float64Array(total), duration: new Float64Array(total), id: new Float64Array(total) };
    const names = [];
    const used = new Set(this.roles);
    let place = 0;
    for (const [number, part] of parts.entries()) {
      const source = this.sources[number];
      for (let slice = 0; slice < part.count; slice++, place++) {
        slices.lane[place] = part.lanes[slice] + source.firstLane;
        slices.depth[place] = part.depths[slice];
        slices.start[place] = part.starts[slice] + source.offset;
        slices.duration[place] = part.durations[slice];
        slices.name[place] = part.names[slice] + names.length;
        slices.count[place] = part.counts[slice];
        slices.colour[place] = ROLES[part.roles[slice]].colour;
        slices.id[place] = part.numbers[slice] < 0 ? -1 : idOf(number, part.numbers[slice]);
        used.add(part.roles[slice]);
      }
      names.push(...part.texts);
    }
    this.chart.setData({ names, slices });
    if (used.size !== this.roles?.size) this.#writeLegend((this.roles = used));
  }

  #writeLegend(roles) {
    const entries = [...roles].sort((one, other) => one - other).map((role) => {
      const entry = element`<li><span></span></li>`;
      entry.prepend(swatch(`var(--chart-${ROLES[role].colour + 1})`));
      entry.lastElementChild.textContent = ROLES[role].name;
      return entry;
    });
    replaceChildren(this.legend, entries);
  }

  async #search(text) {
    const answers = await Promise.all(this.sources.map(({ traceId }) => getJson(`${this.address}/search?${new URLSearchParams({ trace: traceId, text, most: MAX_FOUND })}`)));
    const slices = answers.flatMap((found, number) => found.Slices.map((slice) => this.#asSlice(number, slice)));
    slices.sort((one, other) => one.start - other.start);
    return { total: answers.reduce((sum, found) => sum + found.TotalCount, 0), slices };
  }

  async #showSlice(slice) {
    const asked = (this.asked = slice);
    if (!slice || slice.id < 0) return this.slicePlace.replaceChildren();
    const [number, sliceNumber] = placeOf(slice.id);
    const query = new URLSearchParams({ trace: this.sources[number].traceId, slice: sliceNumber });
    try {
      const details = await getJson(`${this.address}/slice?${query}`);
      if (this.asked === asked) replaceChildren(this.slicePlace, this.#details(number, details));
    } catch (error) {
      if (this.asked === asked) replaceChildren(this.slicePlace, element`<p class="notice notice-error">${showInvisible(error.message)}</p>`);
    }
  }

  #details(number, found) {
    const { Slice: slice } = found;
    const { trace, name: rank } = this.sources[number];
    const lane = trace.Lanes[slice.Lane];
    const step = trace.Steps.find((each) => each.Start <= slice.Start && slice.Start < each.End);
    const same = found.SameNameCount;
    const rows = [
      ["Takes", formatSpan(slice.Duration / 1e9)],
      ["Of its own", `${formatSpan(found.SelfDuration / 1e9)}${slice.Duration > 0 ? ` (${formatShare(found.SelfDuration / slice.Duration)})` : ""}`],
      ["Begins at", formatSpan(slice.Start / 1e9)],
      ["Step", step && String(step.Number)],
      ["On", lane && [rank, lane.Name, lane.Group].filter(Boolean).join(", ")],
      ["Kind", `${found.Kind.replace("_", " ")}${found.Category ? ` (${found.Category})` : ""}`],
      ["With this name", `${same.toLocaleString("en-US")}, ${formatSpan(found.SameNameDuration / 1e9)} together, ${formatSpan(found.SameNameDuration / same / 1e9)} on average`],
      ...found.Facts.map((each) => [each.Name, each.Value]),
    ].filter(([, value]) => value);
    const path = found.Parents.map((each) => html`<button type="button" onclick=${() => this.#goTo(number, each)}>${showInvisible(each.Name)}</button><span class="faint" aria-hidden="true">›</span>`);
    const links = found.Related.map((each) => html`<li>${each.Relation} <button type="button" class="mono" onclick=${() => this.#goTo(number, each.Slice)}>${showInvisible(each.Slice.Name)}</button>, ${formatSpan(each.Slice.Duration / 1e9)}</li>`);
    return element`<div class="slice">
      ${path.length > 0 && html`<div class="slice-path mono" aria-label="Lies in">${path}</div>`}
      <h3 class="slice-title">${showInvisible(slice.Name)}</h3>
      <dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${showInvisible(value)}</dd>`)}</dl>
      ${links.length > 0 && html`<ul class="slice-links">${links}</ul>`}
    </div>`;
  }

  #goTo(number, slice) {
    this.chart.show(this.#asSlice(number, slice));
  }

  #asSlice(number, slice) {
    const { firstLane, offset } = this.sources[number];
    return { id: idOf(number, slice.Number), lane: slice.Lane + firstLane, depth: slice.Depth, start: slice.Start + offset, duration: slice.Duration, name: slice.Name, count: 1 };
  }
}

/** Slices of several traces are told apart by the trace in front of their number. */
const idOf = (source, number) => source * 2 ** 32 + number;
const placeOf = (id) => [Math.floor(id / 2 ** 32), id % 2 ** 32];

/** Give each trace the time at which it begins after the earliest, in nanoseconds, and its first lane. */
function onOneClock(sources) {
  const starts = sources.map(({ trace }) => trace.StartMicros ?? null);
  const earliest = starts.includes(null) ? null : Math.min(...starts);
  let firstLane = 0;
  return sources.map((source, number) => {
    const placed = { ...source, firstLane, offset: earliest === null ? 0 : (starts[number] - earliest) * 1000 };
    firstLane += source.trace.Lanes.length;
    return placed;
  });
}
