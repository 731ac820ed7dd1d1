/** Parts of a whole over a common x, stacked: where the time of each step went. */

import { drawNotice, drawXAxis, drawYAxis, layOut } from "./axes.js";
import { Scale, formatValue } from "./scales.js";
import { lowerBound } from "./smoothing.js";
import { Surface, make, swatch } from "./surface.js";
import { theme } from "./theme.js";
import { SharedCursor, Tooltip } from "./tooltip.js";
import { Gestures, Range } from "./zoom.js";

// A few bars above this many times what is usual are cut off, so that the others can be compared.
const USUAL_SHARE = 0.95;
const MAX_OF_USUAL = 2.5;

/**
 * @typedef {{x?: ArrayLike<number>, widths?: ArrayLike<number>, parts?: {name: string, values: ArrayLike<number>, colour?: number}[],
 *   xLabel?: string, yKind?: import("./scales.js").ScaleKind, nameOf?: (number: number) => string, syncKey?: string,
 *   onSelect?: (number: number) => void, onSelectRange?: (range: {from: number, to: number}|null) => void,
 *   label?: string, height?: number, empty?: string}} StackOptions bars are in order of x; `colour` is the number of a series
 */

/** A scale with ticks at whole numbers only: there is no half of a step. */
class WholeScale extends Scale {
  constructor(low, high) {
    super("number", low, high);
  }

  ticks(count) {
    return super.ticks(Math.max(1, Math.min(count, Math.floor(this.span))));
  }
}

export class StackChart {
  /** @param {HTMLElement} element @param {StackOptions} options */
  constructor(element, options = {}) {
    this.options = { x: [], widths: [], parts: [], yKind: "duration" };
    this.x = new Range();
    this.near = -1;
    this.area = { left: 0, top: 0, width: 1, height: 1 };
    this.surface = new Surface(element, {
      label: options.label ?? "Stacked bars",
      height: options.height ?? 240,
      hint: "Arrow left and right read bars, plus and minus zoom, 0 shows everything, T shows a table.",
      draw: (context) => this.#draw(context),
      drawOverlay: (context) => this.#drawOverlay(context),
      onKey: (event) => this.#press(event),
      table: () => this.#table(),
      onTheme: () => this.#writeLegend(),
    });
    this.resetButton = this.surface.addTool("Reset zoom", "Show everything (double click)", () => this.resetZoom());
    this.resetButton.hidden = true;
    this.tooltip = new Tooltip(this.surface);
    this.legend = make("ul", "breakdown-list");
    this.surface.plot.after(this.legend);
    this.shared = new SharedCursor(options.syncKey, (x) => this.#follow(x));
    this.gestures = new Gestures(
      this.surface,
      {
        area: () => this.area,
        onHover: (x) => this.#point(this.#barAt(x), true),
        onLeave: () => this.#point(-1, true),
        onClick: (x) => this.#barAt(x) >= 0 && this.options.onSelect?.(this.#barAt(x)),
        onZoom: ({ left, right }) => this.#change(() => this.x.zoom(this.#share(left), this.#share(right))),
        onPan: (dx) => this.#change(() => this.x.zoomed && this.x.pan(-dx / this.area.width)),
        onScale: (x, y, factor) => this.#change(() => this.x.scale(this.#share(x), factor)),
        onReset: () => this.resetZoom(),
      },
      "x",
    );
    this.setData(options);
  }

  /** @param {StackOptions} changes */
  setData(changes) {
    Object.assign(this.options, changes);
    const { x, widths, parts } = this.options;
    const count = x.length;
    this.totals = new Float64Array(count);
    for (const { values } of parts) for (let number = 0; number < count; number++) this.totals[number] += values[number] || 0;
    this.ends = Float64Array.from(x, (start, number) => start + widths[number]);
    this.x.whole = count > 0 ? [x[0], this.ends[count - 1]] : [0, 1];
    if (this.near >= count) this.near = -1;
    this.#writeLegend();
    this.surface.redraw();
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
    this.shared.leave();
    this.surface.destroy();
  }

  #change(change) {
    change();
    const { zoomed, whole } = this.x;
    if (zoomed) {
      const span = Math.min(zoomed[1] - zoomed[0], whole[1] - whole[0]);
      const start = Math.max(whole[0], Math.min(zoomed[0], whole[1] - span));
      this.x.zoomed = span >= whole[1] - whole[0] ? null : [start, start + span];
    }
    this.tooltip.hide();
    this.surface.redraw();
    this.options.onSelectRange?.(this.x.zoomed ? { from: this.x.zoomed[0], to: this.x.zoomed[1] } : null);
  }

  /** The bars in view. @returns {[number, number]} */
  #visible() {
    const [low, high] = this.x.shown;
    let end = lowerBound(this.ends, low);
    const first = end;
    while (end < this.ends.length && this.options.x[end] < high) end++;
    return [first, end];
  }

  #top() {
    const [first, end] = this.#visible();
    const sorted = this.totals.slice(first, end).sort();
    const highest = sorted.at(-1) ?? 0;
    const usual = sorted[Math.floor((sorted.length - 1) * USUAL_SHARE)] ?? 0;
    const isCut = sorted.length >= 20 && usual > 0 && highest > usual * MAX_OF_USUAL;
    return { top: (isCut ? usual * 1.5 : highest * 1.05) || 1, isCut, highest };
  }

  #draw(context) {
    const { options, surface } = this;
    this.resetButton.hidden = !this.x.zoomed;
    this.isEmpty = options.x.length === 0;
    if (this.isEmpty) return drawNotice(context, surface.width, surface.height, options.empty ?? "Nothing to show yet");
    const { top, isCut, highest } = this.#top();
    const xScale = new WholeScale(...this.x.shown);
    const yScale = new Scale(options.yKind, 0, top);
    this.area = layOut(context, surface.width, surface.height, yScale, { xLabel: options.xLabel, top: isCut ? 20 : 8 });
    drawYAxis(context, this.area, yScale);
    this.#drawBars(context, top);
    drawXAxis(context, this.area, xScale, { label: options.xLabel, hasGrid: false });
    if (!isCut) return;
    context.fillStyle = theme().faint;
    context.textAlign = "right";
    context.fillText(`▲ up to ${formatValue(highest, options.yKind)}`, this.area.left + this.area.width, 8);
  }

  #drawBars(context, top) {
    const { area } = this;
    const [low, high] = this.x.shown;
    const scale = area.width / (high - low);
    const [first, end] = this.#visible();
    context.save();
    context.beginPath();
    context.rect(area.left, area.top, area.width, area.height);
    context.clip();
    const bases = new Float64Array(end - first);
    for (const [number, part] of this.options.parts.entries()) {
      context.fillStyle = theme().series(part.colour ?? number);
      for (let bar = first; bar < end; bar++) {
        const value = part.values[bar];
        if (!(value > 0)) continue;
        const left = area.left + (this.options.x[bar] - low) * scale;
        const width = (this.ends[bar] - this.options.x[bar]) * scale;
        const height = (value / top) * area.height;
        const bottom = area.top + area.height - (bases[bar - first] / top) * area.height;
        context.fillRect(left, bottom - height, Math.max(0.5, width > 4 ? width - 1 : width), height);
        bases[bar - first] += value;
      }
    }
    context.restore();
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (this.near < 0 || this.isEmpty) return;
    const [low, high] = this.x.shown;
    const scale = this.area.width / (high - low);
    const left = Math.max(this.area.left, this.area.left + (this.options.x[this.near] - low) * scale);
    const right = Math.min(this.area.left + this.area.width, this.area.left + (this.ends[this.near] - low) * scale);
    if (right < this.area.left || left > this.area.left + this.area.width) return;
    context.strokeStyle = theme().text;
    context.strokeRect(left - 0.5, this.area.top, Math.max(2, right - left) + 1, this.area.height);
  }

  #share(px) {
    return (px - this.area.left) / this.area.width;
  }

  #barAt(px) {
    const { left, width } = this.area;
    if (this.isEmpty || px < left || px > left + width) return -1;
    const [low, high] = this.x.shown;
    const value = low + ((px - left) / width) * (high - low);
    const bar = lowerBound(this.ends, value);
    return bar < this.ends.length ? bar : -1;
  }

  #nameOf(bar) {
    return this.options.nameOf?.(bar) ?? `${this.options.xLabel ?? ""} ${formatValue(this.options.x[bar])}`.trim();
  }

  #rows(bar) {
    const { parts, yKind } = this.options;
    const rows = parts.map((part, number) => ({ name: part.name, colour: theme().series(part.colour ?? number), of: part.values[bar] || 0 })).filter((row) => row.of > 0);
    const total = this.totals[bar] || 1;
    return [
      { name: "all", value: formatValue(this.totals[bar], yKind), isNear: true },
      ...rows.reverse().map(({ of, ...row }) => ({ ...row, value: `${formatValue(of, yKind)} · ${Math.round((of / total) * 100)} %` })),
    ];
  }

  #point(bar, isTold) {
    this.near = bar;
    if (isTold) this.shared.move(bar >= 0 ? this.options.x[bar] : null);
    if (bar >= 0) {
      const [low, high] = this.x.shown;
      const middle = this.area.left + (((this.options.x[bar] + this.ends[bar]) / 2 - low) / (high - low)) * this.area.width;
      this.tooltip.show(middle, this.area.top + 4, this.#nameOf(bar), this.#rows(bar));
    } else this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #follow(x) {
    this.near = x === null || this.isEmpty ? -1 : Math.min(lowerBound(this.ends, x + 1e-9), this.ends.length - 1);
    this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #press(event) {
    if (this.isEmpty) return false;
    const { key } = event;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (key in moves) {
      const [first, end] = this.#visible();
      const from = this.near < 0 ? (moves[key] > 0 ? first - 1 : end) : this.near;
      const bar = Math.max(first, Math.min(end - 1, from + moves[key] * (event.shiftKey ? 10 : 1)));
      this.#point(bar, true);
      this.surface.announce(`${this.#nameOf(bar)}: ${this.#rows(bar).map((row) => `${row.name} ${row.value}`).join(", ")}`);
    } else if (key === "+" || key === "=" || key === "-") this.#change(() => this.x.scale(0.5, key === "-" ? 1.5 : 1 / 1.5));
    else if (key === "0") this.resetZoom();
    else if (key === "Enter" && this.near >= 0) this.options.onSelect?.(this.near);
    else if (key === "Escape" && this.near >= 0) this.#point(-1, true);
    else return false;
    return true;
  }

  #writeLegend() {
    const entries = this.options.parts.map((part, number) => {
      const entry = make("li");
      entry.append(swatch(theme().series(part.colour ?? number)), make("span", "", part.name));
      return entry;
    });
    this.legend.replaceChildren(...entries);
    this.legend.hidden = entries.length < 2;
  }

  #table() {
    const { parts, yKind } = this.options;
    const [first, end] = this.#visible();
    const rows = Array.from({ length: end - first }, (_, place) => {
      const bar = first + place;
      return [this.#nameOf(bar), formatValue(this.totals[bar], yKind), ...parts.map((part) => formatValue(part.values[bar] || 0, yKind))];
    });
    return { columns: [this.options.xLabel ?? "", "all", ...parts.map((part) => part.name)], rows };
  }
}
