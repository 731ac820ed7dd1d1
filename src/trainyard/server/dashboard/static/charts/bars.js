/** Bars beside names: a table, so that it is read, copied and printed like one. */

import { formatNumber } from "../format.js";
import { make } from "./surface.js";
import { addStyles } from "./styles.js";
import { onThemeChange, theme } from "./theme.js";

/**
 * @typedef {{name: string, value: number, colour?: string}} BarPart
 * @typedef {{label: string, value: number|BarPart[], colour?: string, detail?: string}} BarItem `detail` is shown instead of the value
 * @typedef {{items?: BarItem[], horizontal?: boolean, height?: number, label?: string, format?: (value: number) => string,
 *   max?: number, empty?: string, onSelect?: (item: BarItem, number: number) => void}} BarOptions
 */

export class Bars {
  /** @param {HTMLElement} element @param {BarOptions} options */
  constructor(element, options = {}) {
    addStyles();
    this.element = element;
    this.options = { horizontal: true, items: [] };
    this.unwatch = onThemeChange(() => this.draw());
    this.setData(options);
  }

  /** @param {BarOptions} changes */
  setData(changes) {
    Object.assign(this.options, changes);
    this.draw();
  }

  destroy() {
    this.unwatch();
    this.element.replaceChildren();
  }

  draw() {
    const { items, horizontal, empty, label } = this.options;
    if (items.length === 0) return this.element.replaceChildren(make("p", "faint", empty ?? "Nothing to show yet"));
    const most = this.options.max ?? Math.max(...items.map((item) => sum(item)), 0);
    const drawn = make(horizontal ? "table" : "ul", horizontal ? "bars" : "bars-upright");
    if (label) drawn.setAttribute("aria-label", label);
    if (!horizontal) drawn.style.height = `${this.options.height ?? 160}px`;
    const rows = items.map((item, number) => (horizontal ? this.#row(item, number, most) : this.#column(item, number, most)));
    if (horizontal) drawn.append(make("tbody"));
    (drawn.tBodies?.[0] ?? drawn).append(...rows);
    this.element.replaceChildren(drawn);
  }

  #row(item, number, most) {
    const row = make("tr");
    const head = Object.assign(make("th", "", item.label), { scope: "row", title: item.label });
    const cell = make("td");
    cell.append(this.#track(item, (share) => ({ width: `${share * 100}%` }), most));
    row.append(head, cell, make("td", "", this.#text(item)));
    return this.#selectable(row, item, number);
  }

  #column(item, number, most) {
    const column = make("li");
    column.title = `${item.label}: ${this.#text(item)}`;
    const track = this.#track(item, (share) => ({ height: `${share * (this.options.height ?? 160) * 0.85}px`, width: "100%" }), most);
    column.append(track, make("span", "chart-name", item.label), make("span", "chart-hidden", this.#text(item)));
    return this.#selectable(column, item, number);
  }

  #track(item, size, most) {
    const track = make("div", "bars-track");
    for (const [number, part] of partsOf(item).entries()) {
      const bar = make("span");
      bar.style.background = part.colour ?? theme().series(part.name ? number : 0);
      Object.assign(bar.style, size(most > 0 && part.value > 0 ? Math.min(1, part.value / most) : 0));
      if (part.name) bar.title = `${part.name}: ${this.#format(part.value)}`;
      if (part.value > 0) track.append(bar);
    }
    return track;
  }

  #selectable(element, item, number) {
    const { onSelect } = this.options;
    if (!onSelect) return element;
    element.tabIndex = 0;
    element.style.cursor = "pointer";
    element.addEventListener("click", () => onSelect(item, number));
    element.addEventListener("keydown", (event) => event.key === "Enter" && onSelect(item, number));
    return element;
  }

  #text(item) {
    return item.detail ?? this.#format(Array.isArray(item.value) ? sum(item) : item.value);
  }

  #format(value) {
    return (this.options.format ?? formatNumber)(value);
  }
}

function partsOf(item) {
  return Array.isArray(item.value) ? item.value : [{ name: "", value: item.value, colour: item.colour }];
}

function sum(item) {
  return partsOf(item).reduce((total, part) => total + (Number.isFinite(part.value) ? part.value : 0), 0);
}

