/**
 * Slices of time in lanes, as traces have them: hundreds of thousands, nested, to be searched and zoomed.
 *
 * All slices may be here, or only the part that is shown: then the owner gives `whole` and `onView`, loads what is seen
 * at the resolution of the screen, and hands it over by `setData`.
 */

import { drawNotice, fit } from "./axes.js";
import { Scale, formatSpan } from "./scales.js";
import { lowerBound } from "./smoothing.js";
import { Surface, make } from "./surface.js";
import { theme } from "./theme.js";
import { Rows } from "./timeline_rows.js";
import { Tooltip } from "./tooltip.js";
import { Gestures, Range } from "./zoom.js";

const ROW = 18;
const AXIS = 20;
const STEPS = 16;
const LANE_GAP = 6;
const NAMES = 150;
const MIN_TEXT_WIDTH = 34;
const MAX_TABLE_ROWS = 1000;
const UNITS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1 };
const KEY_ZOOM = 1.25;
const KEY_PAN = 0.12;
const SETTLE_MS = 80;
const SEARCH_MS = 200;
const NONE = { lane: new Int32Array(0), start: new Float64Array(0), duration: new Float64Array(0), name: new Int32Array(0) };

/**
 * @typedef {{id: number, lane: number, depth: number, start: number, duration: number, name: string, count?: number}} Slice
 * @typedef {{lanes?: {name: string, group?: string, rows?: number}[], slices?: import("./timeline_rows.js").Slices,
 *   names?: string[], unit?: "ns"|"us"|"ms"|"s", whole?: [number, number], steps?: {from: number, to: number, name: string}[],
 *   onSelect?: (slice: Slice|null) => void, onSelectRange?: (range: {from: number, to: number}|null) => void,
 *   onView?: (view: {from: number, to: number, resolution: number}) => void,
 *   onSearch?: (text: string) => Promise<{total: number, slices: Slice[]}>,
 *   label?: string, height?: number, empty?: string}} TimelineOptions
 */

export class Timeline {
  /** @param {HTMLElement} element @param {TimelineOptions} options */
  constructor(element, options = {}) {
    this.options = { lanes: [], names: [], unit: "us", slices: NONE };
    this.x = new Range();
    this.scroll = 0;
    this.collapsed = new Set();
    this.hovered = -1;
    /** @type {Slice|null} */
    this.selected = null;
    this.found = { text: "", total: 0, slices: [], at: -1 };
    this.matches = new Set();
    this.area = { left: 0, top: AXIS, width: 1, height: 1 };
    this.lanes = [];
    const search = make("div", "chart-search");
    this.input = Object.assign(make("input"), { type: "search", placeholder: "Find slices by name" });
    this.input.setAttribute("aria-label", "Find slices by name");
    this.count = make("span");
    this.count.setAttribute("role", "status");
    search.append(this.input, this.count);
    element.append(search);
    this.surface = new Surface(element, {
      label: options.label ?? "Timeline",
      height: options.height ?? 360,
      hint: "W and S zoom, A and D move, arrow keys go from slice to slice, slash searches, 0 shows everything, T shows a table.",
      draw: (context) => this.#draw(context),
      drawOverlay: (context) => this.#drawOverlay(context),
      onKey: (event) => this.#press(event),
      table: () => this.#table(),
    });
    this.details = make("div", "chart-details");
    this.surface.plot.after(this.details);
    this.resetButton = this.surface.addTool("Reset zoom", "Show everything (double click)", () => this.resetZoom());
    this.tooltip = new Tooltip(this.surface);
    this.gestures = new Gestures(
      this.surface,
      {
        area: () => this.area,
        onHover: (x, y) => this.#hover(x, y),
        onLeave: () => this.#hover(-1, -1),
        onClick: (x, y) => this.#click(x, y),
        onZoom: ({ left, right }) => this.#change(() => this.x.zoom(this.#share(left), this.#share(right))),
        onPan: (dx, dy) => this.#change(() => this.#pan(-dx / this.area.width, -dy)),
        onScale: (x, y, factor) => this.#change(() => this.x.scale(this.#share(x), factor)),
        onReset: () => this.resetZoom(),
      },
      "x",
    );
    this.surface.plot.addEventListener("wheel", (event) => this.#turn(event), { passive: false });
    this.input.addEventListener("input", () => {
      clearTimeout(this.searching);
      this.searching = setTimeout(() => this.search(this.input.value), options.onSearch ? SEARCH_MS : 0);
    });
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") this.#goToMatch(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.surface.plot.focus();
    });
    this.setData(options);
  }

  /** @param {TimelineOptions} changes */
  setData(changes) {
    Object.assign(this.options, changes);
    if ("slices" in changes || "lanes" in changes || !this.rows) {
      this.rows = new Rows(this.options.lanes.length, this.options.slices ?? NONE);
      this.#layOut();
    }
    this.hovered = -1;
    const { whole } = this.options;
    const { first, last } = this.rows;
    this.isEmpty = whole ? this.options.lanes.length === 0 : first > last;
    this.x.whole = whole ?? (first < last ? [first, last] : first === last ? [first, first + 1] : [0, 1]);
    this.#match();
    if ("slices" in changes && !this.options.onSearch && this.found.text) this.search(this.found.text);
    this.surface.redraw();
  }

  /** Highlight the slices whose names contain a text, and count them. */
  async search(text) {
    const wanted = text.trim();
    this.found = { text: wanted, total: 0, slices: [], at: -1 };
    this.#match();
    this.count.textContent = "";
    this.surface.redraw();
    if (!wanted) return 0;
    if (this.options.onSearch) {
      this.count.textContent = "Searching";
      let found = null;
      try {
        found = await this.options.onSearch(wanted);
      } catch (error) {
        this.count.textContent = error.message;
      }
      // Another search may have begun meanwhile.
      if (this.found.text !== wanted || found === null) return 0;
      Object.assign(this.found, found);
    } else {
      const { name, start } = this.rows.slices;
      const numbers = [];
      for (const row of this.rows.list) for (const number of row.numbers) if (this.matches.has(name[number])) numbers.push(number);
      numbers.sort((one, other) => start[one] - start[other]);
      Object.assign(this.found, { total: numbers.length, slices: numbers.map((number) => this.#slice(number)) });
    }
    const { total } = this.found;
    this.count.textContent = `${total.toLocaleString("en-US")} found${total > 0 ? ", Enter goes to the next" : ""}`;
    return total;
  }

  /** Search for a text, as if somebody had typed it, and go to the first match. */
  async find(text) {
    this.input.value = text;
    await this.#goToMatch(1);
  }

  /** Search for what is typed, if that has not happened yet, and go to a match. */
  async #goToMatch(by) {
    clearTimeout(this.searching);
    if (this.input.value.trim() !== this.found.text) await this.search(this.input.value);
    this.showMatch(by);
  }

  /** Go to the next or the previous slice that was found. */
  showMatch(by = 1) {
    const { slices, total } = this.found;
    if (slices.length === 0) return;
    const before = this.found.at < 0 && by < 0 ? 0 : this.found.at;
    this.found.at = (before + by + slices.length) % slices.length;
    const of = slices.length < total ? `the first ${slices.length.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}` : total.toLocaleString("en-US");
    this.count.textContent = `${this.found.at + 1} of ${of}`;
    this.show(slices[this.found.at]);
  }

  /** Bring a slice into view, wide enough to be seen, and select it. @param {Slice} slice */
  show(slice) {
    const [low, high] = this.x.shown;
    const whole = this.x.whole[1] - this.x.whole[0];
    const span = Math.min(high - low, Math.max(slice.duration * 20, whole * 1e-6));
    const middle = slice.start + slice.duration / 2;
    const isSeen = slice.start >= low && slice.start + slice.duration <= high && slice.duration > (high - low) / 40;
    this.#change(() => !isSeen && (this.x.zoomed = [middle - span / 2, middle + span / 2]));
    this.collapsed.delete(slice.lane);
    this.#layOut();
    const top = this.#topOf(slice);
    if (top < this.scroll || top + ROW > this.scroll + this.area.height) this.scroll = top - this.area.height / 2;
    this.select(slice);
  }

  /** @param {Slice|null} slice */
  select(slice) {
    this.selected = slice;
    this.details.textContent = slice ? this.#describe(slice) : "";
    if (slice) this.surface.announce(this.#describe(slice));
    this.options.onSelect?.(slice);
    this.surface.redrawOverlay();
  }

  /** @param {{from: number, to: number}|null} range */
  setRange(range) {
    this.#change(() => (this.x.zoomed = range && [range.from, range.to]));
  }

  get range() {
    return { x: [...this.x.shown], isZoomed: this.x.zoomed !== null };
  }

  resetZoom() {
    this.#change(() => this.x.reset());
  }

  destroy() {
    clearTimeout(this.settling);
    clearTimeout(this.searching);
    this.surface.destroy();
  }

  /** Give each lane and row its place. A collapsed lane shows its first row only. */
  #layOut() {
    let top = 0;
    this.lanes = this.options.lanes.map((lane, number) => {
      const rows = Math.max(1, lane.rows ?? this.rows.depths[number]);
      const shown = this.collapsed.has(number) ? 1 : rows;
      const placed = { ...lane, top, rows, shown };
      top += shown * ROW + LANE_GAP;
      return placed;
    });
    this.depth = top;
    for (const row of this.rows.list) {
      const lane = this.lanes[row.lane];
      row.top = lane && row.depth < lane.shown ? lane.top + row.depth * ROW : NaN;
    }
    this.visible = this.rows.list.filter((row) => row.top >= 0).sort((one, other) => one.top - other.top);
    this.tops = this.visible.map((row) => row.top);
  }

  /** Find the names that contain what is searched for. */
  #match() {
    const wanted = this.found.text.toLowerCase();
    this.matches = new Set();
    if (wanted) this.options.names.forEach((name, number) => name.toLowerCase().includes(wanted) && this.matches.add(number));
  }

  #change(change) {
    change();
    if (this.x.zoomed) this.x.zoomed = within(this.x.zoomed, this.x.whole);
    this.tooltip.hide();
    this.surface.redraw();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.#tellView(), SETTLE_MS);
  }

  /** Say what is seen, once the view has come to rest. */
  #tellView() {
    const [from, to] = this.x.shown;
    this.options.onSelectRange?.(this.x.zoomed ? { from, to } : null);
    this.viewed = `${from} ${to} ${this.area.width}`;
    this.options.onView?.({ from, to, resolution: (to - from) / this.area.width / this.surface.ratio });
  }

  #pan(share, down) {
    if (share && this.x.zoomed) this.x.pan(share);
    this.scroll = Math.max(0, Math.min(this.depth - this.area.height, this.scroll + down));
  }

  #share(px) {
    return (px - this.area.left) / this.area.width;
  }

  get #head() {
    return this.options.steps?.length ? AXIS + STEPS : AXIS;
  }

  #topOf({ lane, depth }) {
    return this.lanes[lane] ? this.lanes[lane].top + depth * ROW : 0;
  }

  #draw(context) {
    const { surface } = this;
    this.resetButton.hidden = !this.x.zoomed;
    if (this.isEmpty) return drawNotice(context, surface.width, surface.height, this.options.empty ?? "No slices yet");
    const left = Math.min(NAMES, Math.round(surface.width / 4));
    const top = this.#head;
    this.area = { left, top, width: Math.max(1, surface.width - left), height: Math.max(1, surface.height - top) };
    this.#pan(0, 0);
    if (this.options.onView && this.viewed?.endsWith(` ${this.area.width}`) !== true) {
      this.viewed = ` ${this.area.width}`;
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.#tellView());
    }
    this.#drawTime(context);
    this.#drawSteps(context);
    context.save();
    context.beginPath();
    context.rect(0, top, surface.width, this.area.height);
    context.clip();
    this.#drawLanes(context);
    const [from, to] = [lowerBound(this.tops, this.scroll - ROW), lowerBound(this.tops, this.scroll + this.area.height)];
    for (let number = from; number < to; number++) this.#drawRow(context, this.visible[number]);
    context.restore();
  }

  #drawTime(context) {
    const { area } = this;
    const { faint, line } = theme();
    const unit = UNITS[this.options.unit];
    // Times count from the beginning of the trace.
    const [low, high] = this.x.shown.map((each) => (each - this.x.whole[0]) * unit);
    context.fillStyle = faint;
    context.strokeStyle = line;
    context.textAlign = "left";
    context.beginPath();
    for (const tick of new Scale("duration", low, high).ticks(Math.max(2, Math.floor(area.width / 110)))) {
      const x = Math.round(area.left + tick.fraction * area.width) + 0.5;
      context.moveTo(x, 4);
      context.lineTo(x, area.top + area.height);
      if (x + 4 + context.measureText(tick.text).width <= area.left + area.width) context.fillText(tick.text, x + 4, 9);
    }
    context.stroke();
  }

  /** Steps are bands of their own above the lanes, with lines through all lanes where they end. */
  #drawSteps(context) {
    const { steps = [] } = this.options;
    const { area } = this;
    const { text, accent, isDark } = theme();
    const [low, high] = this.x.shown;
    const scale = area.width / (high - low);
    let drawnTo = -Infinity;
    for (const [number, step] of steps.entries()) {
      const left = Math.max(area.left, area.left + (step.from - low) * scale);
      const right = Math.min(area.left + area.width, area.left + (step.to - low) * scale);
      if (right < area.left || left > area.left + area.width || right < drawnTo + 1) continue;
      drawnTo = right;
      context.fillStyle = accent;
      context.globalAlpha = (isDark ? 0.3 : 0.18) - (number % 2) * 0.08;
      context.fillRect(left, AXIS, Math.max(1, right - left - 1), STEPS - 3);
      if (right - left > 6) {
        context.globalAlpha = 0.35;
        context.fillRect(Math.round(right) - 0.5, AXIS, 1, area.height + STEPS);
      }
      context.globalAlpha = 1;
      context.fillStyle = text;
      context.textAlign = "left";
      if (right - left >= MIN_TEXT_WIDTH) context.fillText(fit(context, step.name, right - left - 8), left + 4, AXIS + STEPS / 2 - 1.5);
    }
  }

  #drawLanes(context) {
    const { area } = this;
    const { faint, line, text } = theme();
    context.strokeStyle = line;
    context.textAlign = "left";
    for (const [number, lane] of this.lanes.entries()) {
      const top = area.top + lane.top - this.scroll;
      if (top > area.top + area.height || top + lane.shown * ROW < area.top) continue;
      const isFirst = lane.group && lane.group !== this.lanes[number - 1]?.group;
      context.beginPath();
      context.moveTo(isFirst ? 0 : 8, Math.round(top - LANE_GAP / 2) + 0.5);
      context.lineTo(area.left + area.width, Math.round(top - LANE_GAP / 2) + 0.5);
      context.stroke();
      const sign = lane.rows > 1 ? (lane.shown < lane.rows ? "▸ " : "▾ ") : "";
      context.fillStyle = text;
      context.fillText(fit(context, sign + lane.name, area.left - 10), 2, top + ROW / 2);
      context.fillStyle = faint;
      if (isFirst && lane.shown > 1) context.fillText(fit(context, lane.group, area.left - 10), 2, top + ROW * 1.4);
    }
  }

  /** Slices narrower than a pixel are drawn once for each pixel, so the cost follows the width and not their number. */
  #drawRow(context, row) {
    const { area, matches } = this;
    const { slices } = this.rows;
    const [low, high] = this.x.shown;
    const scale = area.width / (high - low);
    const pixel = 1 / scale / this.surface.ratio;
    const top = area.top + row.top - this.scroll;
    const isSearching = this.found.text !== "";
    const texts = [];
    let colour = -1;
    context.globalAlpha = 1;
    for (let place = lowerBound(row.ends, low); place < row.starts.length && row.starts[place] < high; ) {
      const number = row.numbers[place];
      const left = Math.max(area.left, area.left + (row.starts[place] - low) * scale);
      const right = Math.min(area.left + area.width, area.left + (row.ends[place] - low) * scale);
      const name = slices.name[number];
      const own = (slices.colour ? slices.colour[number] : name) * 2 + (isSearching && !matches.has(name) ? 1 : 0);
      if (own !== colour) {
        context.fillStyle = theme().series(own >> 1);
        context.globalAlpha = own & 1 ? 0.15 : 0.85;
        colour = own;
      }
      const width = right - left;
      context.fillRect(left, top, Math.max(width > 3 ? width - 0.5 : width, 0.7), ROW - 2);
      if (width >= MIN_TEXT_WIDTH && !(own & 1)) texts.push(left, width, name);
      place++;
      if (width < 1 && row.starts[place] < row.starts[place - 1] + pixel) place = lowerBound(row.ends, row.starts[place - 1] + pixel, place);
    }
    context.globalAlpha = 1;
    context.fillStyle = theme().isDark ? "#0b0d10" : "#ffffff";
    context.textAlign = "left";
    for (let number = 0; number < texts.length; number += 3) {
      context.fillText(this.#shorten(context, texts[number + 2], texts[number + 1] - 8), texts[number] + 4, top + ROW / 2 - 0.5);
    }
  }

  /** A name in so many pixels. Widths are rounded, so that most names are measured once. */
  #shorten(context, name, width) {
    const room = Math.min(400, Math.floor(width / 8) * 8);
    this.shortened ??= new Map();
    if (this.shortenedOf !== this.options.names) {
      this.shortened.clear();
      this.shortenedOf = this.options.names;
    }
    const key = name * 64 + room / 8;
    if (!this.shortened.has(key)) this.shortened.set(key, fit(context, this.options.names[name] ?? "", room));
    return this.shortened.get(key);
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    const { area } = this;
    context.save();
    context.beginPath();
    context.rect(area.left - 2, area.top, area.width + 2, area.height);
    context.clip();
    const hovered = this.hovered >= 0 ? this.#slice(this.hovered) : null;
    for (const [slice, width] of [[hovered, 1], [this.selected, 2.5]]) {
      const box = slice && this.#boxOf(slice);
      if (!box) continue;
      context.strokeStyle = theme().text;
      context.lineWidth = width;
      context.strokeRect(box.left, box.top, Math.max(2, box.right - box.left), ROW - 2);
    }
    context.restore();
  }

  /** Where a slice is drawn; null if it is out of sight. */
  #boxOf(slice) {
    const lane = this.lanes[slice.lane];
    if (!lane || slice.depth >= lane.shown) return null;
    const [low, high] = this.x.shown;
    const scale = this.area.width / (high - low);
    const place = (value) => Math.max(this.area.left, Math.min(this.area.left + this.area.width, this.area.left + (value - low) * scale));
    const [left, right] = [place(slice.start), place(slice.start + slice.duration)];
    const top = this.area.top + this.#topOf(slice) - this.scroll;
    const isInside = right > left || (left > this.area.left && left < this.area.left + this.area.width);
    return isInside ? { left, right, top } : null;
  }

  #sliceAt(px, py) {
    if (px < this.area.left || py < this.area.top) return -1;
    const depth = py - this.area.top + this.scroll;
    const row = this.visible.find((each) => depth >= each.top && depth < each.top + ROW);
    const [low, high] = this.x.shown;
    const pixel = (high - low) / this.area.width;
    return row ? this.rows.sliceAt(row, low + (px - this.area.left) * pixel, pixel) : -1;
  }

  #click(px, py) {
    if (this.isEmpty) return;
    if (px >= this.area.left) {
      const number = this.#sliceAt(px, py);
      return this.#choose(number >= 0 ? this.#slice(number) : null);
    }
    const depth = py - this.area.top + this.scroll;
    const lane = this.lanes.findIndex((each) => depth >= each.top && depth < each.top + each.shown * ROW);
    if (lane < 0 || this.lanes[lane].rows < 2) return;
    if (!this.collapsed.delete(lane)) this.collapsed.add(lane);
    this.#layOut();
    this.surface.redraw();
  }

  /** Select a slice, or go into one that stands for several. */
  #choose(slice) {
    if (slice?.count > 1) {
      const middle = slice.start + slice.duration / 2;
      const span = Math.max(slice.duration * 2, 4 / UNITS[this.options.unit] / 1e9);
      this.#change(() => (this.x.zoomed = [middle - span / 2, middle + span / 2]));
    } else this.select(slice);
  }

  #hover(px, py) {
    // W and S zoom where the pointer is, as it is the place that the reader looks at.
    this.pointer = px >= this.area.left ? this.#share(px) : null;
    const number = this.isEmpty ? -1 : this.#sliceAt(px, py);
    if (number >= 0) this.#tip(px, py, this.#slice(number));
    else this.tooltip.hide();
    if (number === this.hovered) return;
    this.hovered = number;
    this.surface.redrawOverlay();
  }

  #tip(px, py, slice) {
    const unit = UNITS[this.options.unit];
    const begins = { name: "begins at", value: formatSpan((slice.start - this.x.whole[0]) * unit) };
    if (slice.count > 1) {
      const named = `${slice.count.toLocaleString("en-US")} slices`;
      return this.tooltip.show(px, py, named, [{ name: "the first", value: slice.name }, { name: "within", value: formatSpan(slice.duration * unit) }, begins]);
    }
    this.tooltip.show(px, py, slice.name, [{ name: "takes", value: formatSpan(slice.duration * unit) }, begins]);
  }

  #slice(number) {
    const { slices, list, rowOf } = this.rows;
    return {
      id: slices.id ? slices.id[number] : number, lane: slices.lane[number], depth: list[rowOf[number]].depth, start: slices.start[number],
      duration: slices.duration[number], name: this.options.names[slices.name[number]] ?? "", count: slices.count ? slices.count[number] : 1,
    };
  }

  #describe(slice) {
    const unit = UNITS[this.options.unit];
    const what = slice.count > 1 ? `${slice.count} slices, the first ${slice.name}` : slice.name;
    return `${what}, on ${this.lanes[slice.lane]?.name ?? ""}: takes ${formatSpan(slice.duration * unit)}, begins at ${formatSpan((slice.start - this.x.whole[0]) * unit)}`;
  }

  #turn(event) {
    if (event.ctrlKey || event.metaKey) return;
    const before = this.scroll;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.#change(() => this.#pan(event.deltaX / this.area.width, 0));
    else {
      this.#pan(0, event.deltaY);
      this.surface.redraw();
    }
    // At its ends the page scrolls on.
    if (this.scroll !== before || event.deltaX !== 0) event.preventDefault();
  }

  #press({ key }) {
    const middle = this.pointer ?? 0.5;
    const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (key === "w" || key === "+" || key === "=") this.#change(() => this.x.scale(middle, 1 / KEY_ZOOM));
    else if (key === "s" || key === "-") this.#change(() => this.x.scale(middle, KEY_ZOOM));
    else if (key === "a" || key === "d") this.#change(() => this.#pan(key === "a" ? -KEY_PAN : KEY_PAN, 0));
    else if (key === "0") this.resetZoom();
    else if (key === "Escape" && this.selected) this.select(null);
    else if (key === "Enter" && this.selected) this.#choose(this.selected);
    else if (key === "/" || key === "f") this.input.focus();
    else if (key in moves && this.visible.length > 0) this.#step(...moves[key]);
    else return false;
    return true;
  }

  /** Select the neighbour of the selected slice in its row, or the slice below or above it. */
  #step(across, down) {
    const { selected } = this;
    const at = selected ? this.visible.findIndex((row) => row.lane === selected.lane && row.depth === selected.depth) : -1;
    if (at < 0) return this.#goTo(this.visible[0], lowerBound(this.visible[0].ends, this.x.shown[0]));
    const row = this.visible[Math.max(0, Math.min(this.visible.length - 1, at + down))];
    const place = down === 0 ? lowerBound(row.starts, selected.start) + across : Math.max(lowerBound(row.ends, selected.start), 0);
    this.#goTo(row, place);
  }

  #goTo(row, place) {
    const slice = this.#slice(row.numbers[Math.max(0, Math.min(row.numbers.length - 1, place))]);
    const [low, high] = this.x.shown;
    const isSeen = slice.start >= low && slice.start <= high;
    if (!isSeen) this.#change(() => (this.x.zoomed = [slice.start - (high - low) / 2, slice.start + (high - low) / 2]));
    if (row.top < this.scroll || row.top + ROW > this.scroll + this.area.height) this.scroll = row.top - this.area.height / 2;
    this.select(slice);
    this.surface.redraw();
  }

  #table() {
    const [low, high] = this.x.shown;
    const unit = UNITS[this.options.unit];
    const numbers = [];
    for (const row of this.visible) {
      for (let place = lowerBound(row.ends, low); place < row.starts.length && row.starts[place] < high; place++) numbers.push(row.numbers[place]);
    }
    const { start } = this.rows.slices;
    numbers.sort((one, other) => start[one] - start[other]);
    const line = (number) => {
      const slice = this.#slice(number);
      const name = slice.count > 1 ? `${slice.count} slices, the first ${slice.name}` : slice.name;
      return [name, this.lanes[slice.lane].name, formatSpan((slice.start - this.x.whole[0]) * unit), formatSpan(slice.duration * unit)];
    };
    // The table says how many there are, and shows only the first.
    return { columns: ["Name", "Lane", "Begins at", "Takes"], rows: numbers.map((number, place) => (place < MAX_TABLE_ROWS ? line(number) : [])) };
  }
}

function within([low, high], whole) {
  const span = Math.min(high - low, whole[1] - whole[0]);
  const start = Math.max(whole[0], Math.min(low, whole[1] - span));
  return span >= whole[1] - whole[0] ? null : [start, start + span];
}
