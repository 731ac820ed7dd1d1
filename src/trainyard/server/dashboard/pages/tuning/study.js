/** A tuning job as all charts of its page see it: trials, which are selected, and which one the pointer is at. */

import { Scale } from "../../charts/scales.js";
import { palette, paletteColour, theme } from "../../charts/theme.js";
import { formatDuration, formatNumber } from "../../format.js";
import { HyperparameterAxis, shortValue } from "./hyperparameter_axis.js";

// How far worse than the median a value may be, in distances of the median from the best, before it lies at the edge.
const CLIP_DISTANCES = 3;
const MIN_CLIPPED = 8;

/**
 * @typedef {{number: number, job: string, definition?: string, values: Object<string, string>, status: string, objective?: number,
 *   isMeasured: boolean, cause?: string, reason?: string, bracket?: number, created?: string, started?: string, ended?: string,
 *   value: number, state: string, curve?: {total: number, reports: number[], values: number[]}}} Trial `value` is NaN without one
 * @typedef {"data"|"selection"|"pointer"|"options"} Change
 */

export const STATES = {
  completed: "Completed", running: "Running", pruned: "Stopped early", stopped: "Stopped", failed: "Failed", unmeasured: "No objective",
};

export class Study {
  /** @param {object} given the data of the page */
  constructor(given) {
    this.given = given;
    this.state = given.state;
    /** @type {Map<number, Trial>} */
    this.byNumber = new Map();
    this.trials = [];
    this.definitions = given.definitions.map((each) => ({ ...each, axes: each.axes.map((axis) => new HyperparameterAxis(axis)).filter((axis) => !axis.isConstant) }));
    this.chosenDefinition = "";
    /** Ranges that selected trials lie in, by what they are of: p:NAME, objective, number, time or curve. @type {Map<string, number[]>} */
    this.brushes = new Map();
    this.words = () => true;
    this.hovered = null;
    this.pinned = null;
    this.options = { log: false, clip: true };
    this.rungs = [];
    this.listeners = new Set();
    this.#measure();
  }

  /** @param {(change: Change) => void} listener */
  subscribe(listener) {
    this.listeners.add(listener);
  }

  /** @param {Trial[]} changed */
  putTrials(changed) {
    for (const trial of changed) {
      const curve = this.byNumber.get(trial.number)?.curve;
      this.byNumber.set(trial.number, { ...trial, curve });
    }
    if (changed.length > 0) this.#change();
  }

  /** @param {[number, number, number[], number[]][]} changed @param {number[]} rungs */
  putCurves(changed, rungs) {
    this.rungs = rungs;
    for (const [number, total, reports, values] of changed) {
      const trial = this.byNumber.get(number);
      if (trial) trial.curve = { total, reports, values };
    }
    this.#change();
  }

  putState(state) {
    this.state = state;
    this.#tell("data");
  }

  #change() {
    this.trials = [...this.byNumber.values()].sort((one, other) => one.number - other.number);
    for (const trial of this.trials) {
      trial.state = stateOf(trial);
      trial.value = valueOf(trial);
    }
    this.#measure();
    this.#tell("data");
  }

  /** The definition whose hyperparameters the charts show: the chosen one, or that of the best trial. */
  get definition() {
    const chosen = this.definitions.find((each) => each.name === this.chosenDefinition);
    return chosen ?? this.definitions.find((each) => each.name === (this.best?.definition ?? "")) ?? this.definitions[0];
  }

  get metric() {
    return this.definition.metric;
  }

  get isMaximized() {
    return this.definition.isMaximized;
  }

  /** The trials that the charts show: of the chosen definition, or all. */
  get shown() {
    return this.chosenDefinition ? this.trials.filter((each) => (each.definition ?? "") === this.chosenDefinition) : this.trials;
  }

  /** The trials of the definition whose hyperparameters are shown. */
  get shownOfDefinition() {
    const { name } = this.definition;
    return this.definitions.length > 1 ? this.trials.filter((each) => (each.definition ?? "") === name) : this.trials;
  }

  axis(name) {
    return this.definition.axes.find((each) => each.name === name);
  }

  /** The best result of the parents of a warm start, if it can be compared: they had the same data and algorithm. */
  get bestOfParents() {
    const { parents } = this.given;
    const bests = parents?.isIdentical ? parents.bests.filter((each) => each !== null) : [];
    return bests.length > 0 ? bests.reduce((best, each) => (this.isBetter(each, best) ? each : best)) : null;
  }

  isBetter(one, other) {
    return this.isMaximized ? one > other : one < other;
  }

  /** Find the best trial, and the range in which the charts show the objective. */
  #measure() {
    const measured = this.shown.filter((each) => each.isMeasured);
    this.best = measured.reduce((best, each) => (best === null || this.#isBetterIn(each, best) ? each : best), null);
    const values = this.shown.map((each) => each.value).filter(Number.isFinite).sort((one, other) => one - other);
    this.canBeLog = values.length > 0 && values[0] > 0;
    this.isLog = this.options.log && this.canBeLog;
    this.range = rangeOf(values, this.isMaximized, this.options.clip);
  }

  #isBetterIn(one, other) {
    return this.definitions[0].isMaximized ? one.value > other.value : one.value < other.value;
  }

  /** The scale of the objective. Values beyond its ends lie at its edge. @returns {Scale} */
  get objectiveScale() {
    const kind = this.isLog ? "log" : "number";
    const [low, high] = this.isLog ? this.range.map(Math.log10) : this.range;
    const margin = (high - low || Math.abs(low) || 1) * 0.06;
    return new Scale(kind, low - margin, high + margin);
  }

  /** How good a value is, from 0 for the worst that is shown to 1 for the best. */
  goodness(value) {
    const [low, high] = this.isLog ? this.range.map(Math.log10) : this.range;
    const place = Math.max(0, Math.min(1, ((this.isLog ? Math.log10(value) : value) - low) / (high - low || 1)));
    return this.isMaximized ? place : 1 - place;
  }

  /** The colour of a value: the better, the more it stands out from the page. */
  colour(value) {
    if (!Number.isFinite(value)) return theme().faint;
    const goodness = this.goodness(value);
    return paletteColour(sequential(), theme().isDark ? 0.15 + 0.85 * goodness : 0.85 * (1 - goodness));
  }

  /** Where a trial lies in what brushes are of. */
  place(trial, key) {
    if (key === "objective") return trial.value;
    if (key === "number") return trial.number;
    return this.axis(key.slice(2))?.position(trial.values[key.slice(2)]) ?? NaN;
  }

  isSelected(trial) {
    // All charts ask for all trials at each step of a brush.
    this.admitted ??= new Set(this.trials.filter((each) => this.#admits(each)));
    return this.admitted.has(trial);
  }

  #admits(trial) {
    for (const [key, [low, high, from, to]] of this.brushes) {
      if (key === "curve") {
        if (!passes(trial, low, high, from, to)) return false;
      } else if (key === "time") {
        if (!(startOf(trial) <= high && endOf(trial) >= low)) return false;
      } else {
        const place = this.place(trial, key);
        if (!(place >= low && place <= high)) return false;
      }
    }
    return this.words(trial);
  }

  get isFiltered() {
    return this.brushes.size > 0;
  }

  get selected() {
    return this.shown.filter((each) => this.isSelected(each));
  }

  /** @param {Object<string, number[]|null>} changes null removes a brush */
  brush(changes) {
    for (const [key, range] of Object.entries(changes)) {
      if (range) this.brushes.set(key, range);
      else this.brushes.delete(key);
    }
    this.#tell("selection");
  }

  clearBrushes() {
    this.brushes.clear();
    this.#tell("selection");
  }

  /** @param {(trial: Trial) => boolean} words whether the text filter of the table admits a trial */
  filter(words) {
    this.words = words;
    this.#tell("selection");
  }

  hover(number) {
    if (this.hovered === number) return;
    this.hovered = number;
    this.#tell("pointer");
  }

  pin(number) {
    this.pinned = this.pinned === number ? null : number;
    this.#tell("pointer");
    this.#tell("pin");
  }

  /** The trials to draw over all others. @returns {Trial[]} */
  get marked() {
    return [this.pinned, this.hovered].map((number) => this.byNumber.get(number)).filter((each, place, all) => each && all.indexOf(each) === place);
  }

  set(options) {
    Object.assign(this.options, options);
    this.#measure();
    this.#tell("options");
  }

  choose(definition) {
    this.chosenDefinition = definition;
    this.brushes.clear();
    this.#measure();
    this.#tell("options");
  }

  /** What a tooltip tells of a trial. @param {Trial} trial @returns {{title: string, rows: import("../../charts/tooltip.js").TipRow[]}} */
  tip(trial) {
    const rows = [{ name: this.metric, value: Number.isFinite(trial.value) ? formatNumber(trial.value) : "–", colour: this.colour(trial.value), isNear: true }];
    for (const [name, value] of Object.entries(trial.values).slice(0, 10)) rows.push({ name, value: shortValue(value) });
    if (trial.curve && trial.state !== "completed") rows.push({ name: "reports", value: String(trial.curve.total) });
    return { title: `Trial ${trial.number} · ${STATES[trial.state].toLowerCase()}`, rows };
  }

  #tell(change) {
    if (change !== "pointer" && change !== "pin") this.admitted = null;
    for (const listener of this.listeners) listener(change);
  }
}

/** @param {Trial} trial @returns {number} seconds since 1970 */
export function startOf(trial) {
  return Date.parse(trial.started ?? trial.created) / 1000;
}

/** @param {Trial} trial @returns {number} seconds since 1970; now for a trial that runs */
export function endOf(trial) {
  return trial.ended ? Date.parse(trial.ended) / 1000 : trial.status === "InProgress" ? Date.now() / 1000 : startOf(trial);
}

/** @param {Trial} trial */
export function durationText(trial) {
  const seconds = endOf(trial) - startOf(trial);
  return Number.isFinite(seconds) ? formatDuration(Math.max(0, seconds)) : "–";
}

function stateOf(trial) {
  if (trial.status === "InProgress") return "running";
  if (trial.status === "Failed") return "failed";
  if (trial.status === "Stopped") return trial.cause === "early" || trial.cause === "rule" ? "pruned" : "stopped";
  return trial.isMeasured ? "completed" : "unmeasured";
}

function valueOf(trial) {
  if (trial.objective !== undefined) return trial.objective;
  if (trial.state !== "running") return NaN;
  return trial.curve?.values.at(-1) ?? NaN;
}

function rangeOf(sorted, isMaximized, isClipped) {
  if (sorted.length === 0) return [0, 1];
  let [low, high] = [sorted[0], sorted.at(-1)];
  if (isClipped && sorted.length >= MIN_CLIPPED) {
    const median = sorted[sorted.length >> 1];
    if (isMaximized && high > median) low = Math.max(low, median - CLIP_DISTANCES * (high - median));
    if (!isMaximized && low < median) high = Math.min(high, median + CLIP_DISTANCES * (median - low));
  }
  return [low, high];
}

function passes(trial, fromReport, toReport, fromValue, toValue) {
  const { reports, values } = trial.curve ?? { reports: [], values: [] };
  return reports.some((report, at) => report >= fromReport && report <= toReport && values[at] >= fromValue && values[at] <= toValue);
}

let colours = null;
function sequential() {
  colours ??= palette("sequential");
  return colours;
}
