/** Events drawn into a chart: lines at one x, with a sign that tells their kind apart, and bands from one x to another. */

import { theme } from "./theme.js";

/**
 * @typedef {"interruption"|"finding"|"note"|"decision"} MarkKind
 * @typedef {{x: number, text: string, kind: MarkKind}} Mark
 * @typedef {{from: number, to: number, text: string, kind?: string}} Region
 */

const REACH = 6;
const COLOURS = { interruption: 1, finding: 3, decision: 4, note: 9 };

export function drawMarks(context, area, scale, marks) {
  for (const mark of marks) {
    const place = scale.fraction(mark.x);
    if (!(place >= 0 && place <= 1)) continue;
    const x = Math.round(area.left + place * area.width) + 0.5;
    context.strokeStyle = context.fillStyle = colourOf(mark.kind);
    context.lineWidth = 1;
    context.setLineDash(mark.kind === "interruption" ? [] : [4, 3]);
    context.globalAlpha = 0.75;
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.top + area.height);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    drawSign(context, x, area.top - 6, mark.kind);
  }
}

export function drawRegions(context, area, scale, regions) {
  for (const region of regions) {
    const place = (value) => area.left + Math.max(0, Math.min(1, scale.fraction(value))) * area.width;
    const [left, right] = [place(region.from), place(region.to)];
    context.fillStyle = colourOf(region.kind);
    context.globalAlpha = 0.1;
    context.fillRect(left, area.top, Math.max(1, right - left), area.height);
    context.globalAlpha = 1;
  }
}

/** @returns {(Mark & {colour: string})|null} */
export function nearestMark(marks, area, scale, px) {
  let best = null;
  let distance = REACH;
  for (const mark of marks) {
    const away = Math.abs(area.left + scale.fraction(mark.x) * area.width - px);
    if (away <= distance) [best, distance] = [mark, away];
  }
  return best && { ...best, colour: colourOf(best.kind) };
}

/** @returns {(Region & {colour: string})|null} */
export function regionAt(regions, scale, px, area) {
  const value = scale.value((px - area.left) / area.width);
  const found = regions.find((each) => each.from <= value && value <= each.to && each.text);
  return found ? { ...found, colour: colourOf(found.kind) } : null;
}

function colourOf(kind) {
  return theme().series(COLOURS[kind] ?? COLOURS.note);
}

/** A triangle for an interruption, a diamond for a finding, a square for a decision, a dot for a note. */
function drawSign(context, x, y, kind) {
  context.beginPath();
  if (kind === "interruption") polygon(context, [x - 5, y - 4, x + 5, y - 4, x, y + 5]);
  else if (kind === "finding") polygon(context, [x, y - 5, x + 5, y, x, y + 5, x - 5, y]);
  else if (kind === "decision") context.rect(x - 4, y - 4, 8, 8);
  else context.arc(x, y, 3.5, 0, 7);
  context.fill();
}

function polygon(context, [x, y, ...rest]) {
  context.moveTo(x, y);
  for (let number = 0; number < rest.length; number += 2) context.lineTo(rest[number], rest[number + 1]);
  context.closePath();
}
