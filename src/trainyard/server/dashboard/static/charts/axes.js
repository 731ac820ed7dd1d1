/** Axes around the area of a chart: ticks, grid lines and labels. */

import { showInvisible } from "../text.js";
import { theme } from "./theme.js";

const TICK_WIDTH = 64;
const TICK_HEIGHT = 30;
/** @typedef {{left: number, top: number, width: number, height: number}} Area */

/**
 * The area that the axes leave. The left margin fits the ticks of y and is a multiple of 8, so that it seldom moves.
 * @returns {Area}
 */
export function layOut(context, width, height, y, { xLabel = "", yLabel = "", top = 8, right = 12 } = {}) {
  const bottom = xLabel ? 36 : 22;
  const texts = y.ticks(tickCount(height - top - bottom, TICK_HEIGHT)).map((tick) => context.measureText(tick.text).width);
  const left = Math.ceil((Math.max(16, ...texts) + 8 + (yLabel ? 14 : 0)) / 8) * 8;
  return { left, top, width: Math.max(1, Math.round(width - left - right)), height: Math.max(1, Math.round(height - top - bottom)) };
}

/** @param {CanvasRenderingContext2D} context @param {Area} area @param {import("./scales.js").Scale} scale */
export function drawXAxis(context, area, scale, { label = "", hasGrid = true } = {}) {
  const { faint, line } = theme();
  const bottom = area.top + area.height;
  context.strokeStyle = line;
  context.lineWidth = 1;
  context.textAlign = "center";
  context.fillStyle = faint;
  context.beginPath();
  let free = -Infinity;
  for (const tick of scale.ticks(tickCount(area.width, TICK_WIDTH))) {
    const x = Math.round(area.left + tick.fraction * area.width) + 0.5;
    context.moveTo(x, hasGrid ? area.top : bottom);
    context.lineTo(x, bottom + 3);
    const half = context.measureText(tick.text).width / 2;
    const middle = Math.max(half, Math.min(x, area.left + area.width + 12 - half));
    if (middle - half < free) continue;
    context.fillText(tick.text, middle, bottom + 12);
    free = middle + half + 8;
  }
  context.stroke();
  if (label) context.fillText(label, area.left + area.width / 2, bottom + 28);
}

/** @param {CanvasRenderingContext2D} context @param {Area} area @param {import("./scales.js").Scale} scale */
export function drawYAxis(context, area, scale, { label = "" } = {}) {
  const { faint, line } = theme();
  context.strokeStyle = line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.fillStyle = faint;
  context.beginPath();
  for (const tick of scale.ticks(tickCount(area.height, TICK_HEIGHT))) {
    const y = Math.round(area.top + (1 - tick.fraction) * area.height) + 0.5;
    context.moveTo(area.left, y);
    context.lineTo(area.left + area.width, y);
    context.fillText(tick.text, area.left - 6, y);
  }
  context.stroke();
  if (!label) return;
  context.save();
  context.translate(8, area.top + area.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(fit(context, label, area.height), 0, 0);
  context.restore();
}

/** What a chart without anything to show says. */
export function drawNotice(context, width, height, text) {
  context.fillStyle = theme().faint;
  context.textAlign = "center";
  context.fillText(text, width / 2, height / 2);
}

/** A text on one line, shortened with an ellipsis to a width in pixels. */
export function fit(context, written, width) {
  const text = showInvisible(written);
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 0 ? `${text.slice(0, low)}…` : "";
}

function tickCount(pixels, each) {
  return Math.max(2, Math.floor(pixels / each));
}
