/** A grid of values as colours: all layers over steps, all cores over time, thousands of rows. */

import { drawNotice, fit } from "./axes.js";
import { drawMarks, nearestMark } from "./marks.js";
import { formatValue, transform } from "./scales.js";
import { Surface } from "./surface.js";
import { channels, palette, paletteColour, theme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { Gestures, Range } from "./zoom.js";

const MAX_NAME_WIDTH = 180;
const NAME_HEIGHT = 13;
const COLUMN_TEXT = 72;
const LEGEND_HEIGHT = 22;
const SIGN_HEIGHT = 12;
// Beyond the levels of a value, which are 1 to 255; 0 is none.
const ALARM = 256;

/**
 * Values are row by row; NaN is none. `columns` is the first x of each column, in order. An alarm is a cell whose value
 * is none that a colour could show, such as NaN: it is red. A mark lies in the column that contains its x.
 * `onZoomColumns` may answer true: then it shows these columns itself, with more detail than the chart has.
 * @typedef {{rows?: string[], columns?: number[], values?: Float32Array, range?: [number, number], scale?: "linear"|"log",
 *   palette?: "sequential"|"diverging", alarms?: Uint8Array|null, marks?: import("./marks.js").Mark[],
 *   selected?: [number, number]|null, onSelect?: (row: number, column: number) => void,
 *   onZoomColumns?: (first: number, last: number) => boolean,
 *   tip?: (row: number, column: number) => {title?: string, name: string, value: string},
 *   xLabel?: string, legend?: string, xKind?: import("./scales.js").ScaleKind, label?: string, height?: number,
 *   empty?: string, format?: (value: number) => string}} HeatmapOptions
 */

export class Heatmap {
  /** @param {HTMLElement} element @param {HeatmapOptions} options */
  constructor(element, options = {}) {
    this.options = { rows: [], columns: [], values: new Float32Array(0), scale: "linear", palette: "sequential" };
    this.x = new Range();
    this.y = new Range();
    this.cell = null;
    this.area = { left: 0, top: 0, width: 1, height: 1 };
    this.image = document.createElement("canvas");
    this.surface = new Surface(element, {
      label: options.label ?? options.legend ?? "Heat map",
      height: options.height ?? Math.max(120, Math.min(480, (options.rows?.length ?? 0) * 15 + 70)),
      hint: "Arrow keys move from cell to cell, Enter selects, 0 shows everything, T shows a table.",
      draw: (context) => this.#draw(context),
      drawOverlay: (context) => this.#drawOverlay(context),
      onKey: (event) => this.#press(event),
      onTheme: () => this.#readColours(),
      table: () => this.#table(),
    });
    this.resetButton = this.surface.addTool("Reset zoom", "Show everything (double click)", () => this.resetZoom());
    this.tooltip = new Tooltip(this.surface);
    this.gestures = new Gestures(this.surface, {
      area: () => this.area,
      onHover: (x, y) => this.#hover(x, y),
      onLeave: () => this.#point(null),
      onClick: (x, y) => this.#select(this.#cellAt(x, y)),
      onZoom: ({ left, right, top, bottom, axes }) => {
        const { area, options } = this;
        const columns = [left + 1, right - 1].map((px) => this.#cellAt(px, area.top + 1)?.[1]);
        const isTaken = axes !== "y" && columns.every((each) => each !== undefined) && options.onZoomColumns?.(...columns);
        if (axes !== "y" && !isTaken) this.x.zoom((left - area.left) / area.width, (right - area.left) / area.width);
        if (axes !== "x") this.y.zoom((top - area.top) / area.height, (bottom - area.top) / area.height);
        this.surface.redraw();
      },
      onPan: (dx, dy) => {
        if (this.x.zoomed) this.x.pan(-dx / this.area.width);
        if (this.y.zoomed) this.y.pan(-dy / this.area.height);
        this.surface.redraw();
      },
      onScale: (x, y, factor) => {
        this.x.scale((x - this.area.left) / this.area.width, factor);
        this.y.scale((y - this.area.top) / this.area.height, factor);
        this.surface.redraw();
      },
      onReset: () => this.resetZoom(),
    });
    this.setData(options);
  }

  /** @param {HeatmapOptions} changes */
  setData(changes) {
    Object.assign(this.options, changes);
    if (changes.rows) this.longestNames = null;
    const { rows, columns } = this.options;
    this.#readColours();
    this.x.whole = [0, Math.max(1, columns.length)];
    this.y.whole = [0, Math.max(1, rows.length)];
    if (this.cell && !(this.cell[0] < rows.length && this.cell[1] < columns.length)) this.#point(null);
    this.#level();
    this.surface.redraw();
    if (!this.surface.tableElement) return;
    this.surface.toggleTable();
    this.surface.toggleTable();
  }

  resetZoom() {
    this.x.reset();
    this.y.reset();
    this.surface.redraw();
  }

  destroy() {
    this.surface.destroy();
  }

  #readColours() {
    const [red, green, blue] = channels(theme().bad);
    this.colours = new Uint32Array(ALARM + 1);
    this.colours.set(palette(this.options.palette));
    this.colours[ALARM] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }

  /** Reduce values to 255 levels of colour; 0 is none. */
  #level() {
    const { values, scale, range, alarms } = this.options;
    const kind = scale === "log" ? "log" : "number";
    let [low, high] = [Infinity, -Infinity];
    const places = Float32Array.from(values, (value) => transform(value, kind));
    for (const place of places) {
      if (place < low) low = place;
      if (place > high) high = place;
    }
    if (range) [low, high] = range.map((each) => transform(each, kind));
    else if (this.options.palette === "diverging" && kind === "number") [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
    this.ends = [low, high].map((each) => (kind === "log" ? 10 ** each : each));
    this.hasValues = low <= high;
    this.isEmpty = !this.hasValues && !alarms?.some(Boolean);
    const span = high > low ? high - low : 1;
    this.levels = new Uint16Array(places.length);
    for (let number = 0; number < places.length; number++) {
      if (alarms?.[number]) this.levels[number] = ALARM;
      else if (places[number] === places[number]) this.levels[number] = 1 + Math.round(Math.max(0, Math.min(1, (places[number] - low) / span)) * 254);
    }
  }

  #draw(context) {
    const { options, surface, x, y } = this;
    this.resetButton.hidden = !(x.zoomed || y.zoomed);
    if (this.isEmpty) return drawNotice(context, surface.width, surface.height, options.empty ?? "No values yet");
    for (const range of [x, y]) if (range.zoomed) range.zoomed = clamp(range.zoomed, range.whole[1]);
    const left = Math.ceil(Math.min(MAX_NAME_WIDTH, surface.width / 3, this.#widestName(context)) + 8);
    const bottom = options.xLabel ? 36 : 22;
    const top = LEGEND_HEIGHT + (options.marks?.length ? SIGN_HEIGHT : 0);
    this.area = { left, top, width: Math.max(1, Math.round(surface.width - left - 8)), height: Math.max(1, surface.height - top - bottom) };
    this.#drawCells(context);
    drawMarks(context, this.area, this, options.marks ?? []);
    this.#drawNames(context);
    this.#drawColumns(context);
    this.#drawLegend(context);
  }

  /** The width of the widest name, among those with most letters. */
  #widestName(context) {
    const longest = this.longestNames ??= [...this.options.rows].sort((one, other) => other.length - one.length).slice(0, 20);
    return Math.max(0, ...longest.map((name) => context.measureText(name).width));
  }

  #drawCells(context) {
    const { area, surface, levels, colours } = this;
    const count = this.options.columns.length;
    const [firstColumn, lastColumn] = [Math.floor(this.x.shown[0]), Math.ceil(this.x.shown[1])];
    const [firstRow, lastRow] = [Math.floor(this.y.shown[0]), Math.ceil(this.y.shown[1])];
    const [across, down] = [lastColumn - firstColumn, lastRow - firstRow];
    const width = Math.min(across, Math.ceil(area.width * surface.ratio));
    const height = Math.min(down, Math.ceil(area.height * surface.ratio));
    const best = new Uint16Array(width * height);
    const middle = this.options.palette === "diverging" ? 128 : 0;
    const target = Uint32Array.from({ length: across }, (_, column) => Math.floor((column * width) / across));
    for (let row = 0; row < down; row++) {
      const line = Math.floor((row * height) / down) * width;
      let from = (firstRow + row) * count + firstColumn;
      // Where several cells share a pixel, the one that stands out most is seen.
      for (let column = 0; column < across; column++) {
        const level = levels[from++];
        const place = line + target[column];
        if (level !== 0 && (best[place] === 0 || level === ALARM || Math.abs(level - middle) > Math.abs(best[place] - middle))) best[place] = level;
      }
    }
    Object.assign(this.image, { width, height });
    const imageContext = this.image.getContext("2d");
    const pixels = imageContext.createImageData(width, height);
    const words = new Uint32Array(pixels.data.buffer);
    for (let number = 0; number < best.length; number++) if (best[number] !== 0) words[number] = colours[best[number]];
    imageContext.putImageData(pixels, 0, 0);
    const [cellWidth, cellHeight] = this.#cellSize();
    context.save();
    context.beginPath();
    context.rect(area.left, area.top, area.width, area.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, area.left + (firstColumn - this.x.shown[0]) * cellWidth, area.top + (firstRow - this.y.shown[0]) * cellHeight, across * cellWidth, down * cellHeight);
    context.restore();
    context.strokeStyle = theme().line;
    context.strokeRect(area.left - 0.5, area.top - 0.5, area.width + 1, area.height + 1);
  }

  #drawNames(context) {
    const { area } = this;
    const [, height] = this.#cellSize();
    const every = Math.max(1, Math.ceil(NAME_HEIGHT / height));
    const [first, last] = this.y.shown;
    context.fillStyle = theme().faint;
    context.textAlign = "right";
    for (let row = Math.ceil(first / every) * every; row < last; row += every) {
      const y = area.top + (row + 0.5 - first) * height;
      if (y > area.top && y < area.top + area.height) context.fillText(fit(context, this.options.rows[row] ?? "", area.left - 8), area.left - 6, y);
    }
  }

  #drawColumns(context) {
    const { area, options } = this;
    const [first, last] = this.x.shown;
    const [width] = this.#cellSize();
    const every = Math.max(1, Math.ceil(COLUMN_TEXT / width));
    context.fillStyle = theme().faint;
    context.textAlign = "center";
    for (let column = Math.ceil(first / every) * every; column < last; column += every) {
      const x = area.left + (column + 0.5 - first) * width;
      if (x <= area.left + area.width - 16) context.fillText(formatValue(options.columns[column], options.xKind), Math.max(x, area.left + 8), area.top + area.height + 12);
    }
    if (options.xLabel) context.fillText(options.xLabel, area.left + area.width / 2, area.top + area.height + 28);
  }

  /** The colours and their ends, on the left: the tools of the chart are on the right. */
  #drawLegend(context) {
    const { area, options } = this;
    if (!this.hasValues) return;
    const [low, high] = this.ends.map((each) => this.#format(each));
    const width = Math.min(120, area.width / 4);
    const label = options.legend ? fit(context, options.legend, area.width / 3) : "";
    context.fillStyle = theme().faint;
    context.textAlign = "left";
    let x = area.left;
    const write = (text, gap) => {
      context.fillText(text, x, 8);
      x += text ? context.measureText(text).width + gap : 0;
    };
    write(label, 14);
    write(low, 6);
    const gradient = context.createLinearGradient(x, 0, x + width, 0);
    for (let tenth = 0; tenth <= 10; tenth++) gradient.addColorStop(tenth / 10, paletteColour(this.colours, tenth / 10));
    context.fillStyle = gradient;
    context.fillRect(x, 4, width, 8);
    context.fillStyle = theme().faint;
    x += width + 6;
    write(high, 0);
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (this.isEmpty) return;
    if (this.options.selected) this.#outline(context, this.options.selected, 2.5);
    if (this.cell) this.#outline(context, this.cell, 1.5);
  }

  /** Frame a cell: light beside dark, so that it is seen on every colour. */
  #outline(context, [row, column], lineWidth) {
    const { area } = this;
    const [width, height] = this.#cellSize();
    const left = area.left + (column - this.x.shown[0]) * width;
    const top = area.top + (row - this.y.shown[0]) * height;
    if (left + width < area.left || left > area.left + area.width || top + height < area.top || top > area.top + area.height) return;
    for (const [colour, more] of [[theme().surface, 2], [theme().text, 0]]) {
      context.strokeStyle = colour;
      context.lineWidth = lineWidth + more;
      context.strokeRect(left - 0.5, top - 0.5, Math.max(3, width) + 1, Math.max(3, height) + 1);
    }
  }

  /** Where an x lies across the area: in the middle of its column. */
  fraction(x) {
    const [low, high] = this.x.shown;
    return (this.#columnOf(x) + 0.5 - low) / (high - low);
  }

  #columnOf(x) {
    const after = this.options.columns.findIndex((first) => first > x);
    return Math.max(0, (after < 0 ? this.options.columns.length : after) - 1);
  }

  #cellSize() {
    return [this.area.width / (this.x.shown[1] - this.x.shown[0]), this.area.height / (this.y.shown[1] - this.y.shown[0])];
  }

  #cellAt(px, py) {
    const [width, height] = this.#cellSize();
    const row = Math.floor(this.y.shown[0] + (py - this.area.top) / height);
    const column = Math.floor(this.x.shown[0] + (px - this.area.left) / width);
    const isInside = px >= this.area.left && py >= this.area.top && row < Math.ceil(this.y.shown[1]) && column < Math.ceil(this.x.shown[1]);
    return isInside && !this.isEmpty ? [row, column] : null;
  }

  #hover(px, py) {
    this.#point(this.#cellAt(px, py), px, py);
  }

  #point(cell, px = 0, py = 0) {
    this.cell = cell;
    const mark = cell && nearestMark(this.options.marks ?? [], this.area, this, px);
    if (cell) this.tooltip.show(px, py, this.#tip(cell).title, [...(mark ? [{ name: mark.text, colour: mark.colour, isNear: true }] : []), this.#tip(cell)]);
    else this.tooltip.hide();
    this.surface.redrawOverlay();
  }

  #tip([row, column]) {
    const { rows, columns, values, xLabel = "", xKind, tip } = this.options;
    if (tip) return { title: rows[row], ...tip(row, column) };
    const value = values[row * columns.length + column];
    return { title: rows[row], name: `${xLabel} ${formatValue(columns[column], xKind)}`.trim(), value: Number.isNaN(value) ? "no value" : this.#format(value) };
  }

  #format(value) {
    return (this.options.format ?? formatValue)(value);
  }

  #select(cell) {
    if (cell) this.options.onSelect?.(...cell);
  }

  #press({ key, shiftKey }) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (key === "0") this.resetZoom();
    else if (key === "Enter") this.#select(this.cell);
    else if (key === "Escape" && this.cell) this.#point(null);
    else if (key in moves && !this.isEmpty) {
      const [row, column] = this.cell ?? [0, -moves[key][1]];
      const step = shiftKey ? 10 : 1;
      const within = (value, count) => Math.max(0, Math.min(count - 1, value));
      const cell = [within(row + moves[key][0] * step, this.options.rows.length), within(column + moves[key][1] * step, this.options.columns.length)];
      const [width, height] = this.#cellSize();
      this.#point(cell, this.area.left + (cell[1] + 0.5 - this.x.shown[0]) * width, this.area.top + (cell[0] + 0.5 - this.y.shown[0]) * height);
      const { title, name, value } = this.#tip(cell);
      const marks = (this.options.marks ?? []).filter((each) => this.#columnOf(each.x) === cell[1]).map((each) => each.text);
      this.surface.announce([`${title}, ${name}: ${value}`, ...marks].join(". "));
    } else return false;
    return true;
  }

  #table() {
    const { rows, columns, xKind } = this.options;
    const [from, to] = [Math.floor(this.x.shown[0]), Math.min(Math.ceil(this.x.shown[1]), Math.floor(this.x.shown[0]) + 50)];
    const [first, last] = [Math.floor(this.y.shown[0]), Math.ceil(this.y.shown[1])];
    const line = (row) => [rows[row], ...columns.slice(from, to).map((_, number) => this.#tip([row, from + number]).value)];
    return {
      columns: ["", ...columns.slice(from, to).map((each) => formatValue(each, xKind))],
      rows: rows.slice(first, last).map((_, number) => line(first + number)),
    };
  }
}

function clamp([low, high], most) {
  const span = Math.min(high - low, most);
  const start = Math.max(0, Math.min(low, most - span));
  return [start, start + span];
}
