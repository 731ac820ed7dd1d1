/** The trials as a table: sorted, filtered by words and conditions, with chosen columns. */

import { element, replaceChildren } from "../../html.js";
import { formatNumber, formatTime } from "../../format.js";
import { showInvisible } from "../../text.js";
import { shortValue } from "./hyperparameter_axis.js";
import { STATES, durationText, endOf, startOf } from "./study.js";

const PAGE = 100;
const BADGES = { completed: "completed", running: "running", pruned: "warn", stopped: "stopped", failed: "failed", unmeasured: "bad" };
const CONDITION = /^([^<>=:!]+?)\s*(<=|>=|!=|<|>|=|:)\s*(.+)$/;

/** @typedef {{key: string, name: string, isNumber?: boolean, value: (trial: import("./study.js").Trial) => any, show?: (trial: import("./study.js").Trial) => any, isHidden?: boolean}} Column */

export class TrialTable {
  /**
   * @param {{table: HTMLTableElement, more: HTMLElement, count: HTMLElement, columns: HTMLElement}} parts
   * @param {import("./study.js").Study} study
   * @param {{sort: string, columns: string[], onChange: (changes: object) => void}} options
   */
  constructor(parts, study, options) {
    Object.assign(this, { parts, study, options, limit: PAGE, rows: new Map() });
    parts.table.addEventListener("pointerover", (event) => study.hover(numberOf(event)));
    parts.table.addEventListener("pointerleave", () => study.hover(null));
    parts.table.addEventListener("click", (event) => this.#click(event));
  }

  /** @returns {Column[]} */
  get columns() {
    const { study } = this;
    const names = new Set(study.definition.axes.map((each) => each.name));
    if (study.definitions.length > 1 && !study.chosenDefinition) for (const each of study.definitions) for (const axis of each.axes) names.add(axis.name);
    const best = study.best;
    return [
      { key: "number", name: "Trial", isNumber: true, value: (trial) => trial.number, show: (trial) => numberButton(trial, trial === best) },
      { key: "state", name: "State", value: (trial) => STATES[trial.state], show: (trial) => element`<span class=${`badge badge-${BADGES[trial.state]}`} title=${trial.reason ? showInvisible(trial.reason) : false}>${STATES[trial.state]}</span>` },
      { key: "objective", name: study.metric, isNumber: true, value: (trial) => trial.value, show: (trial) => objectiveCell(study, trial) },
      ...(study.definitions.length > 1 ? [{ key: "definition", name: "Algorithm", value: (trial) => trial.definition ?? "" }] : []),
      ...[...names].map((name) => ({ key: `p:${name}`, name, isNumber: !study.axis(name)?.isCategorical, value: (trial) => sortable(trial.values[name]), show: (trial) => shortValue(trial.values[name]) })),
      { key: "duration", name: "Duration", isNumber: true, value: (trial) => endOf(trial) - startOf(trial), show: durationText },
      { key: "reports", name: "Reports", isNumber: true, value: (trial) => trial.curve?.total ?? NaN },
      ...(study.trials.some((each) => each.bracket !== undefined) ? [{ key: "bracket", name: "Bracket", isNumber: true, value: (trial) => trial.bracket ?? NaN }] : []),
      { key: "started", name: "Started", value: startOf, show: (trial) => formatTime(startOf(trial) * 1000), isHidden: true },
      { key: "reason", name: "Reason", value: (trial) => trial.reason ?? "", show: (trial) => showInvisible(trial.reason ?? ""), isHidden: true },
      { key: "job", name: "Training job", value: (trial) => trial.job, show: (trial) => element`<a class="mono" href=${`/-/training/${trial.job}`}>${trial.job}</a>` },
    ];
  }

  get shownColumns() {
    const chosen = this.options.columns;
    return this.columns.filter((each) => (chosen.length > 0 ? each.key === "number" || chosen.includes(each.key) : !each.isHidden));
  }

  draw() {
    const { study, parts } = this;
    const columns = this.shownColumns;
    const trials = this.#sorted(study.selected);
    const head = element`<tr>${columns.map((each) => this.#headCell(each))}</tr>`;
    const body = trials.slice(0, this.limit).map((trial) => this.#row(trial, columns));
    replaceChildren(parts.table.tHead, head);
    replaceChildren(parts.table.tBodies[0], body);
    this.rows = new Map(body.map((row) => [Number(row.dataset.trial), row]));
    const rest = trials.length - this.limit;
    replaceChildren(parts.more, rest > 0 ? element`<button class="button" type="button" onclick=${() => this.#showMore()}>${rest > PAGE ? `Show ${PAGE} more of ${rest}` : `Show the other ${rest}`}</button>` : []);
    parts.count.textContent = trials.length === study.shown.length ? `${trials.length}` : `${trials.length} of ${study.shown.length}`;
    this.mark();
  }

  mark() {
    const marked = new Set(this.study.marked.map((each) => each.number));
    for (const [number, row] of this.rows) {
      row.classList.toggle("is-marked", marked.has(number));
      row.setAttribute("aria-selected", String(number === this.study.pinned));
    }
  }

  /** Fill the menu that chooses columns. */
  drawMenu() {
    const shown = new Set(this.shownColumns.map((each) => each.key));
    const choices = this.columns.slice(1).map(
      (each) => element`<label><input type="checkbox" checked=${shown.has(each.key)} onchange=${() => this.#toggle(each.key)}>${showInvisible(each.name)}</label>`,
    );
    replaceChildren(this.parts.columns, choices);
  }

  #toggle(key) {
    const shown = this.shownColumns.map((each) => each.key).slice(1);
    this.options.columns = shown.includes(key) ? shown.filter((each) => each !== key) : [...shown, key];
    this.options.onChange({ columns: this.options.columns });
    this.draw();
  }

  #showMore() {
    this.limit += PAGE;
    this.draw();
  }

  #headCell(column) {
    const isSorted = this.options.sort.replace("-", "") === column.key;
    const isDescending = this.options.sort.startsWith("-");
    const sorting = isSorted ? (isDescending ? "descending" : "ascending") : false;
    return element`<th class=${column.isNumber ? "number" : false} scope="col" aria-sort=${sorting}>
      <button class="table-sort" type="button" title=${showInvisible(column.name)} onclick=${() => this.#sortBy(column)}><span class="column-name">${showInvisible(column.name)}</span>${isSorted ? (isDescending ? " ↓" : " ↑") : ""}</button></th>`;
  }

  #sortBy({ key }) {
    this.options.sort = this.options.sort === key ? `-${key}` : key;
    this.options.onChange({ sort: this.options.sort });
    this.draw();
    this.parts.table.tHead.querySelector("[aria-sort] button")?.focus();
  }

  /** @param {import("./study.js").Trial[]} trials those without a value last, whatever the order */
  #sorted(trials) {
    const { study } = this;
    const key = this.options.sort.replace("-", "") || "objective";
    const column = this.columns.find((each) => each.key === key) ?? this.columns[0];
    // By default, the best trial is first.
    const sign = this.options.sort === "" ? (study.isMaximized ? -1 : 1) : this.options.sort.startsWith("-") ? -1 : 1;
    const keyed = trials.map((trial) => ({ trial, value: column.value(trial) }));
    const isMissing = (value) => value === "" || Number.isNaN(value);
    keyed.sort((one, other) => {
      if (isMissing(one.value) || isMissing(other.value)) return isMissing(one.value) - isMissing(other.value) || one.trial.number - other.trial.number;
      return sign * compare(one.value, other.value) || one.trial.number - other.trial.number;
    });
    return keyed.map((each) => each.trial);
  }

  #row(trial, columns) {
    const cells = columns.map((column) => {
      const shown = column.show ? column.show(trial) : showInvisible(Number.isNaN(column.value(trial)) ? "–" : column.value(trial));
      return element`<td class=${column.isNumber ? "number" : false}>${typeof shown === "string" ? clipped(shown) : shown}</td>`;
    });
    return element`<tr data-trial=${trial.number}>${cells}</tr>`;
  }

  #click(event) {
    const number = numberOf(event);
    if (number !== null && !event.target.closest("a") && getSelection().isCollapsed) this.study.pin(number);
  }
}

/**
 * What the filter of the table admits: words that a trial contains, and conditions such as lr<0.01 or state:failed.
 * @param {string} text @param {import("./study.js").Study} study @returns {(trial: import("./study.js").Trial) => boolean}
 */
export function parseFilter(text, study) {
  const parts = text.trim().split(/\s+/).filter(Boolean);
  const tests = parts.map((part) => {
    const found = CONDITION.exec(part);
    if (!found) return (trial) => haystack(trial).includes(part.toLowerCase());
    const [, name, sign, wanted] = found;
    return (trial) => holds(valueOf(trial, name, study), sign, wanted);
  });
  return (trial) => tests.every((test) => test(trial));
}

function valueOf(trial, name, study) {
  const word = name.toLowerCase();
  if (word === "objective" || name === study.metric) return Number.isFinite(trial.value) ? String(trial.value) : undefined;
  if (word === "trial" || word === "number") return String(trial.number);
  if (word === "state" || word === "status") return STATES[trial.state].toLowerCase();
  if (word === "algorithm") return trial.definition;
  if (word === "job") return trial.job;
  if (word === "bracket") return trial.bracket === undefined ? undefined : String(trial.bracket);
  return trial.values[name]?.replace(/^"(.*)"$/s, "$1");
}

function holds(value, sign, wanted) {
  if (value === undefined) return false;
  if (sign === ":") return value.toLowerCase().includes(wanted.toLowerCase());
  const [one, other] = [Number(value), Number(wanted)];
  const areNumbers = Number.isFinite(one) && Number.isFinite(other);
  if (sign === "=") return areNumbers ? one === other : value.toLowerCase() === wanted.toLowerCase();
  if (sign === "!=") return areNumbers ? one !== other : value.toLowerCase() !== wanted.toLowerCase();
  if (!areNumbers) return false;
  return { "<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other }[sign];
}

function haystack(trial) {
  return `${trial.number} ${trial.job} ${STATES[trial.state]} ${trial.reason ?? ""} ${Object.values(trial.values).join(" ")}`.toLowerCase();
}

function numberButton(trial, isBest) {
  return element`<button class="trial-number" type="button" title="Compare with the best trial">${trial.number}${isBest ? element`<span class="best-mark" title="The best trial"> ★</span>` : ""}</button>`;
}

function objectiveCell(study, trial) {
  if (!Number.isFinite(trial.value)) return "–";
  const swatch = element`<span class="chart-swatch"></span>`;
  swatch.style.background = study.colour(trial.value);
  return element`<span class="objective">${swatch}${formatNumber(trial.value)}</span>`;
}

function clipped(text) {
  return text.length > 40 ? element`<span class="clipped" title=${text}>${text}</span>` : text;
}

function sortable(text) {
  if (text === undefined) return "";
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : shortValue(text);
}

function compare(one, other) {
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
}

function numberOf(event) {
  const row = event.target.closest("tr[data-trial]");
  return row ? Number(row.dataset.trial) : null;
}
