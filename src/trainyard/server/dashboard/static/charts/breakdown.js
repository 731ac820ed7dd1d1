/** One bar of parts that make a whole, with a legend that names each, its value and its share. */

import { formatNumber } from "../format.js";
import { make, swatch } from "./surface.js";
import { addStyles } from "./styles.js";
import { onThemeChange, theme } from "./theme.js";

/**
 * @typedef {{parts?: {name: string, value: number, colour?: string, detail?: string}[], format?: (value: number) => string,
 *   total?: number, label?: string, empty?: string, onSelect?: (number: number) => void}} BreakdownOptions
 */

export class Breakdown {
  /** @param {HTMLElement} element @param {BreakdownOptions} options */
  constructor(element, options = {}) {
    addStyles();
    this.element = element;
    this.options = { parts: [] };
    this.unwatch = onThemeChange(() => this.draw());
    this.setData(options);
  }

  /** @param {BreakdownOptions} changes */
  setData(changes) {
    Object.assign(this.options, changes);
    this.draw();
  }

  destroy() {
    this.unwatch();
    this.element.replaceChildren();
  }

  draw() {
    const { parts, format = formatNumber, label, empty, onSelect } = this.options;
    const known = parts.map((part, number) => ({ ...part, number, colour: part.colour ?? theme().series(number), value: part.value > 0 ? part.value : 0 }));
    const total = this.options.total ?? known.reduce((sum, part) => sum + part.value, 0);
    if (!(total > 0)) return this.element.replaceChildren(make("p", "faint", empty ?? "Nothing to show yet"));
    const bar = make("div", "breakdown-bar");
    // The list below says the same in words.
    bar.setAttribute("aria-hidden", "true");
    const list = make("ul", "breakdown-list");
    if (label) list.setAttribute("aria-label", label);
    for (const part of known) {
      const segment = make("span");
      const share = `${formatNumber(Number(((part.value / total) * 100).toPrecision(3)))} %`;
      segment.style.width = `${(part.value / total) * 100}%`;
      segment.style.background = part.colour;
      segment.title = `${part.name}: ${part.detail ?? format(part.value)} (${share})`;
      const entry = make("li");
      entry.append(swatch(part.colour), make("span", "", part.name), make("span", "number", part.detail ?? format(part.value)), make("span", "faint", share));
      for (const each of [segment, entry]) {
        each.addEventListener("pointerenter", () => segment.classList.add("is-near"));
        each.addEventListener("pointerleave", () => segment.classList.remove("is-near"));
        if (onSelect) each.addEventListener("click", () => onSelect(part.number));
      }
      if (part.value > 0) bar.append(segment);
      list.append(entry);
    }
    this.element.replaceChildren(bar, list);
  }
}
