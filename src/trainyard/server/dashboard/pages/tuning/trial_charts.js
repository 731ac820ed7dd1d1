/** The charts of a study that show trials as points: history, slices and the contour. */

import { Scale } from "../../charts/scales.js";
import { Scatter } from "../../charts/scatter.js";
import { make } from "../../charts/surface.js";
import { palette, paletteColour, theme } from "../../charts/theme.js";
import { formatNumber } from "../../format.js";
import { showInvisible } from "../../text.js";

const LEVELS = 9;
// The part of the history that is for trials without an objective.
const LANE = 0.12;
const SHAPES = { completed: "dot", running: "ring", pruned: "triangle", stopped: "square", failed: "cross", unmeasured: "cross" };

/** What all charts of trials do with a pointer. @param {import("./study.js").Study} study */
export function pointerActions(study) {
  return {
    onHover: (number) => study.hover(number),
    onPick: (number) => study.pin(number),
    tip: (number) => study.tip(study.byNumber.get(number)),
  };
}

/** The colour by which a state is told from others; the shape of a point tells it, too. */
export function stateColour(state) {
  return theme().series({ completed: 2, running: 0, pruned: 1, failed: 3 }[state] ?? 9);
}

/** The objective of each trial in order, and the best so far. */
export class HistoryChart {
  constructor(element, study) {
    this.study = study;
    this.chart = new Scatter(element, {
      label: "Objective of each trial, and the best so far", height: 300, xLabel: "trial",
      ...pointerActions(study),
      onBox: (box) => study.brush({ number: box?.x ?? null, objective: box?.y ?? null }),
    });
  }

  draw() {
    const { study } = this;
    const trials = study.shown;
    const hasLane = trials.some((each) => !Number.isFinite(each.value) && each.state !== "running");
    const scale = study.objectiveScale;
    const y = hasLane ? withLane(scale, study.isMaximized) : scale;
    const lane = y.value(study.isMaximized ? 0.02 : 0.98);
    const points = trials.map((trial) => ({
      id: trial.number, x: trial.number, y: Number.isFinite(trial.value) ? beside(trial.value, scale, hasLane) : trial.state === "running" ? NaN : lane,
      colour: stateColour(trial.state), shape: SHAPES[trial.state], isFaint: !study.isSelected(trial),
    }));
    const lines = [{ points: bestSoFar(study, trials), colour: theme().accent, width: 2, isStep: true }];
    const parents = study.bestOfParents;
    if (parents !== null && trials.length > 0) lines.push({ points: [[trials[0].number, parents], [trials.at(-1).number, parents]], colour: theme().faint, width: 1.5, isDashed: true });
    const isEmpty = !trials.some((each) => Number.isFinite(each.value));
    this.chart.setData({
      points: isEmpty ? [] : points, lines: isEmpty ? [] : lines,
      x: wholeNumbers(new Scale("number", 0.5 - 0.02 * trials.length, Math.max(2, trials.at(-1)?.number ?? 1) + 0.5 + 0.02 * trials.length)), y, yLabel: study.metric,
      box: boxOf(study, "number", "objective"), empty: "No trial has an objective yet",
    });
  }

  mark(numbers) {
    this.chart.mark(numbers);
  }
}

/** The scale of what is counted: without ticks between whole numbers. */
function wholeNumbers(scale) {
  return {
    fraction: (value) => scale.fraction(value), value: (fraction) => scale.value(fraction), format: (value) => scale.format(value),
    ticks: (count) => scale.ticks(count).filter((tick) => Number.isInteger(tick.value)).map((tick) => ({ ...tick, text: String(tick.value) })),
  };
}

/** The scale of the objective with room at its worse end for trials without an objective. */
function withLane({ kind, low, high }, isMaximized) {
  const room = (high - low) * LANE;
  return isMaximized ? new Scale(kind, low - room, high) : new Scale(kind, low, high + room);
}

/** A value within the scale of the objective, so that none lies among the trials without an objective. */
function beside(value, scale, hasLane) {
  if (!hasLane) return value;
  const place = scale.fraction(value);
  return place > 1 ? scale.value(1) : place < 0 ? scale.value(0) : value;
}

function bestSoFar(study, trials) {
  const points = [];
  let best = NaN;
  for (const trial of trials) {
    if (!trial.isMeasured || !(Number.isNaN(best) || study.isBetter(trial.value, best))) continue;
    best = trial.value;
    points.push([trial.number, best]);
  }
  if (points.length > 0) points.push([trials.at(-1).number, best]);
  return points;
}

/** The objective over each hyperparameter, with the partial dependence. */
export class SliceCharts {
  constructor(element, study) {
    Object.assign(this, { element, study, charts: new Map() });
  }

  /** @param {object|null} survey @param {string[]} ranking the names of the hyperparameters in the order of the charts, as far as it is known */
  draw(survey, ranking) {
    const { study } = this;
    const rank = (axis) => (ranking.includes(axis.name) ? ranking.indexOf(axis.name) : ranking.length);
    const axes = [...study.definition.axes].sort((one, other) => rank(one) - rank(other));
    const names = axes.map((each) => each.name).join("\n");
    if (names !== this.names) this.#make(axes);
    this.names = names;
    const trials = study.shownOfDefinition.filter((each) => Number.isFinite(each.value));
    const highest = trials.at(-1)?.number ?? 1;
    const dependences = new Map(survey?.Dependences.map((each) => [each.Name, each]));
    const words = palette("sequential");
    const recency = (number) => paletteColour(words, theme().isDark ? 0.2 + 0.75 * (number / highest) : 0.8 * (1 - number / highest));
    for (const axis of axes) {
      const dependence = dependences.get(axis.name);
      const line = dependence && { points: dependence.Positions.map((position, number) => [position, dependence.Values[number]]), colour: theme().series(3), width: 2, isBars: axis.isCategorical };
      this.charts.get(axis.name).setData({
        points: trials.map((trial) => ({
          id: trial.number, x: axis.position(trial.values[axis.name]), y: trial.value, colour: recency(trial.number), shape: SHAPES[trial.state], isFaint: !study.isSelected(trial),
        })).filter((point) => !Number.isNaN(point.x)),
        lines: line ? [line] : [], x: axis.scale, y: study.objectiveScale, box: boxOf(study, `p:${axis.name}`, "objective"), empty: "No objective yet",
      });
    }
  }

  mark(numbers) {
    for (const chart of this.charts.values()) chart.mark(numbers);
  }

  #make(axes) {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
    this.element.replaceChildren();
    for (const axis of axes) {
      const box = make("figure", "slice");
      const plot = make("div");
      box.append(Object.assign(make("figcaption", "slice-name mono", axis.name), { title: showInvisible(axis.name) }), plot);
      this.element.append(box);
      const key = `p:${axis.name}`;
      this.charts.set(axis.name, new Scatter(plot, {
        label: `Objective over ${axis.name}`, height: 180, ...pointerActions(this.study),
        onBox: (chosen) => this.study.brush({ [key]: chosen?.x ?? null, objective: chosen?.y ?? null }),
      }));
    }
  }
}

/** The objective over two hyperparameters, as the model of the survey sees it. */
export class ContourChart {
  constructor(element, study) {
    this.study = study;
    this.chart = new Scatter(element, {
      label: "Objective over two hyperparameters", height: 380, ...pointerActions(study),
      onBox: (box) => study.brush({ [`p:${this.names[0]}`]: box?.x ?? null, [`p:${this.names[1]}`]: box?.y ?? null }),
    });
    this.names = ["", ""];
  }

  /** @param {string[]} names @param {object|null} joint */
  draw(names, joint) {
    const { study } = this;
    const [across, up] = names.map((name) => study.axis(name));
    if (!across || !up) return this.chart.setData({ points: [], lines: [], field: null, x: null, empty: "A contour needs two hyperparameters" });
    this.names = names;
    const isFitting = joint && joint.Names[0] === names[0] && joint.Names[1] === names[1];
    const trials = study.shownOfDefinition.filter((each) => Number.isFinite(each.value));
    const points = trials.map((trial) => ({
      id: trial.number, x: across.position(trial.values[across.name]), y: up.position(trial.values[up.name]),
      colour: study.colour(trial.value), outline: theme().text, shape: SHAPES[trial.state], isFaint: !study.isSelected(trial),
    }));
    this.chart.setData({
      points: points.filter((point) => !Number.isNaN(point.x) && !Number.isNaN(point.y)), lines: [],
      field: isFitting ? { draw: (context, area) => drawField(context, area, { joint, across, up, study }) } : null,
      x: across.scale, y: up.scale, xLabel: across.name, yLabel: up.name, box: boxOf(study, `p:${across.name}`, `p:${up.name}`),
      empty: "No objective yet",
    });
  }

  mark(numbers) {
    this.chart.mark(numbers);
  }
}

/** The box of a chart over two brushes; null if neither is set. */
function boxOf(study, x, y) {
  const box = { x: study.brushes.get(x), y: study.brushes.get(y) };
  return box.x || box.y ? box : null;
}

function drawField(context, area, { joint, across, up, study }) {
  const { Rows: rows, FirstPositions: firsts, SecondPositions: seconds } = joint;
  const isSmooth = !across.isCategorical && !up.isCategorical;
  const image = new ImageData(firsts.length, rows.length);
  const probe = colourTable(study);
  for (const [row, values] of rows.entries()) {
    for (const [column, value] of values.entries()) {
      image.data.set(probe(value), ((rows.length - 1 - row) * firsts.length + column) * 4);
    }
  }
  const count = { across: across.isCategorical ? firsts.length : 1, up: up.isCategorical ? rows.length : 1 };
  const place = (x, y) => [area.left + across.scale.fraction(x) * area.width, area.top + (1 - up.scale.fraction(y)) * area.height];
  const [left, bottom] = place(0, 0);
  const [right, top] = place(1, 1);
  context.save();
  context.fillStyle = theme().surface;
  context.fillRect(left, top, right - left, bottom - top);
  context.globalAlpha = 0.75;
  // The middles of the outer cells lie at the ends of a scale of numbers; categories have whole cells.
  const [dx, dy] = [across.isCategorical ? 0 : (right - left) / Math.max(1, firsts.length - 1) / 2, up.isCategorical ? 0 : (bottom - top) / Math.max(1, rows.length - 1) / 2];
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
  // Categories do not blend, so each is a picture of its own.
  const [fromWidth, fromHeight] = [firsts.length / count.across, rows.length / count.up];
  const [toWidth, toHeight] = [(right - left) / count.across, (bottom - top) / count.up];
  context.imageSmoothingEnabled = !(across.isCategorical && up.isCategorical);
  for (let column = 0; column < count.across; column++) {
    for (let row = 0; row < count.up; row++) {
      const small = new OffscreenCanvas(fromWidth, fromHeight);
      small.getContext("2d").putImageData(image, -column * fromWidth, -row * fromHeight);
      context.drawImage(small, left + column * toWidth - dx, top + row * toHeight - dy, toWidth + 2 * dx, toHeight + 2 * dy);
    }
  }
  context.restore();
  if (isSmooth) drawLevels(context, rows, firsts, seconds, place);
}

/** The colours of a field; made once for each drawing, because reading a colour of CSS is slow. */
function colourTable(study) {
  const words = palette("sequential");
  return (value) => {
    const goodness = study.goodness(value);
    const word = words[Math.round(255 * (theme().isDark ? 0.15 + 0.85 * goodness : 0.85 * (1 - goodness)))];
    return [word & 255, (word >> 8) & 255, (word >> 16) & 255, 255];
  };
}

/** Lines of equal height, by marching squares. */
function drawLevels(context, rows, firsts, seconds, place) {
  const all = rows.flat();
  const [low, high] = [Math.min(...all), Math.max(...all)];
  context.strokeStyle = theme().surface;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  for (let number = 1; number < LEVELS; number++) {
    const level = low + ((high - low) * number) / LEVELS;
    for (let row = 0; row + 1 < rows.length; row++) {
      for (let column = 0; column + 1 < firsts.length; column++) {
        const corners = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
        const crossed = [];
        for (let side = 0; side < 4; side++) {
          const [from, to] = [corners[side], corners[(side + 1) % 4]];
          const [before, after] = [rows[from[1]][from[0]], rows[to[1]][to[0]]];
          if (before < level === after < level) continue;
          const share = (level - before) / (after - before);
          const along = (list, one, other) => list[one] + share * (list[other] - list[one]);
          crossed.push(place(along(firsts, from[0], to[0]), along(seconds, from[1], to[1])));
        }
        for (let pair = 0; pair + 1 < crossed.length; pair += 2) {
          context.moveTo(...crossed[pair]);
          context.lineTo(...crossed[pair + 1]);
        }
      }
    }
  }
  context.stroke();
  context.globalAlpha = 1;
}

/** What a brush selects, in words. @param {import("./study.js").Study} study @returns {string} */
export function brushText(study, key, [low, high]) {
  const number = (value) => (Number.isFinite(value) ? formatNumber(Number(value.toPrecision(3))) : "");
  const between = (from, to) => (from === "" ? `≤ ${to}` : to === "" ? `≥ ${from}` : `${from} – ${to}`);
  if (key === "objective") return `${study.metric} ${between(number(low), number(high))}`;
  if (key === "number") return `trials ${Math.max(1, Math.ceil(low))} – ${Math.floor(high)}`;
  if (key === "curve") return "curves through a box";
  if (key === "time") return "a span of time";
  const axis = study.axis(key.slice(2));
  if (!axis) return key.slice(2);
  const [from, to] = axis.isCategorical ? [axis.textAt(low + 1e-6), axis.textAt(high - 1e-6)] : [axis.textAt(low), axis.textAt(high)];
  return `${axis.name} ${from === to ? from : `${from} – ${to}`}`;
}
