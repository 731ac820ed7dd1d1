/** Parallel coordinates: a line for each row through all axes, brushes on axes, and axes that can be moved. */

import { fit } from "./axes.js";
import { Surface } from "./surface.js";
import { theme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { Gestures } from "./zoom.js";

const HEAD = 34;
const FOOT = 14;
const SIDE = 56;
const BRUSH_WIDTH = 16;
// How far from an axis, an end of a brush, or a line the pointer may be to mean it, in pixels.
const REACH = { axis: 16, end: 6, line: 7 };
const MIN_DRAG = 4;
// What a click on an axis selects around it.
const CLICK_SHARE = 0.06;
const FAINT = 0.13;
const EMPTY_HEIGHT = 96;
export const AXIS_WIDTH = 92;

/**
 * @typedef {{key: string, name: string, isCategorical?: boolean, count?: number, ticks: (count: number) => {position: number, text: string}[],
 *   textAt: (position: number) => string}} ParallelAxis positions are from 0 to 1
 * @typedef {{id: number, positions: number[], colour: string, isFaint?: boolean}} ParallelRow a position of NaN leaves a gap; later rows are drawn over earlier ones
 * @typedef {{label?: string, height?: number, axes?: ParallelAxis[], rows?: ParallelRow[], brushes?: Object<string, [number, number]>, empty?: string,
 *   onBrush?: (key: string, range: [number, number]|null) => void, onOrder?: (keys: string[]) => void,
 *   onHover?: (id: number|null) => void, onPick?: (id: number) => void, onClear?: () => void,
 *   tip?: (id: number) => {title: string, rows: import("./tooltip.js").TipRow[]}}} ParallelOptions
 */

export class Parallel {
  /** @param {HTMLElement} element @param {ParallelOptions} options */
  constructor(element, options = {}) {
    this.options = { axes: [], rows: [], brushes: {} };
    this.height = options.height ?? 320;
    this.marked = [];
    this.chosen = 0;
    this.moved = null;
    this.surface = new Surface(element, {
      label: options.label ?? "Parallel coordinates",
      height: this.height,
      hint:
        "Arrow left and right choose an axis, with shift they move it. Arrow up and down move the selected part, plus and minus change its size, delete removes it. T shows a table.",
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
      onReset: () => this.options.onClear?.(),
      onClick: (x, y) => this.#click(x, y),
      onDrag: { start: (x, y) => this.#start(x, y), move: (x, y) => this.#move(x, y), end: (x, y) => this.#end(x, y) },
    });
    this.setData(options);
  }

  /** @param {ParallelOptions} changes what is not named stays */
  setData(changes) {
    Object.assign(this.options, changes);
    this.surface.setHeight(this.options.rows.length === 0 ? EMPTY_HEIGHT : this.height);
    this.chosen = Math.min(this.chosen, Math.max(0, this.options.axes.length - 1));
    this.surface.redraw();
  }

  /** Draw rows over all others. @param {number[]} ids */
  mark(ids) {
    this.marked = ids;
    this.surface.redrawOverlay();
  }

  destroy() {
    this.surface.destroy();
  }

  get area() {
    return { left: SIDE, top: HEAD, width: Math.max(1, this.surface.width - 2 * SIDE), height: Math.max(1, this.surface.height - HEAD - FOOT) };
  }

  #x(number) {
    const { left, width } = this.area;
    const count = this.options.axes.length;
    return this.moved?.number === number ? this.moved.x : left + (count > 1 ? (number / (count - 1)) * width : width / 2);
  }

  #y(position) {
    const { top, height } = this.area;
    return top + (1 - position) * height;
  }

  #draw(context) {
    const { axes, rows, empty } = this.options;
    const { faint } = theme();
    if (rows.length === 0 || axes.length === 0) {
      context.fillStyle = faint;
      context.textAlign = "center";
      context.fillText(empty ?? "Nothing to show yet", this.surface.width / 2, this.surface.height / 2);
      return;
    }
    context.lineJoin = "round";
    context.lineWidth = 1;
    context.strokeStyle = faint;
    context.globalAlpha = FAINT;
    context.beginPath();
    for (const row of rows) if (row.isFaint) this.#trace(context, row);
    context.stroke();
    context.globalAlpha = rows.length > 300 ? 0.55 : 0.8;
    context.lineWidth = rows.length > 300 ? 1 : 1.5;
    for (const row of rows) {
      if (row.isFaint) continue;
      context.strokeStyle = row.colour;
      context.beginPath();
      this.#trace(context, row);
      context.stroke();
    }
    context.globalAlpha = 1;
    for (const [number, axis] of axes.entries()) this.#drawAxis(context, axis, number);
  }

  #trace(context, row) {
    let isDown = false;
    for (let number = 0; number < row.positions.length; number++) {
      const position = row.positions[number];
      if (Number.isNaN(position)) isDown = false;
      else {
        context[isDown ? "lineTo" : "moveTo"](this.#x(number), this.#y(position));
        isDown = true;
      }
    }
  }

  #drawAxis(context, axis, number) {
    const { text, faint, surface, accent } = theme();
    const x = Math.round(this.#x(number)) + 0.5;
    const { top, height } = this.area;
    const brush = this.options.brushes[axis.key];
    context.strokeStyle = faint;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    if (brush) {
      const [low, high] = brush;
      context.fillStyle = accent;
      context.globalAlpha = 0.22;
      context.fillRect(x - BRUSH_WIDTH / 2, this.#y(high), BRUSH_WIDTH, Math.max(2, this.#y(low) - this.#y(high)));
      context.globalAlpha = 1;
      context.strokeStyle = accent;
      context.strokeRect(x - BRUSH_WIDTH / 2, this.#y(high), BRUSH_WIDTH, Math.max(2, this.#y(low) - this.#y(high)));
    }
    const isLast = number === this.options.axes.length - 1;
    context.textAlign = isLast && number > 0 ? "left" : "right";
    for (const tick of axis.ticks(Math.max(2, Math.floor(height / 34)))) {
      const y = this.#y(tick.position);
      const shown = fit(context, tick.text, SIDE - 12);
      const toRight = isLast && number > 0;
      const at = toRight ? x + 7 : x - 7;
      const width = context.measureText(shown).width + 6;
      context.fillStyle = surface;
      context.globalAlpha = 0.82;
      context.fillRect(toRight ? at - 3 : at + 3 - width, y - 7, width, 14);
      context.globalAlpha = 1;
      context.fillStyle = text;
      context.fillText(shown, at, y);
      context.fillStyle = faint;
      context.fillRect(x - 3, Math.round(y) - 0.5, 6, 1);
    }
    context.fillStyle = brush ? accent : text;
    context.textAlign = "center";
    context.font = context.font.replace(/^(\d+ )?/, "600 ");
    const room = this.options.axes.length > 1 ? this.area.width / (this.options.axes.length - 1) - 10 : this.area.width;
    const name = fit(context, axis.name, Math.max(40, Math.min(room, 2 * Math.min(x, this.surface.width - x))));
    context.fillText(name, x, 12);
    context.font = context.font.replace(/^600 /, "");
  }

  #drawOverlay(context) {
    const { accent, surface } = theme();
    for (const id of this.marked) {
      const row = this.options.rows.find((each) => each.id === id);
      if (!row) continue;
      for (const [width, colour] of [[5, surface], [3, row.colour]]) {
        context.lineWidth = width;
        context.strokeStyle = colour;
        context.beginPath();
        this.#trace(context, row);
        context.stroke();
      }
    }
    if (document.activeElement !== this.surface.plot || !this.surface.plot.matches(":focus-visible") || this.options.axes.length === 0) return;
    const x = this.#x(this.chosen);
    context.strokeStyle = accent;
    context.lineWidth = 1.5;
    context.setLineDash([3, 3]);
    context.strokeRect(x - BRUSH_WIDTH, HEAD - 6, 2 * BRUSH_WIDTH, this.area.height + 12);
    context.setLineDash([]);
  }

  #axisAt(x) {
    let [best, distance] = [-1, REACH.axis];
    for (let number = 0; number < this.options.axes.length; number++) {
      const away = Math.abs(this.#x(number) - x);
      if (away <= distance) [best, distance] = [number, away];
    }
    return best;
  }

  #position(y) {
    const { top, height } = this.area;
    return Math.max(0, Math.min(1, 1 - (y - top) / height));
  }

  #start(x, y) {
    if (this.options.rows.length === 0) return false;
    if (y < HEAD - 8) {
      const room = this.area.width / Math.max(1, this.options.axes.length - 1) / 2;
      const number = this.options.axes.findIndex((_, each) => Math.abs(this.#x(each) - x) < Math.min(60, room));
      if (number < 0) return false;
      this.drag = { kind: "axis", number, startX: x, startY: y };
      return true;
    }
    const number = this.#axisAt(x);
    if (number < 0) return false;
    const brush = this.options.brushes[this.options.axes[number].key];
    const drag = { kind: "new", number, startX: x, startY: y, from: this.#position(y), brush };
    if (brush) {
      if (Math.abs(this.#y(brush[1]) - y) <= REACH.end) Object.assign(drag, { kind: "end", fixed: brush[0] });
      else if (Math.abs(this.#y(brush[0]) - y) <= REACH.end) Object.assign(drag, { kind: "end", fixed: brush[1] });
      else if (y > this.#y(brush[1]) && y < this.#y(brush[0])) drag.kind = "shift";
    }
    this.drag = drag;
    return true;
  }

  #move(x, y) {
    const { drag } = this;
    drag.hasMoved ||= Math.hypot(x - drag.startX, y - drag.startY) >= MIN_DRAG;
    if (!drag.hasMoved) return;
    this.tooltip.hide();
    if (drag.kind === "axis") {
      this.moved = { number: drag.number, x };
      this.#swap(x);
      this.surface.redraw();
      return;
    }
    const at = this.#position(y);
    let range = [Math.min(drag.from, at), Math.max(drag.from, at)];
    if (drag.kind === "end") range = [Math.min(drag.fixed, at), Math.max(drag.fixed, at)];
    if (drag.kind === "shift") range = shifted(drag.brush, at - drag.from);
    this.#brush(drag.number, range);
  }

  #end() {
    const { drag } = this;
    this.drag = null;
    if (drag.kind === "axis") {
      this.moved = null;
      this.surface.redraw();
      if (drag.hasMoved) this.options.onOrder?.(this.options.axes.map((each) => each.key));
    } else if (!drag.hasMoved) this.#clickAxis(drag);
  }

  #clickAxis({ number, from, brush }) {
    const axis = this.options.axes[number];
    if (brush) return this.#brush(number, null);
    if (!axis.isCategorical) return this.#brush(number, [Math.max(0, from - CLICK_SHARE), Math.min(1, from + CLICK_SHARE)]);
    const cell = Math.min(axis.count - 1, Math.floor(from * axis.count));
    this.#brush(number, [cell / axis.count, (cell + 1) / axis.count]);
  }

  /** Exchange the axis that is moved with a neighbour that it has passed. */
  #swap(x) {
    const { axes, rows } = this.options;
    const { left, width } = this.area;
    const { number } = this.moved;
    const target = Math.max(0, Math.min(axes.length - 1, Math.round(((x - left) / width) * (axes.length - 1))));
    if (target === number) return;
    const reorder = (list) => {
      const copy = [...list];
      copy.splice(target, 0, ...copy.splice(number, 1));
      return copy;
    };
    this.options.axes = reorder(axes);
    this.options.rows = rows.map((row) => ({ ...row, positions: reorder(row.positions) }));
    this.moved.number = this.drag.number = target;
  }

  #brush(number, range) {
    this.options.onBrush?.(this.options.axes[number].key, range);
  }

  /** The row whose line is nearest to a place; null if none is near. */
  #rowAt(x, y) {
    let [best, distance] = [null, REACH.line];
    const after = this.options.axes.findIndex((_, number) => this.#x(number) >= x);
    if (after < 0) return null;
    const before = Math.max(0, after - 1);
    const [x0, x1] = [this.#x(before), this.#x(after)];
    const share = x1 > x0 ? (x - x0) / (x1 - x0) : 0;
    for (const row of this.options.rows) {
      if (row.isFaint) continue;
      const [y0, y1] = [this.#y(row.positions[before]), this.#y(row.positions[after])];
      // The distance from the line, not along the vertical: steep lines are as easy to reach as flat ones.
      const away = Math.abs(y0 + share * (y1 - y0) - y) / Math.hypot(1, (y1 - y0) / Math.max(1, x1 - x0));
      if (away < distance || (away === distance && best === null)) [best, distance] = [row, away];
    }
    return best;
  }

  #hover(x, y) {
    const onAxis = y >= HEAD - 8 && this.#axisAt(x) >= 0;
    this.surface.plot.style.cursor = y < HEAD - 8 ? "grab" : onAxis ? "ns-resize" : "";
    const row = y >= HEAD - 8 ? this.#rowAt(x, y) : null;
    this.options.onHover?.(row ? row.id : null);
    if (!row || !this.options.tip) return this.tooltip.hide();
    const { title, rows } = this.options.tip(row.id);
    this.tooltip.show(x, y, title, rows);
  }

  #leave() {
    this.tooltip.hide();
    this.options.onHover?.(null);
  }

  #click(x, y) {
    const row = this.#rowAt(x, y);
    if (row) this.options.onPick?.(row.id);
  }

  #press(event) {
    const { axes, brushes } = this.options;
    if (axes.length === 0) return false;
    const axis = axes[this.chosen];
    const brush = brushes[axis.key];
    const { key } = event;
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const target = Math.max(0, Math.min(axes.length - 1, this.chosen + (key === "ArrowLeft" ? -1 : 1)));
      if (event.shiftKey && target !== this.chosen) {
        const keys = axes.map((each) => each.key);
        keys.splice(target, 0, ...keys.splice(this.chosen, 1));
        this.options.onOrder?.(keys);
      }
      this.chosen = target;
    } else if (key === "ArrowUp" || key === "ArrowDown") this.#brush(this.chosen, shifted(brush ?? (key === "ArrowUp" ? [0.75, 1] : [0, 0.25]), brush ? (key === "ArrowUp" ? 0.05 : -0.05) : 0));
    else if ((key === "+" || key === "=") && brush) this.#brush(this.chosen, [Math.max(0, brush[0] - 0.05), Math.min(1, brush[1] + 0.05)]);
    else if (key === "-" && brush && brush[1] - brush[0] > 0.11) this.#brush(this.chosen, [brush[0] + 0.05, brush[1] - 0.05]);
    else if (key === "Delete" || key === "Backspace") this.#brush(this.chosen, null);
    else if (key === "Escape") this.options.onClear?.();
    else return false;
    const now = this.options.brushes[this.options.axes[this.chosen].key];
    const named = this.options.axes[this.chosen];
    const count = this.options.rows.filter((each) => !each.isFaint).length;
    this.surface.announce(`${named.name}${now ? ` from ${named.textAt(now[0])} to ${named.textAt(now[1])}` : ""}, ${count} of ${this.options.rows.length} selected`);
    this.surface.redrawOverlay();
    return true;
  }

  #table() {
    const { axes, rows } = this.options;
    const shown = rows.filter((each) => !each.isFaint);
    return {
      columns: ["trial", ...axes.map((each) => each.name)],
      rows: shown.map((row) => [row.id, ...row.positions.map((position, number) => (Number.isNaN(position) ? "–" : axes[number].textAt(position)))]),
    };
  }
}

/** A range moved by a share, kept whole between 0 and 1. */
function shifted([low, high], by) {
  const move = Math.max(-low, Math.min(1 - high, by));
  return [low + move, high + move];
}
