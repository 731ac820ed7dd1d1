/**
 * One hyperparameter as an axis of charts: a position from 0 to 1 for each of its values, on the scale on which the
 * search sees it. The positions are those of the server's surveys.
 */

import { formatNumber } from "../../format.js";
import { Scale } from "../../charts/scales.js";

// Space at both ends of a chart's axis, so that points at the bounds are seen whole.
const MARGIN = 0.04;

/** @typedef {{name: string, kind: "continuous"|"integer"|"categorical", low?: number, high?: number, scaling?: string, values?: string[]}} GivenAxis */

export class HyperparameterAxis {
  /** @param {GivenAxis} given */
  constructor(given) {
    this.name = given.name;
    this.isCategorical = given.kind === "categorical";
    this.isInteger = given.kind === "integer";
    if (this.isCategorical) {
      this.values = [...new Set(given.values)];
      this.places = new Map(this.values.map((value, number) => [value, (number + 0.5) / this.values.length]));
      this.isConstant = this.values.length < 2;
      return;
    }
    this.isConstant = !(given.low < given.high);
    // Charts ask for the same values at each step of a gesture.
    this.places = new Map();
    // Each integer has a cell that reaches halfway to its neighbours.
    [this.low, this.high] = this.isInteger ? [Math.ceil(given.low) - 0.5, Math.floor(given.high) + 0.5] : [given.low, given.high];
    this.scaling = usableScaling(given.scaling, this.low, this.high);
    this.ends = [this.#transform(this.low), this.#transform(this.high)];
  }

  /** @param {string|undefined} text as the program gets the value @returns {number} NaN for what is no value of the axis */
  position(text) {
    if (this.isCategorical) return this.places.get(text) ?? NaN;
    if (!this.places.has(text)) this.places.set(text, this.#positionOf(text));
    return this.places.get(text);
  }

  #positionOf(text) {
    if (text === undefined) return NaN;
    const number = Number(text);
    if (text.trim() === "" || !Number.isFinite(number)) return NaN;
    const [low, high] = this.ends;
    return Math.max(0, Math.min(1, (this.#transform(Math.max(this.low, Math.min(this.high, number))) - low) / (high - low)));
  }

  /** The value at a position, as text. */
  textAt(position) {
    if (this.isCategorical) return shortCategory(this.values[Math.max(0, Math.min(this.values.length - 1, Math.floor(position * this.values.length)))]);
    const number = this.#numberAt(position);
    return this.isInteger ? String(Math.round(number)) : shortNumber(number);
  }

  /** @param {number} count about how many there is room for @returns {{position: number, text: string}[]} */
  ticks(count) {
    if (this.isCategorical) {
      const step = Math.max(1, Math.ceil(this.values.length / Math.max(1, count)));
      return this.values.filter((_, number) => number % step === 0).map((value) => ({ position: this.places.get(value), text: shortCategory(value) }));
    }
    if (this.scaling === "ReverseLogarithmic") {
      const mirrored = new Scale("log", Math.log10(1 - this.high), Math.log10(1 - this.low));
      return mirrored.ticks(count).map(({ value }) => ({ position: this.position(String(1 - value)), text: shortNumber(1 - value) }));
    }
    const kind = this.scaling === "Logarithmic" ? "log" : "number";
    const found = new Scale(kind, ...(kind === "log" ? this.ends.map((end) => end / Math.LN10) : [this.low, this.high])).ticks(count);
    const whole = this.isInteger ? found.filter(({ value }) => Number.isInteger(value)) : found;
    return whole.map(({ value, text }) => ({ position: this.position(String(value)), text }));
  }

  /** The axis as the scale of a chart whose values are positions. */
  get scale() {
    const fraction = (position) => MARGIN + position * (1 - 2 * MARGIN);
    return {
      fraction,
      value: (place) => (place - MARGIN) / (1 - 2 * MARGIN),
      // Whole numbers and shares of one have short labels.
      ticks: (count) => this.ticks(this.isInteger || this.scaling === "ReverseLogarithmic" ? count + 2 : count).map(({ position, text }) => ({ value: position, fraction: fraction(position), text })),
      format: (position) => this.textAt(position),
    };
  }

  #transform(number) {
    if (this.scaling === "Logarithmic") return Math.log(number);
    return this.scaling === "ReverseLogarithmic" ? -Math.log1p(-number) : number;
  }

  #numberAt(position) {
    const place = this.ends[0] + Math.max(0, Math.min(1, position)) * (this.ends[1] - this.ends[0]);
    if (this.scaling === "Logarithmic") return Math.exp(place);
    return this.scaling === "ReverseLogarithmic" ? -Math.expm1(-place) : place;
  }
}

/** A value as people write it: numbers with few digits, categories without the quotes of JSON. @param {string|undefined} text */
export function shortValue(text) {
  if (text === undefined) return "–";
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? shortNumber(number) : shortCategory(text);
}

function shortNumber(number) {
  return Number.isInteger(number) && Math.abs(number) < 1e6 ? String(number) : formatNumber(Number(number.toPrecision(4)));
}

function shortCategory(text) {
  return text.replace(/^"(.*)"$/s, "$1");
}

function usableScaling(scaling, low, high) {
  if (scaling === "Logarithmic" && low > 0) return scaling;
  return scaling === "ReverseLogarithmic" && low >= 0 && high < 1 ? scaling : "Linear";
}
