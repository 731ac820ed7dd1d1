/** The lines of a line chart as a picture, which panning moves, so that only what comes into view is drawn. */

import { visiblePart } from "./curve.js";

const FAINT = 0.22;
const BAND = 0.16;
const FADED = 0.18;
// Fewer points than this have room for a dot each.
const MAX_DOTS = 40;
// Where a picture takes longer, the old one is stretched while the view moves.
const SLOW_MS = 24;

export class LineLayer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
    this.view = null;
    this.cost = 0;
  }

  /**
   * Draw curves into an area of a context.
   * @param {{x: [number, number], y: [number, number], curves: import("./curve.js").Curve[], near: object|null}} view
   * @param {boolean} isMoving whether a sketch will do, as another picture follows
   * @returns {boolean} whether this was only a sketch
   */
  draw(context, area, ratio, view, isMoving) {
    const [width, height] = [Math.max(1, Math.round(area.width * ratio)), Math.max(1, Math.round(area.height * ratio))];
    const old = this.view;
    const isSameSize = this.canvas.width === width && this.canvas.height === height;
    const isSketch = isMoving && isSameSize && old?.version === view.version && this.cost > SLOW_MS && !isShift(old, view);
    if (isSketch) {
      drawStretched(context, this.canvas, area, old, view);
      return true;
    }
    if (isSameSize && old && old.version === view.version && isShift(old, view)) this.#shift(view, width, height);
    else {
      Object.assign(this.canvas, { width, height });
      const began = performance.now();
      this.#drawWithin(view, { left: 0, top: 0, width, height }, ratio);
      this.cost = performance.now() - began;
    }
    this.ratio = ratio;
    this.view = { ...view, x: [...view.x], y: [...view.y] };
    context.drawImage(this.canvas, area.left, area.top, width / ratio, height / ratio);
    return false;
  }

  #shift(view, width, height) {
    const { x, y } = this.view;
    const dx = Math.round(((x[0] - view.x[0]) / (x[1] - x[0])) * width);
    const dy = Math.round(((view.y[0] - y[0]) / (y[1] - y[0])) * height);
    if (dx === 0 && dy === 0) return;
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.globalCompositeOperation = "copy";
    this.context.drawImage(this.canvas, dx, dy);
    this.context.globalCompositeOperation = "source-over";
    if (dx !== 0) this.#drawWithin(view, { left: dx > 0 ? 0 : width + dx, top: 0, width: Math.abs(dx), height }, this.ratio);
    if (dy !== 0) this.#drawWithin(view, { left: 0, top: dy > 0 ? 0 : height + dy, width, height: Math.abs(dy) }, this.ratio);
  }

  #drawWithin(view, part, ratio) {
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.save();
    context.beginPath();
    context.rect(part.left, part.top, part.width, part.height);
    context.clip();
    context.clearRect(part.left, part.top, part.width, part.height);
    const inside = new Window(this.canvas, view, part, ratio);
    const columnWidth = (view.x[1] - view.x[0]) / this.canvas.width;
    for (const curve of [...view.curves].sort((one, other) => (one === view.near) - (other === view.near))) {
      if (curve.length === 0) continue;
      const { raw, smoothed, band } = curve.reduce(columnWidth);
      context.strokeStyle = context.fillStyle = curve.colour;
      context.setLineDash(curve.isDashed ? [5 * ratio, 4 * ratio] : []);
      const strength = view.near && view.near !== curve ? FADED : 1;
      context.globalAlpha = BAND * strength;
      if (band) inside.fill(context, band);
      context.lineWidth = ratio;
      context.globalAlpha = FAINT * strength;
      if (smoothed) inside.stroke(context, raw);
      context.lineWidth = (view.near === curve ? 2.5 : 1.5) * ratio;
      context.globalAlpha = strength;
      inside.stroke(context, smoothed ?? raw);
    }
    context.restore();
  }
}

/** The part of the picture that is drawn. */
class Window {
  constructor(canvas, { x, y }, part, ratio) {
    this.ratio = ratio;
    this.scaleX = canvas.width / (x[1] - x[0]);
    this.scaleY = canvas.height / (y[1] - y[0]);
    [this.x0, this.y1] = [x[0], y[1]];
    const margin = 4 * ratio;
    this.low = x[0] + (part.left - margin) / this.scaleX;
    this.high = x[0] + (part.left + part.width + margin) / this.scaleX;
    [this.top, this.bottom] = [part.top - margin, part.top + part.height + margin];
    this.isStrip = part.height < canvas.height;
    // Canvases count lengths in floats; further out would be inaccurate.
    this.limit = 4 * canvas.height + 1000;
  }

  place(value) {
    return Math.max(-this.limit, Math.min(this.limit, (this.y1 - value) * this.scaleY));
  }

  stroke(context, { x, y }) {
    const [from, to] = visiblePart({ x }, this.low, this.high);
    const { x0, scaleX, top, bottom, isStrip } = this;
    const dots = [];
    const hasDots = to - from <= MAX_DOTS;
    context.lineJoin = to - from > 2000 ? "bevel" : "round";
    context.beginPath();
    let isDown = false;
    let [lastX, lastY] = [0, NaN];
    for (let number = from; number < to; number++) {
      if (y[number] !== y[number]) {
        isDown = false;
        lastY = NaN;
        continue;
      }
      const [px, py] = [(x[number] - x0) * scaleX, this.place(y[number])];
      if (hasDots || (lastY !== lastY && !(y[number + 1] === y[number + 1] && number + 1 < x.length))) dots.push(px, py);
      const isOutside = isStrip && ((py < top && lastY < top) || (py > bottom && lastY > bottom));
      if (lastY === lastY && !isOutside) {
        if (!isDown) context.moveTo(lastX, lastY);
        context.lineTo(px, py);
        isDown = true;
      } else isDown = false;
      [lastX, lastY] = [px, py];
    }
    context.stroke();
    context.beginPath();
    for (let number = 0; number < dots.length; number += 2) {
      context.moveTo(dots[number], dots[number + 1]);
      context.arc(dots[number], dots[number + 1], 2.2 * this.ratio, 0, 7);
    }
    context.fill();
  }

  fill(context, { lower, upper }) {
    const [from, to] = visiblePart(lower, this.low, this.high);
    const isKnown = (number) => lower.y[number] === lower.y[number] && upper.y[number] === upper.y[number];
    context.beginPath();
    for (let start = from; start < to; start++) {
      if (!isKnown(start)) continue;
      let end = start;
      while (end + 1 < to && isKnown(end + 1)) end++;
      context.moveTo((lower.x[start] - this.x0) * this.scaleX, this.place(upper.y[start]));
      for (let number = start + 1; number <= end; number++) context.lineTo((lower.x[number] - this.x0) * this.scaleX, this.place(upper.y[number]));
      for (let number = end; number >= start; number--) context.lineTo((lower.x[number] - this.x0) * this.scaleX, this.place(lower.y[number]));
      context.closePath();
      start = end;
    }
    context.fill();
  }
}

function isShift(old, view) {
  const isSameSpan = (one, other) => Math.abs(one[1] - one[0] - (other[1] - other[0])) <= Math.abs(one[1] - one[0]) * 1e-9;
  return isSameSpan(old.x, view.x) && isSameSpan(old.y, view.y);
}

function drawStretched(context, canvas, area, old, view) {
  const [scaleX, scaleY] = [area.width / (view.x[1] - view.x[0]), area.height / (view.y[1] - view.y[0])];
  const left = area.left + (old.x[0] - view.x[0]) * scaleX;
  const top = area.top + (view.y[1] - old.y[1]) * scaleY;
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.width, area.height);
  context.clip();
  context.drawImage(canvas, left, top, (old.x[1] - old.x[0]) * scaleX, (old.y[1] - old.y[0]) * scaleY);
  context.restore();
}
