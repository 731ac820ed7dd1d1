/** The charts of a study that show how trials ran: their learning curves, and when each ran in which slot. */

import { drawNotice, drawXAxis, drawYAxis, layOut } from "../../charts/axes.js";
import { Scale, formatSpan, formatValue } from "../../charts/scales.js";
import { Surface } from "../../charts/surface.js";
import { theme } from "../../charts/theme.js";
import { Tooltip } from "../../charts/tooltip.js";
import { Gestures } from "../../charts/zoom.js";
import { formatNumber } from "../../format.js";
import { STATES, endOf, startOf } from "./study.js";
import { stateColour } from "./trial_charts.js";

const REACH = 10;
const HEIGHT = { full: 380, empty: 96 };
const ROW = { most: 22, least: 5 };
const HEAD = 6;
const FOOT = 24;

/** The objective of trials at each report. A box selects the trials whose curves pass through it. */
export class CurvesChart {
  /** @param {HTMLElement} element @param {import("./study.js").Study} study */
  constructor(element, study) {
    this.study = study;
    this.marked = [];
    this.area = { left: 0, top: 0, width: 1, height: 1 };
    this.surface = new Surface(element, {
      label: "Learning curves of the trials", height: HEIGHT.full, hint: "Arrow up and down go from curve to curve, Enter picks one, Escape shows all. T shows a table.",
      draw: (context) => this.#draw(context), drawOverlay: (context) => this.#drawOverlay(context), onKey: (event) => this.#press(event), table: () => this.#table(),
    });
    this.tooltip = new Tooltip(this.surface);
    this.gestures = new Gestures(this.surface, {
      area: () => this.area,
      onHover: (x, y) => this.#hover(x, y),
      onLeave: () => this.#leave(),
      onClick: () => study.hovered !== null && study.pin(study.hovered),
      onZoom: (box) => this.#select(box),
      onReset: () => study.brush({ curve: null }),
    });
  }

  draw() {
    this.surface.setHeight(this.#trials.length === 0 ? HEIGHT.empty : HEIGHT.full);
    this.surface.redraw();
  }

  mark(numbers) {
    this.marked = numbers;
    this.surface.redrawOverlay();
  }

  get #trials() {
    return this.study.shown.filter((each) => each.curve?.values.length > 0);
  }

  #draw(context) {
    const { study, surface } = this;
    const trials = this.#trials;
    this.isEmpty = trials.length === 0;
    if (this.isEmpty) return drawNotice(context, surface.width, surface.height, "No trial has reported its objective yet");
    const most = trials.reduce((longest, each) => Math.max(longest, each.curve.reports.at(-1)), 2);
    this.x = new Scale("number", 1 - most * 0.02, most * 1.02);
    this.y = this.#scale(trials);
    this.area = layOut(context, surface.width, surface.height, this.y, { xLabel: "report", yLabel: study.metric, top: 10 });
    drawXAxis(context, this.area, this.x, { label: "report" });
    drawYAxis(context, this.area, this.y, { label: study.metric });
    this.#drawRungs(context);
    const box = study.brushes.get("curve");
    if (box) this.#drawBox(context, box);
    context.save();
    const { left, top, width, height } = this.area;
    context.beginPath();
    context.rect(left, top - 4, width, height + 8);
    context.clip();
    context.lineJoin = "round";
    context.lineWidth = trials.length > 100 ? 1 : 1.5;
    const byValue = trials.sort((one, other) => (study.isBetter(one.value, other.value) ? 1 : -1));
    context.strokeStyle = theme().faint;
    context.globalAlpha = 0.12;
    context.beginPath();
    for (const trial of byValue) if (!study.isSelected(trial)) this.#trace(context, trial);
    context.stroke();
    context.globalAlpha = trials.length > 100 ? 0.55 : 0.85;
    for (const trial of byValue) {
      if (!study.isSelected(trial)) continue;
      context.strokeStyle = context.fillStyle = study.colour(lastOf(trial));
      context.beginPath();
      this.#trace(context, trial);
      context.stroke();
      this.#drawEnd(context, trial);
    }
    context.restore();
  }

  /** Curves begin far from where they end, so the scale of the results does not fit them. */
  #scale(trials) {
    const values = trials.flatMap((each) => each.curve.values).sort((one, other) => one - other);
    let [low, high] = [values[0], values.at(-1)];
    if (this.study.options.clip && values.length > 20) {
      const at = (share) => values[Math.floor(share * (values.length - 1))];
      if (this.study.isMaximized) low = Math.max(low, at(0.02) - 0.5 * (high - at(0.02)));
      else high = Math.min(high, at(0.98) + 0.5 * (at(0.98) - low));
    }
    const isLog = this.study.isLog && values[0] > 0;
    const ends = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
    const margin = (ends[1] - ends[0] || 1) * 0.05;
    return new Scale(isLog ? "log" : "number", ends[0] - margin, ends[1] + margin);
  }

  #place(report, value) {
    const { left, top, width, height } = this.area;
    return [left + this.x.fraction(report) * width, top + (1 - this.y.fraction(value)) * height];
  }

  #trace(context, { curve: { reports, values } }) {
    for (let number = 0; number < reports.length; number++) context[number ? "lineTo" : "moveTo"](...this.#place(reports[number], values[number]));
    if (reports.length === 1) context.lineTo(...this.#place(reports[0] + 0.01, values[0]));
  }

  /** A triangle where a trial was stopped early, a dot where one runs or has reported only once. */
  #drawEnd(context, trial) {
    const [x, y] = this.#place(trial.curve.reports.at(-1), lastOf(trial));
    context.beginPath();
    if (trial.state === "pruned") {
      context.moveTo(x - 4, y - 4);
      context.lineTo(x + 4, y - 4);
      context.lineTo(x, y + 4);
      context.closePath();
      context.fill();
    } else if (trial.state === "running" || trial.curve.reports.length === 1) {
      context.arc(x, y, 3.5, 0, 7);
      context.fill();
    }
  }

  #drawRungs(context) {
    const { top, height } = this.area;
    context.strokeStyle = context.fillStyle = theme().faint;
    context.setLineDash([2, 4]);
    context.textAlign = "left";
    for (const rung of this.study.rungs) {
      const [x] = this.#place(rung, 0);
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, top);
      context.lineTo(Math.round(x) + 0.5, top + height);
      context.stroke();
      context.fillText(`rung ${rung}`, x + 3, top + 6);
    }
    context.setLineDash([]);
  }

  #drawBox(context, [fromReport, toReport, low, high]) {
    const { left, top, width, height } = this.area;
    const [x0] = this.#place(Math.max(fromReport, this.x.value(0)), 1);
    const [x1] = this.#place(Math.min(toReport, this.x.value(1)), 1);
    const y = (value) => Math.max(top, Math.min(top + height, this.#place(1, value)[1]));
    const [bottom, above] = [Number.isFinite(low) ? y(low) : top + height, Number.isFinite(high) ? y(high) : top];
    context.strokeStyle = context.fillStyle = theme().accent;
    context.globalAlpha = 0.12;
    context.fillRect(Math.max(left, x0), above, Math.min(left + width, x1) - x0, bottom - above);
    context.globalAlpha = 0.7;
    context.strokeRect(Math.round(x0) + 0.5, Math.round(above) + 0.5, Math.round(x1 - x0), Math.round(bottom - above));
    context.globalAlpha = 1;
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (this.isEmpty || !this.x) return;
    for (const number of this.marked) {
      const trial = this.study.byNumber.get(number);
      if (!trial?.curve?.values.length) continue;
      context.lineJoin = "round";
      for (const [width, colour] of [[5, theme().surface], [2.5, this.study.colour(lastOf(trial))]]) {
        context.strokeStyle = context.fillStyle = colour;
        context.lineWidth = width;
        context.beginPath();
        this.#trace(context, trial);
        context.stroke();
      }
      this.#drawEnd(context, trial);
    }
  }

  #hover(px, py) {
    if (this.isEmpty || !this.x) return;
    let [best, distance, at] = [null, REACH, 0];
    for (const trial of this.#trials) {
      if (!this.study.isSelected(trial)) continue;
      const { reports, values } = trial.curve;
      for (let number = 0; number < reports.length; number++) {
        const [x, y] = this.#place(reports[number], values[number]);
        let away = Math.hypot(x - px, y - py);
        if (number + 1 < reports.length) {
          const [nextX, nextY] = this.#place(reports[number + 1], values[number + 1]);
          away = Math.min(away, distanceFrom([px, py], [x, y], [nextX, nextY]));
        }
        if (away < distance) [best, distance, at] = [trial, away, number];
      }
    }
    this.study.hover(best ? best.number : null);
    if (!best) return this.tooltip.hide();
    const { title, rows } = this.study.tip(best);
    this.tooltip.show(px, py, title, [{ name: `at report ${best.curve.reports[at]}`, value: formatNumber(best.curve.values[at]) }, ...rows]);
  }

  #leave() {
    this.tooltip.hide();
    this.study.hover(null);
  }

  #select({ left, right, top, bottom, axes }) {
    const { area } = this;
    const reports = [this.x.value((left - area.left) / area.width), this.x.value((right - area.left) / area.width)];
    const [low, high] = [1 - (bottom - area.top) / area.height, 1 - (top - area.top) / area.height];
    const values = [low <= 0 ? -Infinity : this.y.value(low), high >= 1 ? Infinity : this.y.value(high)];
    this.study.brush({ curve: [...(axes === "y" ? [-Infinity, Infinity] : reports), ...(axes === "x" ? [-Infinity, Infinity] : values)] });
  }

  #press(event) {
    const { study } = this;
    if (event.key === "Enter" && study.hovered !== null) study.pin(study.hovered);
    else if (event.key === "Escape") study.brush({ curve: null });
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const trials = this.#trials.filter((each) => study.isSelected(each)).sort((one, other) => lastOf(one) - lastOf(other));
      const at = trials.findIndex((each) => each.number === study.hovered);
      const trial = trials[Math.max(0, Math.min(trials.length - 1, at + (event.key === "ArrowUp" ? 1 : -1)))];
      if (!trial) return true;
      study.hover(trial.number);
      this.surface.announce(`Trial ${trial.number}, ${STATES[trial.state]}, ${trial.curve.total} reports, last ${formatNumber(lastOf(trial))}`);
    } else return false;
    return true;
  }

  #table() {
    const trials = this.#trials.filter((each) => this.study.isSelected(each));
    return { columns: ["trial", "state", "reports", "first", "last"], rows: trials.map((each) => [each.number, STATES[each.state], each.curve.total, formatNumber(each.curve.values[0]), formatNumber(lastOf(each))]) };
  }
}

/** When each trial ran, in which slot. Dragging selects the trials of a span of time. */
export class SlotsChart {
  /** @param {HTMLElement} element @param {import("./study.js").Study} study */
  constructor(element, study) {
    this.element = element;
    this.study = study;
    this.marked = [];
    this.bars = [];
    this.surface = new Surface(element, {
      label: "When each trial ran, in which slot", height: 90, hint: "Arrow left and right go from trial to trial, Enter picks one, Escape shows all. T shows a table.",
      draw: (context) => this.#draw(context), drawOverlay: (context) => this.#drawOverlay(context), onKey: (event) => this.#press(event), table: () => this.#table(),
    });
    this.tooltip = new Tooltip(this.surface);
    this.gestures = new Gestures(
      this.surface,
      {
        area: () => this.area,
        onHover: (x, y) => this.#hover(x, y),
        onLeave: () => this.#leave(),
        onClick: () => study.hovered !== null && study.pin(study.hovered),
        onZoom: ({ left, right }) => study.brush({ time: [left, right].map((x) => this.x.value((x - this.area.left) / this.area.width)) }),
        onReset: () => study.brush({ time: null }),
      },
      "x",
    );
  }

  draw() {
    this.bars = inSlots(this.study.shown);
    this.slots = this.bars.reduce((most, each) => Math.max(most, each.slot + 1), 1);
    this.row = Math.max(ROW.least, Math.min(ROW.most, Math.floor(320 / this.slots)));
    this.surface.setHeight(HEAD + FOOT + this.slots * this.row);
    this.surface.redraw();
  }

  mark(numbers) {
    this.marked = numbers;
    this.surface.redrawOverlay();
  }

  get area() {
    return { left: 36, top: HEAD, width: Math.max(1, this.surface.width - 48), height: this.slots * this.row };
  }

  #draw(context) {
    const { surface, study, bars } = this;
    if (bars.length === 0) return drawNotice(context, surface.width, surface.height, "No trial has started yet");
    const from = bars.reduce((first, each) => Math.min(first, each.from), Infinity);
    const to = bars.reduce((last, each) => Math.max(last, each.to), -Infinity);
    this.x = new Scale("time", from - (to - from) * 0.01, to + (to - from || 1) * 0.01);
    drawXAxis(context, this.area, this.x);
    context.textAlign = "right";
    context.fillStyle = theme().faint;
    if (this.row >= 12) for (let slot = 0; slot < this.slots; slot++) context.fillText(String(slot + 1), this.area.left - 8, HEAD + (slot + 0.5) * this.row);
    const time = study.brushes.get("time");
    if (time) {
      const [left, right] = time.map((value) => this.area.left + this.x.fraction(value) * this.area.width);
      context.fillStyle = theme().accent;
      context.globalAlpha = 0.12;
      context.fillRect(left, HEAD, right - left, this.area.height);
      context.globalAlpha = 1;
    }
    for (const bar of bars) this.#drawBar(context, bar, study.isSelected(bar.trial) ? 0.85 : 0.15);
    context.globalAlpha = 1;
  }

  #box({ from, to, slot }) {
    const { left, width } = this.area;
    const [x0, x1] = [from, to].map((value) => left + this.x.fraction(value) * width);
    return [x0, HEAD + slot * this.row + 1, Math.max(2, x1 - x0 - 1), this.row - (this.row > 8 ? 3 : 1)];
  }

  #drawBar(context, bar, alpha) {
    const [x, y, width, height] = this.#box(bar);
    context.globalAlpha = alpha;
    context.fillStyle = stateColour(bar.trial.state);
    context.fillRect(x, y, width, height);
    context.globalAlpha = 1;
    const text = String(bar.trial.number);
    if (this.row >= 16 && alpha > 0.5 && context.measureText(text).width + 8 < width) {
      context.fillStyle = theme().surface;
      context.textAlign = "left";
      context.fillText(text, x + 4, y + height / 2 + 0.5);
    }
    if (bar.trial.number === this.study.best?.number) {
      context.strokeStyle = theme().text;
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.75, y + 0.75, Math.max(1, width - 1.5), height - 1.5);
    }
  }

  #drawOverlay(context) {
    this.gestures.drawOverlay(context);
    if (!this.x) return;
    for (const number of this.marked) {
      const bar = this.bars.find((each) => each.trial.number === number);
      if (!bar) continue;
      const [x, y, width, height] = this.#box(bar);
      context.strokeStyle = theme().text;
      context.lineWidth = 2;
      context.strokeRect(x - 1, y - 1, width + 2, height + 2);
    }
  }

  #hover(px, py) {
    if (!this.x) return;
    const found = this.bars.find((bar) => {
      const [x, y, width, height] = this.#box(bar);
      return px >= x - 2 && px <= x + width + 2 && py >= y - 1 && py <= y + height + 1;
    });
    this.surface.plot.style.cursor = found ? "pointer" : "";
    this.study.hover(found ? found.trial.number : null);
    if (!found) return this.tooltip.hide();
    const { title, rows } = this.study.tip(found.trial);
    this.tooltip.show(px, py, title, [{ name: "ran for", value: formatSpan(Math.max(0, found.to - found.from)) }, ...rows]);
  }

  #leave() {
    this.tooltip.hide();
    this.study.hover(null);
  }

  #press(event) {
    const { study } = this;
    if (event.key === "Enter" && study.hovered !== null) study.pin(study.hovered);
    else if (event.key === "Escape") study.brush({ time: null });
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const at = this.bars.findIndex((each) => each.trial.number === study.hovered);
      const bar = this.bars[Math.max(0, Math.min(this.bars.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)))];
      if (!bar) return true;
      study.hover(bar.trial.number);
      this.surface.announce(`Trial ${bar.trial.number}, ${STATES[bar.trial.state]}, ran for ${formatSpan(Math.max(0, bar.to - bar.from))} in slot ${bar.slot + 1}`);
    } else return false;
    return true;
  }

  #table() {
    return { columns: ["trial", "slot", "start", "duration", "state"], rows: this.bars.map((each) => [each.trial.number, each.slot + 1, formatValue(each.from, "time"), formatSpan(Math.max(0, each.to - each.from)), STATES[each.trial.state]]) };
  }
}

/** Give each trial the first slot that is free when it starts. */
function inSlots(trials) {
  const free = [];
  const ran = trials.map((trial) => ({ trial, from: startOf(trial), to: endOf(trial) })).filter((each) => Number.isFinite(each.from));
  ran.sort((one, other) => one.from - other.from || one.trial.number - other.trial.number);
  for (const bar of ran) {
    const found = free.findIndex((end) => end <= bar.from);
    bar.slot = found < 0 ? free.length : found;
    free[bar.slot] = bar.to;
  }
  return ran;
}

function lastOf(trial) {
  return trial.curve.values.at(-1);
}

function distanceFrom([x, y], [x0, y0], [x1, y1]) {
  const length = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  const share = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length));
  return Math.hypot(x0 + share * (x1 - x0) - x, y0 + share * (y1 - y0) - y);
}
