/** The table of jobs: its head sorts and moves columns, its rows are selected, and live changes touch only what differs. */

import { onThemeChange } from "../../charts/theme.js";
import { element, replaceChildren } from "../../html.js";
import { runColourNumber } from "../../run_colours.js";
import { showInvisible } from "../../text.js";
import { columnOf, refreshDurations, stateBadge, STATES } from "./cells.js";
import { makeReorderable } from "./reorder.js";

/**
 * @typedef {{id: string, group: object | null, isOpen: boolean, rows: object[], more: boolean}} Section the rows of a
 *   group, or all rows if there are no groups
 * @typedef {{onSort: (sort: string) => void, onMoveColumn: (from: number, to: number) => void, onSelect: () => void,
 *   onToggleGroup: (id: string) => void, onShowGroup: (id: string) => void, onFilterTag: (key: string, value: string) => void}} Handlers
 */

const TICK_MS = 1000;

export class JobTable {
  /** @param {HTMLTableElement} table @param {Handlers} handlers */
  constructor(table, handlers) {
    this.table = table;
    this.handlers = handlers;
    /** The selected rows by their ARN, also those of other pages. @type {Map<string, object>} */
    this.selected = new Map();
    /** @type {Map<string, {row: object, tr: HTMLTableRowElement}>} */
    this.entries = new Map();
    this.columns = [];
    this.sort = "";
    this.lastChecked = null;
    table.addEventListener("click", (event) => this.handleClick(event));
    table.addEventListener("keydown", (event) => this.handleKey(event));
    makeReorderable(table.tHead, { items: "th[data-key]", axis: "x", onMove: handlers.onMoveColumn });
    onThemeChange(() => this.redrawSparklines());
    setInterval(() => document.hidden || refreshDurations(table), TICK_MS);
  }

  /** @param {{columns: string[], sort: string, sections: Section[]}} view */
  show({ columns, sort, sections }) {
    const focused = focusedKey(this.table);
    this.columns = columns.map(columnOf).filter((column) => column !== null);
    this.sort = sort;
    this.entries.clear();
    this.table.tHead.replaceChildren(this.headRow());
    for (const body of [...this.table.tBodies]) body.remove();
    this.table.append(...sections.map((section) => this.sectionBody(section)));
    this.showSelection();
    if (focused) this.table.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  /**
   * Show what has changed in the only section of a list without groups.
   * @param {{rows: object[], order: string[]}} change @returns {boolean} false if a row is missing
   */
  apply({ rows, order }) {
    const body = this.table.tBodies[0];
    for (const row of rows) this.putRow(row);
    if (!order.every((arn) => this.entries.has(arn))) return false;
    const wanted = new Set(order);
    for (const [arn, entry] of this.entries) {
      if (wanted.has(arn)) continue;
      entry.tr.remove();
      this.entries.delete(arn);
    }
    for (const [place, arn] of order.entries()) {
      const { tr } = this.entries.get(arn);
      // A row that stays where it is keeps the focus.
      if (body.rows[place] !== tr) body.insertBefore(tr, body.rows[place] ?? null);
    }
    this.showSelection();
    return true;
  }

  /** The rows as they are shown, in the order of a list without groups. */
  get rows() {
    return [...this.table.tBodies[0].rows].map((tr) => this.entries.get(tr.dataset.arn).row);
  }

  /** The revisions of the rows that are shown. */
  get revisions() {
    return [...this.entries.values()].map(({ row }) => row.revision);
  }

  /** Select jobs, also such as are on other pages. */
  select(rows) {
    for (const row of rows) this.selected.set(row.arn, this.entries.get(row.arn)?.row ?? row);
    this.finishSelecting();
  }

  clearSelection() {
    this.selected.clear();
    this.showSelection();
    this.handlers.onSelect();
  }

  headRow() {
    const name = element`<th scope="col" class="name-head" aria-sort=${this.ariaSort("name")}>
      <label class="check"><input type="checkbox" id="select-all" data-focus="all" aria-label="Select all jobs of this page"></label>
      ${this.sortButton({ title: "Name", sort: "name" })}</th>`;
    const others = this.columns.map((column) => {
      const content = column.sort ? this.sortButton(column) : label(column);
      return element`<th scope="col" class=${column.isNumber ? "number" : ""} data-key=${column.key} title=${column.about ?? column.title}
        aria-sort=${this.ariaSort(column.sort)}>${content}</th>`;
    });
    return element`<tr>${name}${others}</tr>`;
  }

  sortButton(column) {
    const direction = this.ariaSort(column.sort);
    const arrow = { ascending: "▲", descending: "▼" }[direction];
    return element`<button class="table-sort" type="button" data-sort=${column.sort} data-focus=${`sort ${column.sort}`}>${label(column)}${
      arrow ? element`<span class="sort-arrow" aria-hidden="true">${arrow}</span>` : null
    }</button>`;
  }

  ariaSort(sort) {
    const shown = this.sort || "-created";
    if (!sort) return null;
    return shown === sort ? "ascending" : shown === `-${sort}` ? "descending" : null;
  }

  sectionBody(section) {
    const body = document.createElement("tbody");
    if (section.group) body.append(this.groupRow(section));
    if (section.isOpen) body.append(...section.rows.map((row) => this.putRow(row)));
    if (section.isOpen && section.more) {
      body.append(element`<tr class="more-row"><td colspan=${this.columns.length + 1}>
        <button class="button button-small" type="button" data-shows-group=${section.id}>Show all jobs of this group</button></td></tr>`);
    }
    return body;
  }

  groupRow({ id, group, isOpen }) {
    const value = group.value === undefined || group.value === null ? element`<span class="faint">no value</span>` : showInvisible(group.value);
    const present = STATES.filter((state) => group.states[state] && state !== group.value);
    const countOf = (state) => (present.length > 1 ? ` ${group.states[state].toLocaleString("en-US")}` : null);
    const states = present.map((state) => element`<span>${stateBadge(state)}${countOf(state)}</span>`);
    return element`<tr class="group-row"><th scope="rowgroup" colspan=${this.columns.length + 1}>
      <div class="group-head"><button class="group-toggle" type="button" aria-expanded=${String(isOpen)} data-toggles-group=${id} data-focus=${`group ${id}`}>
        <span class="group-mark" aria-hidden="true">${isOpen ? "▾" : "▸"}</span><span class="group-value">${value}</span></button>
        <span class="faint">${group.jobs === 1 ? "1 job" : `${group.jobs.toLocaleString("en-US")} jobs`}</span>
        <span class="group-states">${states}</span></div></th></tr>`;
  }

  /** Make the row of a job, or bring the one that it has up to date. @returns {HTMLTableRowElement} */
  putRow(row) {
    const known = this.entries.get(row.arn);
    const tr = known?.tr ?? this.emptyRow(row);
    for (const [number, column] of this.columns.entries()) fillCell(tr.cells[number + 1], column, row);
    tr.dataset.state = row.state;
    this.entries.set(row.arn, { row, tr });
    if (this.selected.has(row.arn)) this.selected.set(row.arn, row);
    return tr;
  }

  emptyRow(row) {
    const cells = this.columns.map((column) => element`<td class=${column.isNumber ? "number" : ""} data-key=${column.key}></td>`);
    const kind = row.kind === "training" ? null : element`<span class="chip">${row.kind}</span>`;
    const shown = showInvisible(row.name);
    return element`<tr data-arn=${row.arn}><td class="name-cell"><div class="job-name">
      <label class="check"><input type="checkbox" class="row-check" data-focus=${`check ${row.arn}`} aria-label=${`Select ${shown}`}></label>
      <span class=${`run-colour run-colour-${runColourNumber(row.name) + 1}`} aria-hidden="true"></span>
      <a class="mono clipped" data-focus=${`open ${row.arn}`} href=${`/-/${row.kind}/${encodeURIComponent(row.name)}`} title=${shown}>${shown}</a>${kind}
    </div></td>${cells}</tr>`;
  }

  redrawSparklines() {
    for (const [number, column] of this.columns.entries()) {
      if (!column.key.startsWith("spark:")) continue;
      for (const { row, tr } of this.entries.values()) fillCell(tr.cells[number + 1], column, row);
    }
  }

  handleClick(event) {
    const target = event.target.closest("button, input");
    if (!target) return;
    if (target.id === "select-all") this.checkAll(target.checked);
    else if (target.matches(".row-check")) this.check(target, target.checked, event.shiftKey);
    else if (target.dataset.sort) this.handlers.onSort(this.nextSort(target.dataset.sort));
    else if (target.dataset.togglesGroup !== undefined) this.handlers.onToggleGroup(target.dataset.togglesGroup);
    else if (target.dataset.showsGroup !== undefined) this.handlers.onShowGroup(target.dataset.showsGroup);
    else if (target.dataset.tagKey !== undefined) this.handlers.onFilterTag(target.dataset.tagKey, target.dataset.tagValue);
  }

  handleKey(event) {
    if (event.key === "Escape" && this.selected.size) {
      this.clearSelection();
      return;
    }
    const isVertical = event.key === "ArrowDown" || event.key === "ArrowUp";
    if (isVertical && event.target.matches(".row-check")) {
      event.preventDefault();
      const checks = this.checks;
      const next = checks[checks.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (!next) return;
      next.focus();
      if (event.shiftKey) {
        if (!event.target.checked) this.check(event.target, true);
        this.check(next, true);
      }
    }
    const step = event.altKey ? { ArrowLeft: -1, ArrowRight: 1 }[event.key] : undefined;
    const head = event.target.closest("th[data-key]");
    if (step && head) {
      event.preventDefault();
      const place = this.columns.findIndex((column) => column.key === head.dataset.key);
      if (place + step >= 0 && place + step < this.columns.length) this.handlers.onMoveColumn(place, place + step);
    }
  }

  get checks() {
    return [...this.table.querySelectorAll(".row-check")];
  }

  checkAll(isChecked) {
    for (const box of this.checks) this.mark(box, isChecked);
    this.finishSelecting();
  }

  /** @param {HTMLInputElement} box @param {boolean} isChecked @param {boolean} isRange from the last one that was clicked */
  check(box, isChecked, isRange = false) {
    const checks = this.checks;
    const [from, to] = [checks.findIndex((each) => each.closest("tr").dataset.arn === this.lastChecked), checks.indexOf(box)];
    if (isRange && from >= 0) for (const each of checks.slice(Math.min(from, to), Math.max(from, to) + 1)) this.mark(each, isChecked);
    else this.mark(box, isChecked);
    this.lastChecked = box.closest("tr").dataset.arn;
    this.finishSelecting();
  }

  mark(box, isChecked) {
    const { arn } = box.closest("tr").dataset;
    if (isChecked) this.selected.set(arn, this.entries.get(arn).row);
    else this.selected.delete(arn);
  }

  finishSelecting() {
    this.showSelection();
    this.handlers.onSelect();
  }

  showSelection() {
    let count = 0;
    for (const [arn, { tr }] of this.entries) {
      const isSelected = this.selected.has(arn);
      count += isSelected;
      tr.classList.toggle("is-selected", isSelected);
      tr.querySelector(".row-check").checked = isSelected;
    }
    const all = this.table.querySelector("#select-all");
    all.checked = count > 0 && count === this.entries.size;
    all.indeterminate = count > 0 && count < this.entries.size;
  }

  /** The order after another click: upwards, downwards, and back to the newest first. */
  nextSort(sort) {
    if (this.sort === sort) return `-${sort}`;
    if (this.sort === `-${sort}`) return "";
    return sort;
  }
}

function label(column) {
  const note = column.note ? element`<span class="column-note">${column.note}</span>` : null;
  return element`<span class="column-label"><span class="clipped">${showInvisible(column.title)}</span>${note}</span>`;
}

function fillCell(cell, column, row) {
  const content = column.render(row, cell);
  // A curve is drawn into the canvas that is there.
  if (content instanceof Node && content.parentNode === cell) return;
  const made = document.createElement("div");
  replaceChildren(made, content);
  if (made.isEqualNode(cell.firstElementChild)) return;
  cell.replaceChildren(made);
}

function focusedKey(table) {
  return table.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
}
