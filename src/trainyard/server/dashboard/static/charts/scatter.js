/** Points over two axes, with lines and a field of colours below them. A dragged box selects, a click picks. */

import { drawNotice, drawXAxis, drawYAxis, layOut } from "./axes.js";
import { Surface } from "./surface.js";
import { theme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { Gestures } from "./zoom.js";

const RADIUS = 4;
const REACH = 14;
const FAINT = 0.16;
const EMPTY_HEIGHT = 96;

/**
 * @typedef {{fraction: (value: number) => number, value: (fraction: number) => number, ticks: (count: number) => {value: number, fraction: number, text: string}[],
 *   format: (value: number) => string}} AxisScale
 * @typedef {"dot"|"ring"|"triangle"|"cross"|"square"} PointShape
 * @typedef {{id: number, x: number, y: number, colour: string, shape?: PointShape, isFaint?: boolean, outline?: string}} ScatterPoint
 *   a y beyond the ends of its axis lies at the edge, with an arrow
 * @typedef {{points: [number, number][], colour: string, width?: number, isStep?: boolean, isDashed?: boolean, isBars?: boolean}} ScatterLine bars are short levels at each point
 * @typedef {{draw: (context: CanvasRenderingContext2D, area: import("./axes.js").Area) => void}} ScatterField
 * @typedef {{label?: string, height?: number, x?: AxisScale, y?: AxisScale, xLabel?: string, yLabel?: string, points?: ScatterPoint[], lines?: ScatterLine[],
 *   field?: ScatterField|null, box?: {x?: number[], y?: number[]}|null, empty?: string, onBox?: (box: {x: number[], y: number[]}|null) => void,
 *   onHover?: (id: number|null) => void, onPick?: (id: number) => void, tip?: (id: number) => {title: string, rows: import("./tooltip.js").TipRow[]}}} ScatterOptions
 */

export class Scatter {
  /** @param {HTMLElement} element @param {ScatterOptions} options */
  constructor(element, options = {}) {
    this.options = { points: [], lines: [], field: null, box: null };
    this.marked = [];
    this.area = { left: 0, top: 0, width: 1, height: 1 };
    this.height = options.height ?? 220;
    this.surface = new Surface(element, {
      label: options.label,
      height: this.height,
      hint: "Arrow left and right go from point to point, Enter picks one, Escape shows all. T shows a table.",
      draw: (context) => this.#draw(context),
      drawOverlay: (context) => this.#drawOverlay(context),
      onKey: (event) => this.#press(event),
      table: () => this.#table(),
    });
    this.tooltip = new Tooltip(this.surface);
    this.gestures = new Gestures(this.surface, {
      area: () => this.area,
      onHover: (x, y) => this.#hover(x, y),
      onLeave: () => this.#leave(),
      onClick: (x, y) => this.#click(x, y),
      onZoom: options.onBox ? (box) => this.#select(box) : undefined,
      onReset: () => this.options.onBox?.(null),
    });
    this.setData(options);
  }

  /** @param {ScatterOptions} changes what is not named stays */
  setData(changes) {
    Object.assign(this.options, changes);
    if (changes.label) this.surface.label = changes.label;
    this.surface.setHeight(this.isEmpty ? Math.min(EMPTY_HEIGHT, this.height) : this.height);
    this.surface.redraw();
  }

  /** Draw points over all others. @param {number[]} ids */
  mark(ids) {
    this.marked = ids;
    this.surface.redrawOverlay();
  }

  destroy() {
    this.surface.destroy();
  }

  get isEmpty() {
    const { x, y, points, lines, field } = this.options;
    return !x || !y || (points.length === 0 && lines.length === 0 && !field);
  }

  #place({ x, y }) {
    const { left, top, width, height } = this.area;
    const up = this.options.y.fraction(y);
    const clipped = Math.max(0, Math.min(1, up));
    return [left + this.options.x.fraction(x) * width, top + (1 - clipped) * height, up !== clipped];
  }

  #draw(context) {
    const { options, surface } = this;
    const { x, y, points, lines, field, box } = options;
    if (this.isEmpty) {
      return drawNotice(context, surface.width, surface.height, options.empty ?? "Nothing to show yet");
    }
    this.area = layOut(context, surface.width, surface.height, y, { xLabel: options.xLabel, yLabel: options.yLabel, top: 10 });
    drawXAxis(context, this.area, x, { label: options.xLabel });
    drawYAxis(context, this.area, y, { label: options.yLabel });
    field?.draw(context, this.area);
    if (box) this.#drawBox(context, box);
    const { left, top, width, height } = this.area;
    context.save();
    context.beginPath();
    context.rect(left - RADIUS - 2, top - RADIUS - 6, width + 2 * RADIUS + 4, height + 2 * RADIUS + 12);
    context.clip();
    for (const line of lines) this.#drawLine(context, line);
    for (const isFaint of [true, false]) {
      context.globalAlpha = isFaint ? FAINT : 0.9;
      for (const point of points) if (Boolean(point.isFaint) === isFaint) this.#drawPoint(context, point, RADIUS);
    }
    context.restore();
  }

  #drawBox(context, { x, y }) {
    const { left, top, width, height } = this.area;
    const across = (value) => left + Math.max(0, Math.min(1, this.options.x.fraction(value))) * width;
    const up = (value) => top + (1 - Math.max(0, Math.min(1, this.options.y.fraction(value)))) * height;
    const [from, to] = x ? x.map(across) : [left, left + width];
    const [bottom, high] = y ? y.map(up) : [top + height, top];
    context.fillStyle = theme().accent;
    context.globalAlpha = 0.1;
    context.fillRect(from, high, to - from, bottom - high);
    context.globalAlpha = 0.7;
    context.strokeStyle = theme().accent;
    context.lineWidth = 1;
    context.strokeRect(Math.round(from) + 0.5, Math.round(high) + 0.5, Math.round(to - from), Math.round(bottom - high));
    context.globalAlpha = 1;
  }

  #drawLine(context, { points, colour, width = 2, isStep, isDashed, isBars }) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.setLineDash(isDashed ? [5, 4] : []);
    context.beginPath();
    let before = null;
    for (const [x, y] of points) {
      const [px, py] = this.#place({ x, y });
      if (isBars) {
        context.moveTo(px - 16, py);
        context.lineTo(px + 16, py);
      } else if (before === null) context.moveTo(px, py);
      else {
        if (isStep) context.lineTo(px, before);
        context.lineTo(px, py);
      }
      before = py;
    }
    context.stroke();
    context.setLineDash([]);
  }

  #drawPoint(context, point, radius) {
    const [x, y, isBeyond] = this.#place(point);
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    if (isBeyond) drawArrow(context, x, y, this.options.y.fraction(point.y) > 1 ? -1 : 1, point.colour);
    context.beginPath();
    trace(context, point.shape ?? "dot", x, y, radius);
    if (point.shape === "ring" || point.shape === "cross") {
      context.strokeStyle = point.colour;
      context.lineWidth = 1.75;
      context.stroke();
      return;
    }
    context.fillStyle = point.colour;
    context.fill();
    if (point.outline) {
      context.strokeStyle = point.outline;
      context.lineWidth = 1;
      context.stroke();
    }
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (!this.options.x || !this.options.y) return;
    for (const id of this.marked) {
      for (const point of this.options.points) {
        if (point.id !== id) continue;
        const [x, y] = this.#place(point);
        if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
        context.beginPath();
        context.arc(x, y, RADIUS + 4, 0, 7);
        context.fillStyle = theme().surface;
        context.fill();
        context.strokeStyle = theme().text;
        context.lineWidth = 1.5;
        context.stroke();
        this.#drawPoint(context, point, RADIUS + 0.5);
      }
    }
  }

  #pointAt(x, y) {
    let [best, distance] = [null, REACH];
    for (const point of this.options.points) {
      const [px, py] = this.#place(point);
      const away = Math.hypot(px - x, py - y) + (point.isFaint ? REACH / 2 : 0);
      if (away < distance) [best, distance] = [point, away];
    }
    return best;
  }

  #hover(x, y) {
    if (!this.options.x) return;
    const point = this.#pointAt(x, y);
    this.surface.plot.style.cursor = point ? "pointer" : "";
    this.options.onHover?.(point ? point.id : null);
    if (!point || !this.options.tip) return this.tooltip.hide();
    const { title, rows } = this.options.tip(point.id);
    this.tooltip.show(x, y, title, rows);
  }

  #leave() {
    this.tooltip.hide();
    this.options.onHover?.(null);
  }

  #click(x, y) {
    const point = this.options.x && this.#pointAt(x, y);
    if (point) this.options.onPick?.(point.id);
  }

  #select({ left, right, top, bottom, axes }) {
    const { area, options } = this;
    const across = [options.x.value((left - area.left) / area.width), options.x.value((right - area.left) / area.width)];
    const low = (bottom - area.top) / area.height;
    const high = (top - area.top) / area.height;
    // A box that reaches an edge includes what lies beyond it.
    const up = [low >= 1 ? -Infinity : options.y.value(1 - low), high <= 0 ? Infinity : options.y.value(1 - high)];
    options.onBox({ x: axes === "y" ? null : across, y: axes === "x" ? null : up });
  }

  #press(event) {
    const { key } = event;
    const ordered = this.options.points.filter((each) => !each.isFaint).sort((one, other) => one.x - other.x);
    const at = ordered.findIndex((each) => each.id === this.read);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const point = ordered[Math.max(0, Math.min(ordered.length - 1, at < 0 ? (key === "ArrowLeft" ? ordered.length - 1 : 0) : at + (key === "ArrowLeft" ? -1 : 1)))];
      if (!point) return true;
      this.read = point.id;
      this.options.onHover?.(point.id);
      const { title, rows } = this.options.tip?.(point.id) ?? { title: String(point.id), rows: [] };
      const [x, y] = this.#place(point);
      this.tooltip.show(x, y, title, rows);
      this.surface.announce(`${title}: ${rows.map((row) => `${row.name} ${row.value ?? ""}`).join(", ")}`);
    } else if (key === "Enter" && at >= 0) this.options.onPick?.(this.read);
    else if (key === "Escape") {
      this.#leave();
      this.options.onBox?.(null);
    } else return false;
    return true;
  }

  #table() {
    const { x, y, xLabel, yLabel, points } = this.options;
    const shown = points.filter((each) => !each.isFaint).sort((one, other) => one.x - other.x);
    return { columns: ["trial", xLabel || "x", yLabel || "y"], rows: shown.map((each) => [each.id, x.format(each.x), y.format(each.y)]) };
  }
}

/** A sign beside a point at the edge of the chart that its value lies beyond it. */
function drawArrow(context, x, y, side, colour) {
  context.beginPath();
  context.moveTo(x - 3, y + side * (RADIUS + 2));
  context.lineTo(x, y + side * (RADIUS + 5));
  context.lineTo(x + 3, y + side * (RADIUS + 2));
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.stroke();
}

function trace(context, shape, x, y, radius) {
  const size = radius + 0.75;
  if (shape === "triangle") {
    context.moveTo(x - size, y - size * 0.75);
    context.lineTo(x + size, y - size * 0.75);
    context.lineTo(x, y + size);
    context.closePath();
  } else if (shape === "cross") {
    context.moveTo(x - size * 0.8, y - size * 0.8);
    context.lineTo(x + size * 0.8, y + size * 0.8);
    context.moveTo(x + size * 0.8, y - size * 0.8);
    context.lineTo(x - size * 0.8, y + size * 0.8);
  } else if (shape === "square") context.rect(x - radius * 0.9, y - radius * 0.9, radius * 1.8, radius * 1.8);
  else context.arc(x, y, radius, 0, 7);
}
