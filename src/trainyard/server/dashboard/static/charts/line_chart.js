/** Curves over a common x: the chart for metrics, hardware and anything else that has steps or time. */

import { drawNotice, drawXAxis, drawYAxis, layOut } from "./axes.js";
import { Curve, visiblePart } from "./curve.js";
import { LineLayer } from "./line_layer.js";
import { drawMarks, drawRegions, nearestMark, regionAt } from "./marks.js";
import { Scale, formatValue, transform } from "./scales.js";
import { rangeWithoutOutliers } from "./smoothing.js";
import { Surface, make, swatch } from "./surface.js";
import { theme } from "./theme.js";
import { SharedCursor, Tooltip } from "./tooltip.js";
import { Gestures, Range } from "./zoom.js";

const MAX_TIP_ROWS = 12;
// How far from the pointer a point may lie and still be told, in pixels.
const REACH = 40;
const SETTLE_MS = 140;

/**
 * @typedef {{
 *   series?: import("./curve.js").Series[], xLabel?: string, yLabel?: string, label?: string, height?: number,
 *   xKind?: "number"|"time"|"duration", yKind?: "number"|"duration"|"bytes"|"bytes/s", logX?: boolean, logY?: boolean,
 *   smoothing?: number, clipOutliers?: boolean, marks?: import("./marks.js").Mark[], regions?: import("./marks.js").Region[],
 *   xRange?: [number, number]|null, yRange?: [number|null, number|null], legend?: boolean, empty?: string, syncKey?: string,
 *   onSelectRange?: (range: {from: number, to: number}|null) => void, onSelect?: (x: number) => void,
 * }} LineChartOptions
 */

export class LineChart {
  /** @param {HTMLElement} element @param {LineChartOptions} options */
  constructor(element, options = {}) {
    this.options = {};
    this.curves = [];
    this.x = new Range();
    this.y = new Range();
    this.layer = new LineLayer();
    this.version = 0;
    this.cursor = null;
    this.near = null;
    this.area = { left: 0, top: 0, width: 1, height: 1 };
    this.surface = new Surface(element, {
      label: options.label ?? options.yLabel ?? "Line chart",
      height: options.height,
      hint: "Arrow left and right read values, plus and minus zoom, 0 shows everything, T shows a table.",
      draw: (context) => this.#draw(context),
      drawOverlay: (context) => this.#drawOverlay(context),
      onKey: (event) => this.#press(event),
      onTheme: () => this.#recolour(),
      table: () => this.#table(),
    });
    this.resetButton = this.surface.addTool("Reset zoom", "Show everything (double click)", () => this.resetZoom());
    this.resetButton.hidden = true;
    this.tooltip = new Tooltip(this.surface);
    this.legend = make("div", "chart-legend");
    this.surface.plot.after(this.legend);
    this.shared = new SharedCursor(options.syncKey, (x) => this.#follow(x));
    this.gestures = new Gestures(this.surface, {
      area: () => this.area,
      onHover: (x, y) => this.#hover(x, y),
      onLeave: () => this.#leave(),
      onClick: (x, y) => {
        this.#hover(x, y);
        this.#select();
      },
      onZoom: (box) => this.#zoom(box),
      onPan: (dx, dy, hasEnded) => this.#pan(dx, dy, hasEnded),
      onScale: (x, y, factor) => this.#scale((x - this.area.left) / this.area.width, factor),
      onReset: () => this.resetZoom(),
    });
    this.setData(options);
  }

  /** Show other series, marks or settings; what is not named stays. @param {LineChartOptions} changes */
  setData(changes) {
    const { options } = this;
    const isOtherX = ["xKind", "logX"].some((name) => name in changes && changes[name] !== options[name]);
    const isOtherY = ["logY", "yRange"].some((name) => name in changes && changes[name] !== options[name]);
    Object.assign(options, changes);
    this.xScaleKind = options.logX ? "log" : options.xKind === "duration" || options.xKind === "time" ? options.xKind : "number";
    this.yScaleKind = options.logY ? "log" : (options.yKind ?? "number");
    if (isOtherX) this.x.reset();
    if (isOtherX || isOtherY) this.y.reset();
    if (changes.series) {
      const hidden = new Set(this.curves.filter((each) => each.isHidden).map((each) => each.name));
      this.curves = changes.series.map((each, number) => Object.assign(new Curve(each, ""), { isHidden: hidden.has(each.name), given: each.colour, number }));
      this.near = null;
      this.#recolour();
      this.#writeLegend();
    }
    this.#change();
  }

  /** Add points at the ends of series, by name; a series that is new is added. @param {Object<string, Partial<import("./curve.js").Series>>} points */
  append(points) {
    let hasNew = false;
    for (const [name, more] of Object.entries(points)) {
      const known = this.curves.find((each) => each.name === name);
      if (known) known.append(more);
      else {
        this.curves.push(Object.assign(new Curve({ name, ...more }, ""), { given: more.colour, number: this.curves.length }));
        hasNew = true;
      }
    }
    if (hasNew) {
      this.#recolour();
      this.#writeLegend();
    }
    this.#change();
  }

  /** Show a range of x, or everything. @param {{from: number, to: number}|null} range */
  setRange(range) {
    this.x.zoomed = range && [transform(range.from, this.xScaleKind), transform(range.to, this.xScaleKind)];
    this.y.reset();
    this.#moved();
  }

  /** What is shown, in the units of the data. */
  get range() {
    this.#measure();
    const [x, y] = [new Scale(this.xScaleKind, ...this.x.shown), new Scale(this.yScaleKind, ...this.y.shown)];
    return { x: [x.value(0), x.value(1)], y: [y.value(0), y.value(1)], isZoomed: Boolean(this.x.zoomed || this.y.zoomed) };
  }

  resetZoom() {
    this.x.reset();
    this.y.reset();
    this.#moved();
    this.options.onSelectRange?.(null);
  }

  destroy() {
    clearTimeout(this.settling);
    this.shared.leave();
    this.surface.destroy();
  }

  #change() {
    this.version++;
    this.surface.redraw();
    this.#refreshTable();
  }

  #refreshTable() {
    if (!this.surface.tableElement) return;
    this.surface.toggleTable();
    this.surface.toggleTable();
  }

  #recolour() {
    for (const curve of this.curves) curve.colour = theme()[curve.given] ?? curve.given ?? theme().series(curve.number);
    for (const [number, button] of [...this.legend?.children ?? []].entries()) button.firstChild.style.background = this.curves[number]?.colour;
    this.version++;
  }

  get #visible() {
    return this.curves.filter((each) => !each.isHidden);
  }

  /** Find the ranges of x and y that everything needs, y for what x shows. */
  #measure() {
    const { options, x, y } = this;
    const visible = this.#visible;
    for (const curve of visible) curve.prepare(this.xScaleKind, this.yScaleKind, options.smoothing ?? 0);
    let [low, high] = [Infinity, -Infinity];
    for (const { prepared, length } of visible) {
      // Values without a place on a logarithmic axis are NaN, and lie first.
      let first = 0;
      while (first < length && Number.isNaN(prepared.raw.x[first])) first++;
      if (first === length) continue;
      low = Math.min(low, prepared.raw.x[first]);
      high = Math.max(high, prepared.raw.x[length - 1]);
    }
    this.isEmpty = low > high;
    // At least this much is shown, so that charts beside each other begin and end at the same x.
    if (options.xRange) [low, high] = [Math.min(low, transform(options.xRange[0], this.xScaleKind)), Math.max(high, transform(options.xRange[1], this.xScaleKind))];
    x.whole = this.isEmpty ? [0, 1] : low === high ? [low - 0.5, high + 0.5] : [low, high];
    if (!this.isPanning) y.whole = this.#wholeY(visible);
  }

  #wholeY(curves) {
    const { options } = this;
    const [from, to] = this.x.shown;
    let [low, high] = [Infinity, -Infinity];
    const samples = [];
    for (const { prepared } of curves) {
      for (const points of [prepared.raw, prepared.smoothed, prepared.band?.lower, prepared.band?.upper]) {
        if (!points) continue;
        const [first, last] = visiblePart(points, from, to);
        const stride = Math.max(1, Math.floor((last - first) / 2000));
        for (let number = first; number < last; number++) {
          const value = points.y[number];
          if (value !== value || points.x[number] < from || points.x[number] > to) continue;
          if (value < low) low = value;
          if (value > high) high = value;
          if (options.clipOutliers && number % stride === 0) samples.push(value);
        }
      }
    }
    if (low > high) return [0, 1];
    if (options.clipOutliers && samples.length > 20) [low, high] = rangeWithoutOutliers(Float64Array.from(samples).sort());
    const [fixedLow, fixedHigh] = (options.yRange ?? []).map((each) => (each === null ? NaN : transform(each, this.yScaleKind)));
    if (Number.isFinite(fixedLow)) low = fixedLow;
    if (Number.isFinite(fixedHigh)) high = fixedHigh;
    const margin = low >= high ? (this.yScaleKind === "log" ? 0.5 : Math.abs(low) * 0.1 || 1) : (high - low) * 0.05;
    return [Number.isFinite(fixedLow) ? low : low - margin, Number.isFinite(fixedHigh) ? high : Math.max(low, high) + margin];
  }

  #draw(context) {
    const { options, surface } = this;
    this.#measure();
    this.resetButton.hidden = !(this.x.zoomed || this.y.zoomed);
    if (this.isEmpty) return drawNotice(context, surface.width, surface.height, options.empty ?? "No points yet");
    const y = (this.yScale = new Scale(this.yScaleKind, ...this.y.shown));
    const top = options.marks?.length ? 18 : 8;
    this.area = layOut(context, surface.width, surface.height, y, { xLabel: options.xLabel, yLabel: options.yLabel, top });
    const x = (this.xScale = new Scale(this.xScaleKind, ...this.x.shown));
    drawRegions(context, this.area, x, options.regions ?? []);
    drawXAxis(context, this.area, x, { label: options.xLabel });
    drawYAxis(context, this.area, y, { label: options.yLabel });
    const view = { x: this.x.shown, y: this.y.shown, curves: this.#visible, near: this.near, version: this.version };
    const isSketch = this.layer.draw(context, this.area, surface.ratio, view, Boolean(this.settling));
    if (isSketch) this.#settle();
    drawMarks(context, this.area, x, options.marks ?? []);
    if (options.clipOutliers && !this.y.zoomed) this.#drawClipped(context);
  }

  /** Say how many points lie beyond the ends of y. */
  #drawClipped(context) {
    const [low, high] = this.y.shown;
    let [below, above] = [0, 0];
    for (const { prepared } of this.#visible) {
      const [first, last] = visiblePart(prepared.raw, ...this.x.shown);
      for (let number = first; number < last; number++) {
        if (prepared.raw.y[number] > high) above++;
        else if (prepared.raw.y[number] < low) below++;
      }
    }
    this.clipped = { above, below };
    const { left, top, height } = this.area;
    context.textAlign = "left";
    for (const [count, text, y] of [[above, `▲ ${above} above`, top + 9], [below, `▼ ${below} below`, top + height - 9]]) {
      if (count === 0) continue;
      context.fillStyle = theme().surface;
      context.fillRect(left + 2, y - 7, context.measureText(text).width + 8, 14);
      context.fillStyle = theme().faint;
      context.fillText(text, left + 6, y);
    }
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (this.cursor === null || this.isEmpty || !this.xScale) return;
    const { left, top, width, height } = this.area;
    const place = this.xScale.fraction(this.cursor);
    if (!(place >= 0 && place <= 1)) return;
    const x = Math.round(left + place * width) + 0.5;
    context.strokeStyle = theme().faint;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.setLineDash([]);
    for (const { curve, px, py } of this.#read(this.cursor)) {
      context.beginPath();
      context.arc(px, py, curve === this.near ? 4.5 : 3, 0, 7);
      context.fillStyle = curve.colour;
      context.fill();
      context.strokeStyle = theme().surface;
      context.stroke();
    }
  }

  /** The points of all curves at an x, those out of reach left out. */
  #read(value) {
    const { left, top, width, height } = this.area;
    const place = transform(value, this.xScaleKind);
    const middle = left + this.xScale.fraction(value) * width;
    const found = [];
    for (const curve of this.#visible) {
      const number = curve.nearest(place);
      if (number < 0) continue;
      const px = left + this.xScale.fraction(curve.data.x[number]) * width;
      const shown = curve.prepared.values[number];
      const py = top + (1 - this.yScale.fraction(shown)) * height;
      if (Math.abs(px - middle) > REACH || !(px >= left - 1 && px <= left + width + 1) || !Number.isFinite(py)) continue;
      found.push({ curve, number, px, py: Math.max(top, Math.min(top + height, py)), x: curve.data.x[number], value: shown, raw: curve.data.y[number] });
    }
    return found;
  }

  #hover(px, py) {
    if (this.isEmpty || !this.xScale) return;
    const { left, top, width, height } = this.area;
    if (px < left - 4 || px > left + width + 4) return this.#leave();
    const under = this.#read(this.xScale.value((px - left) / width));
    const closest = under.reduce((best, each) => (best === null || Math.abs(each.px - px) < Math.abs(best.px - px) ? each : best), null);
    this.cursor = closest ? closest.x : this.xScale.value((px - left) / width);
    this.shared.move(this.cursor);
    const byDistance = under.sort((one, other) => Math.abs(one.py - py) - Math.abs(other.py - py));
    const rows = byDistance.slice(0, MAX_TIP_ROWS).map((each) => this.#row(each, each === byDistance[0] && under.length > 1));
    if (under.length > MAX_TIP_ROWS) rows.push({ name: `and ${under.length - MAX_TIP_ROWS} more` });
    const mark = nearestMark(this.options.marks ?? [], this.area, this.xScale, px);
    const region = regionAt(this.options.regions ?? [], this.xScale, px, this.area);
    for (const each of [mark, region]) if (each) rows.unshift({ name: each.text, colour: each.colour, isNear: true });
    if (rows.length > 0) this.tooltip.show(left + this.xScale.fraction(this.cursor) * width, Math.max(top, Math.min(py, top + height)), this.#heading(this.cursor), rows);
    else this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #row({ curve, value, raw }, isNear) {
    const yKind = this.options.yKind;
    const text = formatValue(value, yKind);
    const isSmoothed = (this.options.smoothing ?? 0) > 0;
    return { name: curve.name, colour: curve.colour, isNear, value: isSmoothed ? `${text} (${formatValue(raw, yKind)})` : text };
  }

  #heading(value) {
    const { xLabel = "", xKind } = this.options;
    return `${xKind === "time" || !xLabel ? "" : `${xLabel} `}${formatValue(value, xKind)}`;
  }

  #leave() {
    this.cursor = null;
    this.shared.move(null);
    this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #select() {
    if (this.cursor !== null) this.options.onSelect?.(this.cursor);
  }

  #follow(x) {
    this.cursor = x;
    this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #zoom({ left, right, top, bottom, axes }) {
    const { area } = this;
    if (axes !== "y") this.x.zoom((left - area.left) / area.width, (right - area.left) / area.width);
    if (axes === "x") this.y.reset();
    else this.y.zoom(1 - (bottom - area.top) / area.height, 1 - (top - area.top) / area.height);
    this.#moved();
    if (axes !== "y") this.#tellRange();
  }

  #pan(dx, dy, hasEnded) {
    const { area, surface } = this;
    // Whole pixels of the screen, so that the picture can be moved.
    const share = (pixels, length) => Math.round(pixels * surface.ratio) / Math.round(length * surface.ratio);
    this.isPanning = !hasEnded;
    if (dx) this.x.pan(-share(dx, area.width));
    if (dy && this.y.zoomed) this.y.pan(share(dy, area.height));
    this.surface.redraw();
    if (hasEnded) this.#tellRange();
  }

  #scale(fraction, factor) {
    this.x.scale(fraction, factor);
    this.isPanning = this.layer.cost > 0 && Boolean(this.settling);
    this.#settle();
    this.surface.redraw();
  }

  /** Draw finely, and tell of the range, when the view has come to rest. */
  #settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = 0;
      this.isPanning = false;
      this.surface.redraw();
      this.#tellRange();
    }, SETTLE_MS);
  }

  #moved() {
    this.isPanning = false;
    this.tooltip.hide();
    this.surface.redraw();
    this.#refreshTable();
  }

  #tellRange() {
    if (!this.options.onSelectRange) return;
    const [from, to] = this.range.x;
    this.options.onSelectRange(this.x.zoomed ? { from, to } : null);
  }

  #press(event) {
    if (this.isEmpty || !this.xScale) return false;
    const { key } = event;
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (key in moves) this.#step(moves[key] * (event.shiftKey ? 10 : 1));
    else if (key === "+" || key === "=" || key === "-") this.#scale(this.cursor === null ? 0.5 : this.xScale.fraction(this.cursor), key === "-" ? 1.5 : 1 / 1.5);
    else if (key === "0") this.resetZoom();
    else if (key === "Enter" && this.cursor !== null) this.#select();
    else if (key === "Escape" && this.cursor !== null) this.#leave();
    else return false;
    return true;
  }

  /** Move the cursor along the curve with most points, and say all values there. */
  #step(by) {
    const curve = this.#visible.reduce((best, each) => (each.length > best.length ? each : best));
    const { x } = curve.prepared.raw;
    const [first, last] = visiblePart({ x }, ...this.x.shown);
    const shown = this.x.zoomed ? [Math.min(first + 1, last - 1), Math.max(last - 2, first)] : [0, x.length - 1];
    const before = this.cursor === null ? (by > 0 ? shown[0] - 1 : shown[1] + 1) : curve.nearest(transform(this.cursor, this.xScaleKind));
    const number = Math.max(shown[0], Math.min(shown[1], Number.isFinite(by) ? before + by : by > 0 ? shown[1] : shown[0]));
    this.cursor = curve.data.x[number];
    this.shared.move(this.cursor);
    const found = this.#read(this.cursor);
    const rows = found.slice(0, MAX_TIP_ROWS).map((each) => this.#row(each, false));
    const mark = (this.options.marks ?? []).filter((each) => each.x === this.cursor).map((each) => each.text);
    const values = rows.length > 0 ? rows.map((row) => `${row.name} ${row.value}`).join(", ") : "no value";
    this.surface.announce([`${this.#heading(this.cursor)}: ${values}`, ...mark].join(". "));
    const { left, top, width } = this.area;
    this.tooltip.show(left + this.xScale.fraction(this.cursor) * width, top, this.#heading(this.cursor), rows.length > 0 ? rows : [{ name: "no value" }]);
    this.surface.redrawOverlay();
  }

  #writeLegend() {
    const isShown = this.options.legend ?? this.curves.length > 1;
    this.legend.hidden = !isShown;
    this.legend.replaceChildren(...(isShown ? this.curves.map((curve) => this.#legendButton(curve)) : []));
  }

  #legendButton(curve) {
    const button = make("button");
    button.type = "button";
    button.title = `${curve.name}\nClick to hide or show, shift-click to show it alone.`;
    button.setAttribute("aria-pressed", String(!curve.isHidden));
    button.append(swatch(curve.colour), make("span", "chart-name", curve.name));
    button.addEventListener("click", (event) => this.#toggle(curve, event.shiftKey));
    button.addEventListener("pointerenter", () => this.#highlight(curve));
    button.addEventListener("pointerleave", () => this.#highlight(null));
    return button;
  }

  #toggle(curve, isAlone) {
    const isAloneNow = this.#visible.length === 1 && !curve.isHidden;
    if (isAlone) for (const each of this.curves) each.isHidden = isAloneNow ? false : each !== curve;
    else curve.isHidden = !curve.isHidden;
    for (const [number, button] of [...this.legend.children].entries()) button.setAttribute("aria-pressed", String(!this.curves[number].isHidden));
    this.near = null;
    this.#change();
  }

  #highlight(curve) {
    if (curve?.isHidden) return;
    this.near = curve;
    this.#change();
  }

  #table() {
    this.#measure();
    const { xLabel, xKind, yKind } = this.options;
    const visible = this.#visible;
    const rows = new Map();
    for (const [column, curve] of visible.entries()) {
      const [first, last] = visiblePart(curve.prepared.raw, ...this.x.shown);
      for (let number = first; number < last; number++) {
        const x = curve.data.x[number];
        if (!rows.has(x)) rows.set(x, Array(visible.length).fill(""));
        rows.get(x)[column] = formatValue(curve.data.y[number], yKind);
      }
    }
    const ordered = [...rows].sort(([one], [other]) => one - other);
    return { columns: [xLabel || "x", ...visible.map((each) => each.name)], rows: ordered.map(([x, values]) => [formatValue(x, xKind), ...values]) };
  }
}
