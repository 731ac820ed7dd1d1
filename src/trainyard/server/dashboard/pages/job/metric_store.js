/** The points of a job's metrics, and where they lie on each of the x axes that its charts can have. */

import { lowerBound } from "../../charts/smoothing.js";

/**
 * Points of one instance in one attempt: when each came, its number in the metric, its value.
 * @typedef {{attempt: number, at: number[], numbers: number[], values: number[]}} Part
 * @typedef {"step"|"time"|"relative"} Axis
 */

export class MetricStore {
  /** @param {number} startedAt the zero of relative times, in seconds since 1970 */
  constructor(startedAt) {
    this.startedAt = startedAt;
    /** @type {Map<string, Map<string, Part[]>>} by metric, then by instance */
    this.metrics = new Map();
    /** @type {Map<string, {from: number, to: number, parts: Map<string, Part[]>}>} finer points of a range, by metric */
    this.details = new Map();
    this.steps = new StepTable([]);
    /** @type {Part[]|null} the points of the metric with most of them */
    this.longest = null;
  }

  /** @returns {Set<string>} the metrics that have new points */
  add(lines) {
    for (const line of lines) addTo(this.#instances(line.metric), line);
    this.longest = null;
    return new Set(lines.map((line) => line.metric));
  }

  /** Show these points of a metric in a range of time instead of the coarser ones. */
  refine(metric, from, to, lines) {
    const parts = new Map();
    for (const line of lines) addTo(parts, line);
    this.details.set(metric, { from, to, parts });
  }

  /** The instances that recorded a metric. */
  instances(metric) {
    return [...(this.metrics.get(metric)?.keys() ?? [])];
  }

  /** How many points are here, and how many the job recorded. */
  extent(metric) {
    let [here, recorded] = [0, 0];
    for (const parts of this.metrics.get(metric)?.values() ?? []) {
      for (const { numbers } of parts) {
        here += numbers.length;
        recorded += (numbers.at(-1) ?? -1) + 1;
      }
    }
    return { here, recorded };
  }

  /** The points of a metric on one instance in the order of an axis. @param {Axis} axis */
  points(metric, instance, axis) {
    const x = [];
    const y = [];
    for (const { part, place } of this.#parts(metric, instance, axis)) {
      const before = x.length;
      for (const piece of this.#pieces(metric, instance, part)) {
        for (let number = 0; number < piece.at.length; number++) {
          x.push(place(piece.numbers[number], piece.at[number]));
          y.push(piece.values[number] ?? NaN);
        }
      }
      // A program that continued from a checkpoint repeats steps; those of its earlier attempt do not count.
      const repeated = axis === "step" && x.length > before ? lowerBound(x, x[before], 0, before) : before;
      x.splice(repeated, before - repeated);
      y.splice(repeated, before - repeated);
    }
    return { x, y };
  }

  /** Where a moment lies on an axis; NaN on an axis of steps where the program did none then. */
  place(axis, attempt, at) {
    if (axis === "time") return at;
    if (axis === "relative") return at - this.startedAt;
    return this.steps.isKnown ? this.steps.at(attempt, at) : this.#countAt(at);
  }

  /** Where something that happened to the job lies on an axis: at an end of its steps if it was before or after them. */
  placeOfEvent(axis, attempt, at) {
    if (axis !== "step") return this.place(axis, attempt, at);
    return this.steps.isKnown ? this.steps.nearest(attempt, at) : this.#countAt(at, { isNearest: true });
  }

  /** Where a step of the program lies on an axis; NaN if that is not known. */
  placeOfStep(axis, step) {
    if (axis === "step" && this.steps.isKnown) return step;
    const at = this.steps.timeOf(step);
    return Number.isNaN(at) ? NaN : this.place(axis, this.steps.attemptOf(step), at);
  }

  /** The lowest and the highest place of all points and steps, or null if there are none. */
  extentOf(axis) {
    let [low, high] = axis === "step" && this.steps.isKnown ? this.steps.extent : [Infinity, -Infinity];
    for (const [metric, instances] of this.metrics) {
      for (const instance of instances.keys()) {
        for (const { part, place } of this.#parts(metric, instance, axis)) {
          low = Math.min(low, place(part.numbers[0], part.at[0]));
          high = Math.max(high, place(part.numbers.at(-1), part.at.at(-1)));
        }
      }
    }
    return low <= high ? [low, high] : null;
  }

  /** The parts of a metric that have points, each with a function that places a point by its number and time. */
  *#parts(metric, instance, axis) {
    let offset = 0;
    for (const part of this.metrics.get(metric)?.get(instance) ?? []) {
      if (part.at.length > 0) yield { part, place: this.#placer(axis, part, offset) };
      offset += (part.numbers.at(-1) ?? -1) + 1;
    }
  }

  /**
   * The log tells when a value was read, not of which step it is. A metric with about one value for each step is counted,
   * because lines that are read together have the same time; other values are of the step before they were read.
   */
  #placer(axis, part, offset) {
    if (axis !== "step") return (_, at) => this.place(axis, part.attempt, at);
    const [first, last] = [part.at[0], part.at.at(-1)].map((at) => Math.floor(this.placeOfEvent(axis, part.attempt, at) + 1e-6));
    const span = part.numbers.at(-1) - part.numbers[0];
    if (!this.steps.isKnown && this.#isAsLongAsAny(part)) return (number) => offset + number;
    if (Math.abs(last - first - span) > Math.max(2, span * 0.05)) return (_, at) => Math.floor(this.placeOfEvent(axis, part.attempt, at) + 1e-6);
    const begin = this.steps.isKnown ? first - part.numbers[0] : offset;
    return (number) => begin + number;
  }

  /** Whether a metric has about as many values in an attempt as the one with most of them, whose values are the steps. */
  #isAsLongAsAny({ attempt, numbers }) {
    this.longest ??= this.#findLongest();
    const most = this.longest.find((each) => each.attempt === attempt)?.numbers.at(-1) ?? 0;
    return most - numbers.at(-1) <= Math.max(2, most * 0.05);
  }

  /** The time range of the points that a metric has in a range of an axis, with some room at both ends. */
  timesWithin(metric, axis, range) {
    let [from, to] = [Infinity, -Infinity];
    for (const instance of this.instances(metric)) {
      for (const { part, place } of this.#parts(metric, instance, axis)) {
        for (let number = 0; number < part.at.length; number++) {
          const x = place(part.numbers[number], part.at[number]);
          if (x < range.from || x > range.to) continue;
          from = Math.min(from, part.at[Math.max(0, number - 1)]);
          to = Math.max(to, part.at[Math.min(part.at.length - 1, number + 1)]);
        }
      }
    }
    return from <= to ? { from, to: to + 1e-6 } : null;
  }

  #instances(metric) {
    if (!this.metrics.has(metric)) this.metrics.set(metric, new Map());
    return this.metrics.get(metric);
  }

  /** The points of a part, those in a refined range replaced by finer ones. */
  #pieces(metric, instance, part) {
    const detail = this.details.get(metric);
    const fine = detail?.parts.get(instance)?.find((each) => each.attempt === part.attempt);
    if (!fine) return [part];
    const [first, last] = [lowerBound(part.at, detail.from), lowerBound(part.at, detail.to)];
    const cut = (from, to) => ({ at: part.at.slice(from, to), numbers: part.numbers.slice(from, to), values: part.values.slice(from, to) });
    return [cut(0, first), fine, cut(last, part.at.length)];
  }

  #findLongest() {
    const all = [...this.metrics.values()].flatMap((instances) => [...instances.values()]);
    const count = (parts) => parts.reduce((total, part) => total + part.at.length, 0);
    return all.reduce((best, parts) => (count(parts) > count(best) ? parts : best), []);
  }

  /**
   * How many values the metric with most of them had at a moment, which stands for steps where those are not known. NaN
   * before the first and after the last, or the number nearest to it.
   */
  #countAt(at, { isNearest = false } = {}) {
    this.longest ??= this.#findLongest();
    let offset = 0;
    let last = NaN;
    for (const { at: times, numbers } of this.longest) {
      if (times.length === 0) continue;
      // Of several values at one moment, the last: the clock counts microseconds.
      const after = lowerBound(times, at + 5e-7);
      const next = after > 0 && times[after - 1] >= at ? after - 1 : after;
      if (next === 0 && at < times[0]) return Number.isNaN(last) && !isNearest ? NaN : offset;
      if (next < times.length) return offset + (next === 0 ? numbers[0] : between(times[next - 1], numbers[next - 1], times[next], numbers[next], at));
      last = offset + numbers.at(-1);
      offset = last + 1;
    }
    return isNearest ? last : NaN;
  }
}

/** When the program did which of its steps, by attempt. */
export class StepTable {
  /** @param {{attempt: number, at: number[], numbers: number[]}[]} attempts */
  constructor(attempts) {
    this.attempts = new Map(attempts.filter((each) => each.at.length > 1).map((each) => [each.attempt, each]));
  }

  get isKnown() {
    return this.attempts.size > 0;
  }

  get extent() {
    const all = [...this.attempts.values()];
    return [Math.min(...all.map(({ numbers }) => numbers[0])), Math.max(...all.map(({ numbers }) => numbers.at(-1)))];
  }

  /** The step at a moment; NaN before the first and after the last known one. */
  at(attempt, at) {
    const table = this.attempts.get(attempt);
    return table && table.at[0] <= at && at <= table.at.at(-1) ? this.nearest(attempt, at) : NaN;
  }

  /** The step at a moment. After the last known one, as fast as before it. */
  nearest(attempt, at) {
    const table = this.attempts.get(attempt);
    if (!table) return NaN;
    const next = Math.max(1, Math.min(lowerBound(table.at, at), table.at.length - 1));
    return Math.max(table.numbers[0], between(table.at[next - 1], table.numbers[next - 1], table.at[next], table.numbers[next], at));
  }

  /** When a step was done, for the last time. */
  timeOf(step) {
    const table = this.attempts.get(this.attemptOf(step));
    if (!table) return NaN;
    const next = Math.max(1, Math.min(lowerBound(table.numbers, step), table.numbers.length - 1));
    return between(table.numbers[next - 1], table.at[next - 1], table.numbers[next], table.at[next], step);
  }

  attemptOf(step) {
    const found = [...this.attempts.values()].filter(({ numbers }) => numbers[0] <= step && step <= numbers.at(-1));
    return found.at(-1)?.attempt ?? NaN;
  }
}

function addTo(instances, { instance, attempt, at, numbers, values }) {
  if (!instances.has(instance)) instances.set(instance, []);
  const parts = instances.get(instance);
  let part = parts.find((each) => each.attempt === attempt);
  if (!part) {
    part = { attempt, at: [], numbers: [], values: [] };
    parts.push(part);
    parts.sort((one, other) => one.attempt - other.attempt);
  }
  // A stream that was cut off may send points again.
  const known = part.numbers.at(-1) ?? -1;
  for (let number = 0; number < at.length; number++) {
    if (numbers[number] <= known) continue;
    part.at.push(at[number]);
    part.numbers.push(numbers[number]);
    part.values.push(values[number]);
  }
}

function between(x0, y0, x1, y1, x) {
  return x1 === x0 ? y0 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}
