/** The menu in which one chooses the columns of the list and their order. */

import { element } from "../../html.js";
import { showInvisible } from "../../text.js";
import { AGGREGATES, columnOf, metricOf } from "./cells.js";
import { makeReorderable } from "./reorder.js";

const MAX_SHOWN = 60;
export const MAX_COLUMNS = 40;

export class ColumnPicker {
  /**
   * @param {HTMLDetailsElement} menu
   * @param {{columns: () => string[], onChange: (columns: string[] | null) => void, loadNames: () => Promise<object>}} handlers
   *   null stands for the columns that suit the jobs
   */
  constructor(menu, { columns, onChange, loadNames }) {
    Object.assign(this, { menu, columns, onChange, loadNames });
    this.list = menu.querySelector(".column-menu");
    menu.addEventListener("toggle", () => menu.open && this.open());
    // Menus close at a click on a button inside, and here several follow each other.
    this.list.addEventListener("click", (event) => event.stopPropagation());
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }

  async open() {
    this.search = element`<input class="input" type="search" placeholder="Find a column" aria-label="Find a column">`;
    this.chosen = element`<ul class="column-list chosen-columns" aria-label="Columns of the table"></ul>`;
    this.available = element`<div class="available-columns"><p class="menu-note">Loading</p></div>`;
    this.list.replaceChildren(
      element`<div class="column-search">${this.search}<button class="button button-small" type="button" title="Those that suit the jobs of the list" onclick=${() => this.onChange(null)}>Default columns</button></div>`,
      this.chosen,
      this.available,
    );
    makeReorderable(this.chosen, { items: "li", handle: ".column-handle", axis: "y", onMove: (from, to) => this.move(from, to) });
    this.search.addEventListener("input", () => this.refresh());
    this.refresh();
    this.search.focus();
    try {
      this.names = await this.loadNames();
      this.refresh();
    } catch (error) {
      this.available.replaceChildren(element`<p class="menu-note">${error.message}</p>`);
    }
  }

  /** Show the columns as they are now. */
  refresh() {
    if (!this.menu.open || !this.chosen) return;
    const focused = document.activeElement?.dataset.focus;
    const columns = this.columns();
    this.chosen.replaceChildren(...columns.map((key, place) => this.chosenItem(key, place)));
    if (this.names) this.showAvailable(new Set(columns));
    if (focused) this.list.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    // What had the focus was removed.
    if (document.activeElement === document.body) this.search.focus();
  }

  chosenItem(key, place) {
    const column = columnOf(key);
    const title = showInvisible(column?.title ?? key);
    const aggregate = key.startsWith("metric:") ? this.aggregateSelect(key, title) : key.startsWith("spark:") ? element`<span class="faint">curve</span>` : null;
    const item = element`<li><button class="column-handle" type="button" data-focus=${`move ${key}`}
        aria-label=${`Move ${title}; use the arrow keys`} title="Drag, or use the arrow keys">⠿</button>
      <span class="clipped" title=${title}>${title}</span>${aggregate}
      <button class="button button-quiet button-icon button-small" type="button" aria-label=${`Remove ${title}`}
        onclick=${() => this.change(this.columns().filter((each) => each !== key))}>×</button></li>`;
    item.querySelector(".column-handle").addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      if (place + step >= 0 && place + step < this.columns().length) this.move(place, place + step);
    });
    return item;
  }

  aggregateSelect(key, title) {
    const { name, aggregate } = metricOf(key);
    const options = Object.entries(AGGREGATES).map(([value, word]) => element`<option value=${value} selected=${value === aggregate}>${word}</option>`);
    const change = (event) => this.change(this.columns().map((each) => (each === key ? `metric:${name}.${event.target.value}` : each)));
    return element`<select class="select select-small" aria-label=${`Value of ${title}`} data-focus=${`value ${name}`} onchange=${change}>${options}</select>`;
  }

  showAvailable(chosen) {
    const wanted = this.search.value.trim().toLowerCase();
    const sections = [
      ["Fields", this.fields()],
      ["Metrics", this.names.Metrics.map((name) => `metric:${name}`)],
      ["Curves", this.names.Metrics.map((name) => `spark:${name}`)],
      ["Hyperparameters", this.names.HyperParameters.map((name) => `param:${name}`)],
      ["Tags", this.names.TagKeys.map(({ Key }) => `tag:${Key}`)],
    ];
    const hasCurve = [...chosen].some((key) => key.startsWith("spark:"));
    const shown = sections.flatMap(([title, keys]) => {
      const fitting = keys.filter((key) => !chosen.has(key) && columnOf(key)?.title.toLowerCase().includes(wanted));
      if (!fitting.length) return [];
      const items = fitting.slice(0, MAX_SHOWN).map((key) => this.availableItem(key, { replacesCurve: hasCurve && key.startsWith("spark:") }));
      const rest = fitting.length - items.length;
      return [element`<section><h3>${title}</h3><ul class="column-list">${items}</ul>${rest > 0 ? element`<p class="menu-note">${rest} more; type to find them</p>` : null}</section>`];
    });
    this.available.replaceChildren(...(shown.length ? shown : [element`<p class="menu-note">No other column has this name.</p>`]));
  }

  fields() {
    return [...this.names.Fields.map(({ Name }) => Name).filter((name) => name !== "name"), "tags"];
  }

  availableItem(key, { replacesCurve }) {
    const title = showInvisible(columnOf(key).title);
    // The server draws one curve for each job.
    const add = () => this.change([...this.columns().filter((each) => !(replacesCurve && each.startsWith("spark:"))), key]);
    return element`<li><button type="button" class="column-add" data-focus=${`add ${key}`} aria-label=${`Add ${title}`} onclick=${add}>
      <span aria-hidden="true">+</span><span class="clipped" title=${title}>${title}</span></button></li>`;
  }

  move(from, to) {
    const columns = this.columns();
    const [moved] = columns.splice(from, 1);
    columns.splice(to, 0, moved);
    this.change(columns);
  }

  change(columns) {
    this.onChange([...new Set(columns)].slice(0, MAX_COLUMNS));
    this.refresh();
  }
}
