/** The columns that the list can have, and what their cells show. */

import { drawSparkline } from "../../charts/sparkline.js";
import { formatDuration, formatMoney, formatNumber, formatRelativeTime, formatTime } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { runColour } from "../../run_colours.js";
import { showInvisible } from "../../text.js";

/**
 * @typedef {{key: string, title: string, note?: string, about?: string, isNumber?: boolean, sort?: string,
 *   render: (row: object) => any}} Column `note` says which value of a metric, `sort` is what the server sorts by
 */

export const AGGREGATES = { last: "last", min: "lowest", max: "highest", best: "best", count: "number of values" };
export const STATES = ["waiting", "running", "stopping", "completed", "failed", "stopped"];
const BADGES = { waiting: "waiting", running: "running", completed: "completed", failed: "failed" };
const SHOWN_TAGS = 2;
const SPARKLINE = { width: 96, height: 24 };

const FIELDS = {
  status: { title: "Status", render: renderStatus },
  phase: { title: "Phase", render: (row) => row.phase },
  kind: { title: "Kind", render: (row) => row.kind },
  user: { title: "User", render: (row) => clipped(row.user) },
  image: { title: "Image", render: (row) => clipped(row.image) },
  type: { title: "Instances", render: renderTypes },
  instances: { title: "Instance count", isNumber: true, render: (row) => sum(row.types) },
  spot: { title: "Spot", render: (row) => (row.kind === "training" ? (row.spot ? "yes" : "no") : null) },
  engine: { title: "Engine", render: (row) => row.engine },
  created: { title: "Created", render: (row) => time(row.created) },
  modified: { title: "Changed", render: (row) => time(row.modified) },
  started: { title: "Started", render: (row) => time(row.started) },
  ended: { title: "Ended", render: (row) => time(row.ended) },
  duration: { title: "Duration", isNumber: true, render: renderDuration },
  cost: { title: "Cost", isNumber: true, render: (row) => (row.started ? money(row.cost) : null) },
  price: { title: "Price per hour", isNumber: true, render: (row) => money(row.price) },
  interruptions: { title: "Interruptions", isNumber: true, render: (row) => row.interruptions },
  tuning: { title: "Tuning job", render: renderTuningJob },
  failure: { title: "Failure", render: (row) => clipped(row.failure) },
  tags: { title: "Tags", render: renderTags },
};

/** @param {string} key such as status, metric:loss.min, param:lr, spark:loss or tag:team @returns {Column | null} */
export function columnOf(key) {
  if (Object.hasOwn(FIELDS, key)) return { key, sort: key === "tags" ? undefined : key, ...FIELDS[key] };
  const colon = key.indexOf(":");
  const name = key.slice(colon + 1);
  if (colon < 0 || !name) return null;
  switch (key.slice(0, colon)) {
    case "metric": {
      const metric = metricOf(key);
      const note = AGGREGATES[metric.aggregate];
      return { key, title: metric.name, note, isNumber: true, sort: key, render: (row) => renderMetric(row, metric) };
    }
    case "param":
      return { key, title: name, about: `Hyperparameter ${name}`, isNumber: true, sort: key, render: (row) => clipped(row.params?.[name]) };
    case "tag":
      return { key, title: name, about: `Tag ${name}`, sort: key, render: (row) => clipped(row.tags?.find(([each]) => each === name)?.[1]) };
    case "spark":
      return { key, title: name, note: "curve", render: renderSparkline };
  }
  return null;
}

/** The parts of a key such as metric:loss.min. @returns {{name: string, aggregate: string}} */
export function metricOf(key) {
  const text = key.slice("metric:".length);
  const dot = text.lastIndexOf(".");
  const end = text.slice(dot + 1);
  return dot > 0 && end in AGGREGATES ? { name: text.slice(0, dot), aggregate: end } : { name: text, aggregate: "last" };
}

/** The word for a state, with its sign and colour. */
export function stateBadge(state) {
  return element`<span class=${`badge badge-${BADGES[state] ?? "stopped"}`}>${state[0].toUpperCase() + state.slice(1)}</span>`;
}

/** Show how long jobs that still run have taken until now. */
export function refreshDurations(within) {
  for (const shown of within.querySelectorAll("[data-since]")) shown.textContent = sinceNow(shown.dataset.since);
}

/** Text of any length on one line. Its whole is in the title. */
function clipped(text) {
  if (text === undefined || text === null || text === "") return null;
  const shown = showInvisible(text);
  return element`<span class="clipped" title=${shown}>${shown}</span>`;
}

function renderStatus(row) {
  return html`<div class="status-cell">${stateBadge(row.state)}${statusNote(row)}</div>`;
}

function statusNote(row) {
  if (row.state === "waiting" && row.wait) {
    const reason = showInvisible(row.wait);
    const place = row.position ? element`<strong>${`#${row.position}`}</strong>` : null;
    return element`<span class="status-note wait-reason" title=${reason}>${place} ${reason}</span>`;
  }
  if (row.state === "failed" && row.failure) return note(row.failure, "bad");
  if (row.trials) return note(trialsText(row.trials));
  if (row.state === "running" && row.phase !== "Training") return note(row.phase);
  if (row.state === "running" && row.message && !/^Training/.test(row.message)) return note(row.message);
  return null;
}

function note(text, kind = "faint") {
  const shown = showInvisible(text);
  return element`<span class=${`status-note clipped ${kind}`} title=${shown}>${shown}</span>`;
}

function trialsText(trials) {
  const words = { completed: "completed", inprogress: "running", failed: "failed", stopped: "stopped" };
  const parts = Object.entries(words).filter(([name]) => trials[name]).map(([name, word]) => `${trials[name]} ${word}`);
  return parts.length ? `Trials: ${parts.join(", ")}` : "No trials yet";
}

function renderTypes(row) {
  if (!row.types?.length) return null;
  const text = row.types.map(([name, count]) => (count > 1 ? `${count} × ${name}` : name)).join(", ");
  return html`${clipped(text)}${row.spot ? element`<span class="chip">spot</span>` : null}`;
}

function renderDuration(row) {
  if (!row.started) return null;
  if (!row.ended) return element`<span data-since=${row.started}>${sinceNow(row.started)}</span>`;
  return formatDuration(Math.max(0, (new Date(row.ended) - new Date(row.started)) / 1000));
}

function sinceNow(moment) {
  return formatDuration(Math.max(0, Math.round((Date.now() - new Date(moment)) / 1000)));
}

function renderTuningJob(row) {
  return row.tuning ? element`<a class="clipped" title=${row.tuning} href=${`/-/tuning/${row.tuning}`}>${row.tuning}</a>` : null;
}

/** A tuning job has no metrics, but the best value of its objective. */
function renderMetric(row, { name, aggregate }) {
  if (row.objective === name && row.best !== undefined && row.best !== null) {
    return element`<span title=${`The best trial, ${row.bestJob}`}>${formatNumber(row.best)}</span>`;
  }
  const metric = row.metrics?.[name];
  if (!metric || metric[aggregate] === undefined || metric[aggregate] === null) return metric ? "–" : null;
  return element`<span title=${String(metric[aggregate])}>${formatNumber(metric[aggregate])}</span>`;
}

function renderSparkline(row, shown) {
  if (!row.spark?.length) return null;
  const canvas = shown?.querySelector("canvas") ?? element`<canvas class="sparkline" aria-hidden="true"></canvas>`;
  drawSparkline(canvas, row.spark, { colour: runColour(row.name), ...SPARKLINE });
  return canvas;
}

/** The first tags of a job, or all of them once somebody asked for them. */
function renderTags(row, shown) {
  if (!row.tags?.length) return null;
  const cell = element`<div class="tag-cell"></div>`;
  const others = row.tags.length - SHOWN_TAGS;
  const show = (isWhole) => {
    const toggle = () => {
      show(!isWhole);
      cell.querySelector(".chip-more").focus();
    };
    const more = element`<button class="chip chip-more" type="button" aria-expanded=${String(isWhole)}
      aria-label=${isWhole ? "Show fewer tags" : `Show ${others} more ${others === 1 ? "tag" : "tags"}`} onclick=${toggle}>${isWhole ? "Show fewer" : `+${others}`}</button>`;
    cell.classList.toggle("is-whole", isWhole);
    const chips = row.tags.slice(0, isWhole ? undefined : SHOWN_TAGS).map(tagChip);
    // What folds them again stays in view.
    replaceChildren(cell, isWhole ? [more, chips] : [chips, others > 0 ? more : null]);
  };
  show(others > 0 && Boolean(shown?.querySelector(".tag-cell.is-whole")));
  return cell;
}

function tagChip([key, value]) {
  const text = showInvisible(value ? `${key}=${value}` : key);
  return element`<button class="chip tag-chip" type="button" tabindex="-1" title=${`Show only jobs with ${text}`}
    data-tag-key=${key} data-tag-value=${value}><span class="clipped">${text}</span></button>`;
}

function time(moment) {
  if (!moment) return null;
  return element`<time datetime=${moment} title=${formatTime(moment)}>${formatRelativeTime(moment)}</time>`;
}

function money(amount) {
  return amount === undefined || amount === null ? null : formatMoney(amount);
}

function sum(types) {
  return types?.length ? types.reduce((total, [, count]) => total + count, 0) : null;
}
