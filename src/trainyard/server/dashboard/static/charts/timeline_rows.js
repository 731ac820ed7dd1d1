/** The rows of a timeline: the slices of each lane, so that what runs within another lies below it. */

import { lowerBound } from "./smoothing.js";

/**
 * @typedef {{lane: Int32Array, start: Float64Array, duration: Float64Array, name: Int32Array, depth?: Int32Array,
 *   colour?: Int32Array, count?: Int32Array, id?: Int32Array}} Slices with depths they are in order of lane, depth and
 *   start; `count` is how many slices one stands for, and `id` names a slice to the owner of the chart
 * @typedef {{lane: number, depth: number, numbers: Uint32Array, starts: Float64Array, ends: Float64Array, top: number}} Row
 */

export class Rows {
  /** @param {number} lanes how many @param {Slices} slices */
  constructor(lanes, slices) {
    this.slices = slices;
    /** @type {Row[]} */
    this.list = [];
    this.rowOf = new Int32Array(slices.start.length).fill(-1);
    [this.first, this.last] = [Infinity, -Infinity];
    /** How many rows each lane has. */
    this.depths = new Int32Array(lanes).fill(0);
    if (slices.depth) this.#take();
    else this.#nest(lanes);
  }

  /** The row of a lane at a depth. @returns {Row|null} */
  at(lane, depth) {
    return this.list.find((row) => row.lane === lane && row.depth === depth) ?? null;
  }

  /** The slice of a row at a time, or the nearest within a distance; -1 if there is none. @param {Row} row */
  sliceAt(row, value, distance) {
    const place = lowerBound(row.ends, value - distance);
    return place < row.starts.length && row.starts[place] <= value + distance ? row.numbers[place] : -1;
  }

  /** Rows as somebody has arranged them. */
  #take() {
    const { lane, depth, start, duration } = this.slices;
    for (let first = 0; first < start.length; ) {
      let end = first + 1;
      while (end < start.length && lane[end] === lane[first] && depth[end] === depth[first]) end++;
      const numbers = Uint32Array.from({ length: end - first }, (_, place) => first + place);
      this.#add(lane[first], depth[first], numbers, start.subarray(first, end), Float64Array.from(numbers, (number) => start[number] + duration[number]));
      first = end;
    }
  }

  #nest(lanes) {
    const { lane, start, duration } = this.slices;
    const byLane = Array.from({ length: lanes }, () => []);
    for (let number = 0; number < start.length; number++) {
      if (Number.isFinite(start[number]) && duration[number] >= 0 && duration[number] < Infinity) byLane[lane[number]]?.push(number);
    }
    for (const [number, inLane] of byLane.entries()) {
      inLane.sort((one, other) => start[one] - start[other] || duration[other] - duration[one]);
      const depths = [];
      const ends = [];
      for (const slice of inLane) {
        let depth = 0;
        while (depth < ends.length && ends[depth] > start[slice] + 1e-9) depth++;
        (depths[depth] ??= []).push(slice);
        ends[depth] = start[slice] + duration[slice];
      }
      for (const [depth, inRow] of depths.entries()) {
        this.#add(number, depth, Uint32Array.from(inRow), Float64Array.from(inRow, (slice) => start[slice]), Float64Array.from(inRow, (slice) => start[slice] + duration[slice]));
      }
    }
  }

  #add(lane, depth, numbers, starts, ends) {
    for (const number of numbers) this.rowOf[number] = this.list.length;
    this.list.push({ lane, depth, numbers, starts, ends, top: 0 });
    this.depths[lane] = Math.max(this.depths[lane], depth + 1);
    this.first = Math.min(this.first, starts[0]);
    for (const end of ends) if (end > this.last) this.last = end;
  }
}
