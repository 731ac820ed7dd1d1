/**
 * Scales of axes: where a value lies between two ends, which ticks a reader expects, and how a value is written.
 *
 * Times are seconds since 1970, shown in the time zone of the browser; durations are seconds.
 * @typedef {"number"|"log"|"time"|"duration"|"bytes"|"bytes/s"} ScaleKind
 * @typedef {{value: number, fraction: number, text: string}} Tick
 */

import { formatBytes, formatNumber, formatTime } from "../format.js";

const DAY = 86400;
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 365 * DAY];
const SUFFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Value as the scale measures it: itself, or its decimal logarithm. What has no place on the scale becomes NaN. */
export function transform(value, kind) {
  const place = kind === "log" ? (value > 0 ? Math.log10(value) : NaN) : value;
  return Number.isFinite(place) ? place : NaN;
}

/** One axis, from `low` to `high`, both as `transform` gives them. */
export class Scale {
  /** @param {ScaleKind} kind @param {number} low @param {number} high */
  constructor(kind, low, high) {
    this.kind = kind;
    this.low = low;
    this.high = high > low ? high : low + 1;
    this.span = this.high - this.low;
  }

  /** Where a value lies: 0 at the low end, 1 at the high one. */
  fraction(value) {
    return (transform(value, this.kind) - this.low) / this.span;
  }

  value(fraction) {
    const place = this.low + fraction * this.span;
    return this.kind === "log" ? 10 ** place : place;
  }

  /** @param {number} count about how many there is room for @returns {Tick[]} */
  ticks(count) {
    if (this.kind === "log") return this.#logTicks(count);
    if (this.kind === "time") return this.#timeTicks(count);
    if (this.kind === "bytes" || this.kind === "bytes/s") return this.#byteTicks(count);
    const step = this.kind === "duration" ? durationStep(this.span / count) : niceStep(this.span / count);
    return multiples(this.low, this.high, step).map((value) => this.#tick(value, this.kind === "duration" ? formatSpan(value) : formatTick(value, step)));
  }

  /** A value in full, for a tooltip or a table. */
  format(value) {
    return formatValue(value, this.kind);
  }

  #tick(value, text) {
    return { value, fraction: this.fraction(value), text };
  }

  #byteTicks(count) {
    // Round in the units in which sizes are written; there are no parts of bytes.
    return multiples(this.low, this.high, Math.max(1, niceStep(this.span / count))).map((value) => this.#tick(value, this.format(value)));
  }

  #logTicks(count) {
    if (this.span < 0.7) {
      const [low, high] = [10 ** this.low, 10 ** this.high];
      const step = niceStep((high - low) / count);
      return multiples(low, high, step).filter((value) => value > 0).map((value) => this.#tick(value, formatTick(value, step)));
    }
    const everyDecades = Math.max(1, Math.ceil(this.span / count));
    const digits = this.span <= 2 && count > 4 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let decade = Math.floor(this.low / everyDecades) * everyDecades; decade <= this.high; decade += everyDecades) {
      for (const digit of digits) {
        // Division keeps 0.001 exact, which multiplication by 1e-3 does not.
        const value = decade < 0 ? digit / 10 ** -decade : digit * 10 ** decade;
        const tick = this.#tick(value, formatTick(value, value));
        if (tick.fraction >= 0 && tick.fraction <= 1) ticks.push(tick);
      }
    }
    return ticks;
  }

  #timeTicks(count) {
    const wanted = this.span / count;
    if (wanted < 1) {
      const step = niceStep(wanted);
      return multiples(this.low, this.high, step).map((value) => this.#tick(value, clock(value, step)));
    }
    const step = TIME_STEPS.find((each) => each >= wanted) ?? niceStep(wanted / (365 * DAY)) * 365 * DAY;
    // Ticks are round in local time.
    const offset = -new Date(this.low * 1000).getTimezoneOffset() * 60;
    return multiples(this.low + offset, this.high + offset, step).map((value) => this.#tick(value - offset, clock(value - offset, step)));
  }
}

/** The next of 1, 2, 5, 10, 20 … that is not less. */
export function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(wanted));
  const factor = [1, 2, 5, 10].find((each) => each * power >= wanted * (1 - 1e-9)) ?? 10;
  return factor * power;
}

function durationStep(wanted) {
  return wanted < 1 ? niceStep(wanted) : (TIME_STEPS.find((each) => each >= wanted) ?? niceStep(wanted / DAY) * DAY);
}

function multiples(low, high, step) {
  const found = [];
  const last = Math.floor(high / step + 1e-9);
  for (let number = Math.ceil(low / step - 1e-9); number <= last && found.length < 200; number++) found.push(number * step);
  return found;
}

function formatTick(value, step) {
  const size = Math.max(Math.abs(value), Math.abs(step));
  if (value === 0) return "0";
  if (size < 1e-4 || size >= 1e18) return value.toExponential(Math.max(0, Math.min(3, decade(value) - decade(step)))).replace("e+", "e");
  if (size >= 1e4) {
    const [unit, suffix] = SUFFIXES.find(([each]) => size >= each);
    return `${(value / unit).toFixed(Math.max(0, Math.min(6, -decade(step / unit))))}${suffix}`;
  }
  return value.toFixed(Math.max(0, Math.min(8, -decade(step))));
}

function decade(value) {
  return Math.floor(Math.log10(Math.abs(value)) + 1e-9);
}

function clock(seconds, step) {
  const date = new Date(seconds * 1000);
  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  const day = date.toLocaleDateString("en", { month: "short", day: "numeric" });
  if (step >= 365 * DAY) return String(date.getFullYear());
  if (step >= DAY) return day;
  if (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0 && step >= 60) return day;
  const minutes = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  if (step >= 60) return minutes;
  return step >= 1 ? `${minutes}:${pad(date.getSeconds())}` : `${minutes}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** A duration as short as a tick needs it: without parts that are zero, down to nanoseconds. @param {number} seconds */
export function formatSpan(seconds) {
  const size = Math.abs(seconds);
  const short = (value) => String(Number(value.toPrecision(4)));
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${short(seconds * 1e9)} ns`;
  if (size < 1e-3) return `${short(seconds * 1e6)} µs`;
  if (size < 1) return `${short(seconds * 1e3)} ms`;
  if (size < 60) return `${short(seconds)} s`;
  const sign = seconds < 0 ? "-" : "";
  const parts = (big, bigUnit, small, smallUnit) => `${sign}${big} ${bigUnit}${small ? ` ${small} ${smallUnit}` : ""}`;
  const whole = Math.round(size);
  if (whole < 3600) return parts(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(size / 60);
  if (minutes < 1440) return parts(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(size / 3600);
  return parts(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** @param {number} value @param {ScaleKind} kind */
export function formatValue(value, kind = "number") {
  if (!Number.isFinite(value) || kind === "number" || kind === "log") return formatNumber(value);
  if (kind === "bytes") return formatBytes(value);
  if (kind === "bytes/s") return `${formatBytes(value)}/s`;
  return kind === "duration" ? formatSpan(value) : formatTime(value * 1000);
}
