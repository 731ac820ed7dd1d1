/** One curve of a line chart: its points in order of x, smoothed, on the scales of the chart, reduced to pixels. */

import { transform } from "./scales.js";
import { lowerBound, nearest, reduceToColumns, smooth } from "./smoothing.js";

/**
 * A colour is one of CSS, or a name of the theme's, such as "bad".
 * @typedef {{name: string, colour?: string, x: ArrayLike<number>, y: ArrayLike<number>, lower?: ArrayLike<number>,
 *   upper?: ArrayLike<number>, dashed?: boolean, group?: string}} Series
 * @typedef {{x: Float64Array, y: Float64Array}} Points
 */

const COLUMNS = ["x", "y", "lower", "upper"];

export class Curve {
  /** @param {Series} series @param {string} colour */
  constructor(series, colour) {
    this.name = series.name;
    this.colour = colour;
    this.isDashed = Boolean(series.dashed);
    this.isHidden = false;
    /** @type {Object<string, Float64Array>} x, y and, of a band, lower and upper */
    this.data = {};
    this.length = 0;
    this.append(series);
  }

  /** Add points, which may be given in any order of x. @param {Partial<Series>} more */
  append(more) {
    const count = Math.min(more.x.length, more.y.length);
    if (count === 0) return;
    let isOrdered = true;
    let last = this.length > 0 ? this.data.x[this.length - 1] : -Infinity;
    for (const column of COLUMNS) this.#reserve(column, count, Boolean(more[column]));
    for (let number = 0; number < count; number++) {
      const x = Number(more.x[number] ?? NaN);
      if (!Number.isFinite(x)) continue;
      isOrdered &&= x >= last;
      last = x;
      for (const column of COLUMNS) {
        if (this.data[column]) this.data[column][this.length] = Number(more[column]?.[number] ?? NaN);
      }
      this.length++;
    }
    if (!isOrdered) this.#sort();
    this.prepared = null;
  }

  /** The points on the scales of a chart, and those of the smoothed curve. */
  prepare(xKind, yKind, smoothing) {
    const key = `${xKind} ${yKind} ${smoothing}`;
    if (this.prepared?.key === key) return this.prepared;
    const column = (name) => this.data[name]?.subarray(0, this.length) ?? new Float64Array(0);
    const raw = { x: mapped(column("x"), xKind), y: mapped(column("y"), yKind) };
    const smoothed = smoothing > 0 ? smooth(column("y"), smoothing) : null;
    const hasBand = Boolean(this.data.lower && this.data.upper);
    this.prepared = {
      key, raw,
      values: smoothed ?? column("y"),
      smoothed: smoothed && { x: raw.x, y: mapped(smoothed, yKind) },
      band: hasBand && { lower: { x: raw.x, y: mapped(column("lower"), yKind) }, upper: { x: raw.x, y: mapped(column("upper"), yKind) } },
      reduced: { width: 0 },
    };
    return this.prepared;
  }

  /** What to draw where a column of pixels is so wide; the same as long as it is. */
  reduce(width) {
    const { prepared } = this;
    if (prepared.reduced.width === width) return prepared.reduced;
    const reduced = (points) => points && (this.length < 1000 ? points : reduceToColumns(points.x, points.y, width));
    prepared.reduced = {
      width, raw: reduced(prepared.raw), smoothed: reduced(prepared.smoothed),
      // An envelope may not lose its corners against each other, so both sides keep the same points.
      band: prepared.band,
    };
    return prepared.reduced;
  }

  /** The number of the point nearest to a place on the x scale, or -1. */
  nearest(place) {
    return nearest(this.prepared.raw.x, place);
  }

  #reserve(column, more, isGiven) {
    const known = this.data[column];
    if (!known && !isGiven && column !== "x" && column !== "y") return;
    const needed = this.length + more;
    if (known && known.length >= needed) return;
    const grown = new Float64Array(Math.max(needed, known ? known.length * 2 : 0)).fill(NaN);
    if (known) grown.set(known.subarray(0, this.length));
    this.data[column] = grown;
  }

  #sort() {
    const order = Uint32Array.from({ length: this.length }, (_, number) => number);
    order.sort((one, other) => this.data.x[one] - this.data.x[other] || one - other);
    for (const column of Object.keys(this.data)) this.data[column] = Float64Array.from(order, (number) => this.data[column][number]);
  }
}

/** The numbers of the points from one x to another, with one more to each side, which lines lead to. */
export function visiblePart(points, low, high) {
  return [Math.max(0, lowerBound(points.x, low) - 1), Math.min(points.x.length, lowerBound(points.x, high) + 1)];
}

function mapped(values, kind) {
  const places = new Float64Array(values.length);
  for (let number = 0; number < values.length; number++) places[number] = transform(values[number], kind);
  return places;
}
