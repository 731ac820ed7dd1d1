/** Tables of figures, with bars for shares, whose rows can be sorted and limited. */

import { html, element } from "../../html.js";

const ROWS = 12;

/**
 * @typedef {{title: string, value: (row: any) => any, isNumber?: boolean, className?: string, sort?: (row: any) => number}} Column
 * @param {{columns: Column[], rows: any[], label: string, empty?: string, limit?: number, total?: number, of?: string,
 *   onRow?: (row: any, line: HTMLElement) => void}} options `value` is text or a node; `total` is how many there are elsewhere
 * @returns {HTMLElement}
 */
export function dataTable({ columns, rows, label, empty = "Nothing was recorded.", limit = ROWS, total = rows.length, of = "rows", onRow }) {
  if (rows.length === 0) return element`<p class="faint">${empty}</p>`;
  const box = element`<div class="scroll" tabindex="0" role="region" aria-label=${label}></div>`;
  let shown = limit;
  let order = null;
  const draw = () => {
    const sorted = order ? [...rows].sort((one, other) => (order.column.sort(other) - order.column.sort(one)) * order.sign) : rows;
    const lines = sorted.slice(0, shown).map((row) => lineOf(columns, row, onRow));
    const rest = rows.length - Math.min(shown, rows.length);
    const beyond = total - rows.length;
    const more = rest > 0 && element`<button class="button button-small" type="button" onclick=${() => { shown = rows.length; draw(); }}>Show ${rest} more</button>`;
    box.replaceChildren(
      html`<table class="data-table" aria-label=${label}><thead><tr>${columns.map((column) => headOf(column, order, sortBy))}</tr></thead><tbody>${lines}</tbody></table>`,
      ...[more, rest === 0 && beyond > 0 && element`<p class="faint">${beyond.toLocaleString("en-US")} more ${of} are left out.</p>`].filter(Boolean),
    );
  };
  const sortBy = (column) => {
    order = { column, sign: order?.column === column ? -order.sign : 1 };
    draw();
  };
  draw();
  return box;
}

/** A bar for a share from 0 to 1. @param {number} colour of a series */
export function meter(share, colour = 0) {
  const bar = element`<span class="meter" aria-hidden="true"><span></span></span>`;
  bar.firstElementChild.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  bar.firstElementChild.style.background = `var(--chart-${colour + 1})`;
  return bar;
}

function headOf(column, order, sortBy) {
  const direction = order?.column === column ? (order.sign > 0 ? "descending" : "ascending") : false;
  const sign = direction ? (order.sign > 0 ? " ↓" : " ↑") : "";
  const title = column.sort ? element`<button class="table-sort" type="button" onclick=${() => sortBy(column)}>${column.title}${sign}</button>` : column.title;
  return element`<table><tbody><tr><th scope="col" class=${column.isNumber ? "number" : false} aria-sort=${direction}>${title}</th></tr></tbody></table>`.querySelector("th");
}

function lineOf(columns, row, onRow) {
  const cells = columns.map((column) => {
    const cell = document.createElement("td");
    cell.className = column.className ?? (column.isNumber ? "number" : "");
    const value = column.value(row);
    cell.append(...[value].flat().map((each) => (each instanceof Node ? each : document.createTextNode(each === null || each === undefined ? "–" : String(each)))));
    return cell;
  });
  const line = document.createElement("tr");
  line.append(...cells);
  onRow?.(row, line);
  return line;
}
