/** A curve without axes in a table's cell. It is drawn once and holds nothing, so a page can have thousands. */

import { reduceToColumns } from "./smoothing.js";
import { onThemeChange, theme } from "./theme.js";

/** Canvases that are drawn, with how, for other themes. @type {Set<WeakRef<HTMLCanvasElement>>} */
const drawn = new Set();
const drawings = new WeakMap();
let isFollowing = false;

/**
 * @param {HTMLCanvasElement} canvas its size on the page is that of its style or its attributes
 * @param {ArrayLike<number>} values evenly spaced; what is no number leaves a gap
 * @param {{colour?: string, width?: number, height?: number}} options
 */
export function drawSparkline(canvas, values, { colour, width, height } = {}) {
  const known = drawings.get(canvas);
  const size = { width: width ?? known?.width ?? canvas.width, height: height ?? known?.height ?? canvas.height };
  drawings.set(canvas, { values, colour, ...size });
  if (!known) drawn.add(new WeakRef(canvas));
  if (!isFollowing) {
    isFollowing = true;
    onThemeChange(redraw);
  }
  draw(canvas);
}

function draw(canvas) {
  const { values, colour, width, height } = drawings.get(canvas);
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const y = Float64Array.from(values, (value) => (Number.isFinite(value) ? value : NaN));
  let [low, high] = [Infinity, -Infinity];
  for (const value of y) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return;
  const points = reduceToColumns(Float64Array.from(y.keys()), y, Math.max(1, y.length / width));
  const placeX = (x) => (y.length > 1 ? 2 + (x / (y.length - 1)) * (width - 4) : width / 2);
  const placeY = (value) => (high > low ? 2 + ((high - value) / (high - low)) * (height - 4) : height / 2);
  context.strokeStyle = context.fillStyle = colour ?? theme().series(0);
  context.lineWidth = 1.25;
  context.lineJoin = "round";
  context.beginPath();
  let isDown = false;
  for (let number = 0; number < points.x.length; number++) {
    const value = points.y[number];
    if (Number.isNaN(value)) isDown = false;
    else {
      context[isDown ? "lineTo" : "moveTo"](placeX(points.x[number]), placeY(value));
      isDown = true;
    }
  }
  context.stroke();
  const last = y.length - 1;
  if (Number.isNaN(y[last])) return;
  context.beginPath();
  context.arc(placeX(last), placeY(y[last]), 1.75, 0, 7);
  context.fill();
}

function redraw() {
  for (const reference of drawn) {
    const canvas = reference.deref();
    if (canvas?.isConnected) draw(canvas);
    else drawn.delete(reference);
  }
}
