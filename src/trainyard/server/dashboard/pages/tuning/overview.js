/** What stands beside the charts of a study: the best trial, limits, the next suggestion, and the trial that is compared. */

import { Bars } from "../../charts/bars.js";
import { theme } from "../../charts/theme.js";
import { formatDuration, formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { shortValue } from "./hyperparameter_axis.js";
import { STATES, durationText } from "./study.js";

/** The figures above the charts. @param {HTMLElement} place @param {import("./study.js").Study} study */
export function drawFigures(place, study) {
  const { state, best } = study;
  const stopped = study.shown.filter((each) => each.state === "pruned").length;
  const best_ = best ? element`<a href=${`/-/training/${best.job}`}>trial ${best.number}</a>` : "no trial has been measured";
  replaceChildren(
    place,
    stat(`Best ${study.metric}, ${study.isMaximized ? "higher" : "lower"} is better`, best ? formatNumber(best.value) : "–", best_),
    stat("Trials", `${study.trials.length}`, `${state.measured} measured`),
    stat("Running", String(state.running), study.given.limits.parallel ? `of ${study.given.limits.parallel} ${study.given.limits.parallel === 1 ? "slot" : "slots"}` : ""),
    stat("Stopped early", String(stopped), shareOf(stopped, study.trials.length)),
    stat("Failed", String(state.failed), shareOf(state.failed, study.trials.length)),
  );
}

function shareOf(count, all) {
  return all > 0 && count > 0 ? `${Math.round((100 * count) / all)} %` : "";
}

function stat(label, value, note) {
  return element`<div class="stat"><span class="stat-label">${showInvisible(label)}</span><span class="stat-value">${value}</span><span class="stat-note">${note || "\u00a0"}</span></div>`;
}

/** The values of the best trial, and the command that runs a job with them. */
export function drawBest(place, study) {
  const { best } = study;
  place.hidden = best === null;
  if (best === null) return replaceChildren(place);
  const command = `trainyard run train.py -- $(trainyard tune best ${study.given.name} --arguments)`;
  replaceChildren(
    place,
    element`<dl class="values">${Object.entries(best.values).map(([name, value]) => fact(name, shortValue(value)))}</dl>`,
    element`<span class="copyable"><code>${command}</code><button class="button button-quiet" type="button" data-copies=${command}>Copy</button></span>`,
  );
}

/** Why the search is in the state that it is in. */
export function drawNotices(place, list, study) {
  const { state } = study;
  const notices = [];
  const isOver = ["Completed", "Failed", "Stopped"].includes(state.status);
  if (state.failure) notices.push(notice("error", state.failure));
  else if (state.stopReason) notices.push(notice("", `${isOver ? "Why it ended" : "No further trial starts"}: ${state.stopReason}`));
  const [waiting, others] = [true, false].map((isWaiting) => state.notes.filter((each) => each.startsWith("Trials wait") === isWaiting));
  if (!isOver) for (const note of waiting) notices.push(notice("warn", note));
  replaceChildren(list, others.map((each) => element`<li>${showInvisible(each)}</li>`));
  list.closest("dd").hidden = list.closest("dd").previousElementSibling.hidden = others.length === 0;
  replaceChildren(place, notices);
  place.hidden = notices.length === 0;
}

function notice(kind, text) {
  return element`<div class=${`notice${kind ? ` notice-${kind}` : ""}`} role=${kind === "error" ? "alert" : false}>${showInvisible(text)}</div>`;
}

/** How much of each limit is used. @param {Bars} bars @param {import("./study.js").Study} study @param {number} runtime seconds */
export function drawLimits(place, study, runtime) {
  const { limits } = study.given;
  const { state } = study;
  const isRunning = ["InProgress", "Stopping"].includes(state.status);
  const rows = [];
  if (limits.trials) rows.push(limit("Trials", state.planned / limits.trials, `${state.planned} of ${limits.trials}`));
  if (isRunning) rows.push(limit("Slots", state.running / limits.parallel, `${state.running} of ${limits.parallel}`));
  rows.push(limit("Time", limits.runtime ? runtime / limits.runtime : null, limits.runtime ? `${formatDuration(runtime)} of ${formatDuration(limits.runtime)}` : `${formatDuration(runtime)}, no limit`));
  if (limits.withoutImprovement) rows.push(limit("Trials without improvement", state.notImproving / limits.withoutImprovement, `${state.notImproving} of ${limits.withoutImprovement}`));
  if (limits.target !== null) rows.push(limit("Target", null, `${formatNumber(limits.target)}${study.best ? `, best ${formatNumber(study.best.value)}` : ""}`));
  if (limits.onConvergence) rows.push(limit("Convergence", null, state.convergedAt ? "reached" : "not yet"));
  replaceChildren(place, rows);
}

function limit(name, share, text) {
  const row = element`<div class="limit"><span class="limit-name">${name}</span><span class="limit-text">${text}</span></div>`;
  if (share === null) return row;
  const track = element`<span class="limit-track"><span></span></span>`;
  track.firstChild.style.width = `${Math.min(1, share) * 100}%`;
  row.append(track);
  return row;
}

/** The suggestion for the next trial. @param {object|null} answer of ExplainNextTrial; null while it is asked for */
export function drawNextTrial(place, study, answer) {
  if (answer.IsLast) {
    const isOver = ["Completed", "Failed", "Stopped"].includes(study.state.status);
    return replaceChildren(place, element`<p class="faint">None. ${isOver ? "The search is over." : showInvisible(answer.Reasons.join(" "))}</p>`);
  }
  const values = Object.entries(answer.HyperParameters).map(([name, value]) => fact(name, shortValue(value)));
  if (answer.DefinitionName) values.unshift(fact("Algorithm", answer.DefinitionName));
  const expected = answer.ExpectedObjective;
  const known =
    expected === undefined
      ? []
      : [element`<p class="next-expected"><span class="stat-value">${formatNumber(Number(expected.toPrecision(4)))}</span> <span class="faint">± ${formatNumber(Number(answer.StandardDeviation.toPrecision(2)))} ${showInvisible(study.metric)} expected · ${percent(answer.ImprovementProbability)} to be the best</span></p>`];
  replaceChildren(
    place,
    known,
    element`<dl class="values">${values}</dl>`,
    element`<ul class="reasons">${answer.Reasons.map((each) => element`<li>${showInvisible(each)}</li>`)}</ul>`,
  );
}

function fact(name, value) {
  return element`<div><dt title=${showInvisible(name)}>${showInvisible(name)}</dt><dd class="mono" title=${showInvisible(value)}>${showInvisible(value)}</dd></div>`;
}

function percent(share) {
  return share < 0.01 ? "< 1 %" : share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`;
}

const TOGETHER = "color-mix(in srgb, var(--chart-1) 35%, var(--surface))";

/** The share of the variance that each hyperparameter explains, alone and together with others. */
export class ImportanceChart {
  constructor(place) {
    this.bars = new Bars(place, { label: "Importance of the hyperparameters", max: 1, empty: "", onSelect: (item) => this.onSelect?.(item.label) });
  }

  /** Which colour means what. */
  legend() {
    const items = [["alone", theme().series(0)], ["only together with others", TOGETHER]].map(([name, colour]) => {
      const item = element`<span><span class="chart-swatch"></span>${name}</span>`;
      item.firstChild.style.background = colour;
      return item;
    });
    return element`<span class="legend">${items}</span>`;
  }

  draw(survey) {
    const items = survey.Importances.map((each) => ({
      label: showInvisible(each.Name),
      detail: `${Math.round(100 * each.WithOthers)} %`,
      value: [
        { name: "alone", value: each.Alone, colour: theme().series(0) },
        { name: "only together with others", value: Math.max(0, each.WithOthers - each.Alone), colour: TOGETHER },
      ],
    }));
    this.bars.setData({ items });
  }
}

/** The trial that was picked, beside the best one. */
export function drawPinned(place, study) {
  const trial = study.byNumber.get(study.pinned);
  place.hidden = !trial;
  if (!trial) return replaceChildren(place);
  const { best } = study;
  const isBest = trial === best;
  const rows = [...new Set([...Object.keys(trial.values), ...Object.keys(best?.values ?? {})])].map((name) => {
    const [one, other] = [shortValue(trial.values[name]), shortValue(best?.values[name])];
    return element`<tr class=${one === other ? "faint" : false}><th scope="row">${showInvisible(name)}</th><td class="number mono">${showInvisible(one)}</td>${isBest ? "" : element`<td class="number mono">${showInvisible(other)}</td>`}</tr>`;
  });
  const objective = element`<tr><th scope="row">${showInvisible(study.metric)}</th><td class="number mono">${number(trial.value)}</td>${isBest ? "" : element`<td class="number mono">${number(best?.value)}</td>`}</tr>`;
  replaceChildren(
    place,
    element`<div class="card-head"><h2>Trial ${trial.number}${isBest ? ", the best" : ""}</h2>
      <span class="faint">${STATES[trial.state]} · ${durationText(trial)}${trial.curve ? ` · ${trial.curve.total} reports` : ""}</span>
      <button class="button button-small button-quiet button-icon" type="button" aria-label="Close the trial" onclick=${() => study.pin(trial.number)}>×</button></div>`,
    trial.reason ? element`<p class="pinned-reason">${showInvisible(trial.reason)}</p>` : "",
    element`<div class="scroll" tabindex="0" role="region" aria-label="Values of the trial"><table class="pinned-table"><thead><tr><td></td><th scope="col" class="number">trial ${trial.number}</th>${isBest ? "" : element`<th scope="col" class="number">best${best ? `, trial ${best.number}` : ""}</th>`}</tr></thead><tbody>${[objective, ...rows]}</tbody></table></div>`,
    element`<div class="pinned-actions"><a class="button button-small" href=${`/-/training/${trial.job}`}>Open the training job</a>${isBest || !best ? "" : element`<a class="button button-small" href=${`/-/compare?jobs=${trial.job},${best.job}`}>Compare the training jobs</a>`}</div>`,
  );
}

function number(value) {
  return value !== undefined && Number.isFinite(value) ? formatNumber(value) : "–";
}
