/**
 * The gestures that all charts know: drag to zoom, shift-drag to pan, ctrl and wheel to zoom, double click to reset.
 *
 * The chart says what they do; this module only tells them apart.
 * @typedef {{
 *   area: () => import("./axes.js").Area,
 *   onHover?: (x: number, y: number) => void, onLeave?: () => void, onClick?: (x: number, y: number) => void,
 *   onZoom?: (box: {left: number, right: number, top: number, bottom: number, axes: "x"|"y"|"xy"}) => void,
 *   onPan?: (dx: number, dy: number, hasEnded: boolean) => void,
 *   onScale?: (x: number, y: number, factor: number) => void,
 *   onReset?: () => void,
 *   onDrag?: {start: (x: number, y: number) => boolean, move: (x: number, y: number) => void, end: (x: number, y: number) => void},
 * }} GestureActions
 */

import { theme } from "./theme.js";

// A shorter drag is a click, and a drag as narrow as this zooms one axis only.
const MIN_DRAG = 5;
const MIN_BOX = 16;

export class Gestures {
  /** @param {import("./surface.js").Surface} surface @param {GestureActions} actions @param {"x"|"xy"} axes */
  constructor(surface, actions, axes = "xy") {
    this.surface = surface;
    this.actions = actions;
    this.axes = axes;
    this.drag = null;
    const plot = surface.plot;
    plot.addEventListener("pointerdown", (event) => this.begin(event));
    plot.addEventListener("pointermove", (event) => this.move(event));
    plot.addEventListener("pointerup", (event) => this.end(event));
    plot.addEventListener("pointercancel", () => this.cancel());
    plot.addEventListener("pointerleave", () => this.drag ?? actions.onLeave?.());
    plot.addEventListener("dblclick", () => actions.onReset?.());
    plot.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    plot.addEventListener("keydown", (event) => this.drag && event.key === "Escape" && this.cancel());
  }

  /** Draw the box that is being dragged. */
  drawOverlay(context) {
    if (this.drag?.kind !== "zoom" || !this.drag.hasMoved) return;
    const { left, right, top, bottom } = this.box();
    context.fillStyle = theme().accent;
    context.globalAlpha = 0.15;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 0.8;
    context.strokeStyle = theme().accent;
    context.strokeRect(Math.round(left) + 0.5, Math.round(top) + 0.5, Math.round(right - left), Math.round(bottom - top));
    context.globalAlpha = 1;
  }

  begin(event) {
    if (event.button !== 0) return;
    const [x, y] = this.place(event);
    const isPan = event.shiftKey && this.actions.onPan;
    const kind = this.actions.onDrag?.start(x, y) ? "drag" : isPan ? "pan" : this.actions.onZoom ? "zoom" : "none";
    this.drag = { kind, startX: x, startY: y, x, y, hasMoved: false };
    this.surface.plot.setPointerCapture(event.pointerId);
  }

  move(event) {
    const [x, y] = this.place(event);
    const drag = this.drag;
    if (!drag) return this.actions.onHover?.(x, y);
    drag.hasMoved ||= Math.hypot(x - drag.startX, y - drag.startY) >= MIN_DRAG;
    if (drag.hasMoved && drag.kind === "pan") this.actions.onPan(x - drag.x, y - drag.y, false);
    if (drag.kind === "drag") this.actions.onDrag.move(x, y);
    if (!drag.hasMoved && drag.kind === "pan") return;
    [drag.x, drag.y] = [x, y];
    this.surface.redrawOverlay();
  }

  end(event) {
    const drag = this.drag;
    if (!drag) return;
    const [x, y] = this.place(event);
    [drag.x, drag.y] = drag.kind === "pan" ? [drag.x, drag.y] : [x, y];
    const box = this.box();
    this.cancel();
    if (drag.kind === "drag") this.actions.onDrag.end(x, y);
    else if (!drag.hasMoved) this.actions.onClick?.(x, y);
    else if (drag.kind === "pan") this.actions.onPan(x - drag.x, y - drag.y, true);
    else if (drag.kind === "zoom") this.actions.onZoom(box);
    this.actions.onHover?.(x, y);
  }

  cancel() {
    this.drag = null;
    this.surface.redrawOverlay();
  }

  turn(event) {
    if (!this.actions.onScale || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const [x, y] = this.place(event);
    this.actions.onScale(x, y, Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.004));
  }

  place(event) {
    const { left, top } = this.surface.plot.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  box() {
    const { startX, startY, x, y } = this.drag;
    const area = this.actions.area();
    const inX = (value) => Math.max(area.left, Math.min(area.left + area.width, value));
    const inY = (value) => Math.max(area.top, Math.min(area.top + area.height, value));
    const box = { left: inX(Math.min(startX, x)), right: inX(Math.max(startX, x)), top: inY(Math.min(startY, y)), bottom: inY(Math.max(startY, y)), axes: "xy" };
    const isOnlyX = this.axes === "x" || Math.abs(y - startY) < MIN_BOX;
    if (isOnlyX) Object.assign(box, { axes: "x", top: area.top, bottom: area.top + area.height });
    else if (Math.abs(x - startX) < MIN_BOX) Object.assign(box, { axes: "y", left: area.left, right: area.left + area.width });
    return box;
  }
}

/** One visible range, and the whole of it that it is a part of. Both are as scales measure them. */
export class Range {
  constructor() {
    /** @type {[number, number]|null} null while everything is shown */
    this.zoomed = null;
    this.whole = [0, 1];
  }

  get shown() {
    return this.zoomed ?? this.whole;
  }

  /** Show from one fraction of what is shown to another. */
  zoom(from, to) {
    const [low, high] = this.shown;
    const [newLow, newHigh] = [low + (high - low) * from, low + (high - low) * to];
    // Numbers have no more digits than to tell so many columns of pixels apart.
    if (newHigh - newLow > Math.max(Math.abs(newLow), Math.abs(newHigh)) * 1e-12) this.zoomed = [newLow, newHigh];
  }

  /** Grow or shrink around a fraction of what is shown; all of it where it would be more than that. */
  scale(fraction, factor) {
    this.zoom(fraction - fraction * factor, fraction + (1 - fraction) * factor);
    const [low, high] = this.shown;
    if (high - low >= this.whole[1] - this.whole[0]) this.zoomed = null;
  }

  /** Move by a share of what is shown. */
  pan(share) {
    const [low, high] = this.shown;
    this.zoomed = [low + (high - low) * share, high + (high - low) * share];
  }

  reset() {
    this.zoomed = null;
  }
}
