/** A grid of charts in groups that open and close. A chart exists only while it is near the part of the page in view. */

import { drawAllCharts } from "../../charts/surface.js";
import { formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { showToast } from "../../toast.js";
import { isScheduled } from "./chart_settings.js";

const HEIGHT = 210;
const LARGE_HEIGHT = 420;
const PINNED = "trainyard-pinned-charts";
// All charts are drawn for printing, as far as a browser bears it.
const MAX_PRINTED = 100;
const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  pin: "M6 2h4l-.5 4.5L12 9v1H8.5v4h-1v-4H4V9l2.500-2.500z",
  link: "M6.500 9.500l3-3M7 5l1.500-1.500a2.500 2.500 0 0 1 4 4L11 9M9 11l-1.500 1.500a2.500 2.500 0 0 1-4-4L5 7",
  enlarge: "M9.500 2.500h4v4M13.500 2.500L9 7M6.500 13.500h-4v-4M2.500 13.500L7 9",
};

/** What a card shows: `id` is unique, `title` is read, `group` is the heading. `makeChart` returns what has `destroy`. */
export class ChartGrid {
  /**
   * @param {HTMLElement} place
   * @param {{makeChart: (place: HTMLElement, id: string, height: number) => {destroy: () => void}, linkOf?: (id: string) => string}} options
   */
  constructor(place, { makeChart, linkOf }) {
    Object.assign(this, { place, makeChart, linkOf });
    /** @type {Map<string, {element: HTMLElement, chart: object|null, isNear: boolean, isLarge: boolean}>} */
    this.cards = new Map();
    this.closed = new Set();
    this.words = [];
    this.items = [];
    this.pinned = new Set(linkOf ? readPinned() : []);
    this.views = new IntersectionObserver((entries) => entries.forEach((entry) => this.#see(entry)), { rootMargin: "400px 0px" });
    addEventListener("beforeprint", () => this.drawAll());
    document.addEventListener("drawall", () => this.drawAll());
  }

  /** The charts that exist now, with their ids. */
  *charts() {
    for (const [id, { chart }] of this.cards) if (chart) yield [id, chart];
  }

  /** Draw also what is out of view, for printing and saving. */
  drawAll() {
    for (const [id, card] of [...this.cards].slice(0, MAX_PRINTED)) if (card.element.isConnected) this.#draw(id, card);
    drawAllCharts();
  }

  /** @param {{id: string, title: string, group: string}[]} items in order */
  setItems(items) {
    if (JSON.stringify(items) === JSON.stringify(this.items)) return;
    this.items = items;
    this.#arrange();
  }

  /** Show only charts whose name has all words. @returns {number} how many that are */
  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#arrange();
    return this.#shown().length;
  }

  /** Write the latest and the best value beside the title. */
  setSummary(id, summary) {
    const card = this.cards.get(id);
    if (!card || !summary) return;
    replaceChildren(card.element.querySelector(".chart-card-values"),
      element`<span title="Last value">${formatNumber(summary.last)}</span>`,
      Number.isFinite(summary.best) && summary.count > 1 && !isScheduled(id) ? element`<span class="faint" title="Best value">best ${formatNumber(summary.best)}</span>` : null);
  }

  #shown() {
    return this.items.filter(({ id }) => this.words.every((word) => id.toLowerCase().includes(word)));
  }

  #arrange() {
    const groups = new Map();
    for (const item of this.#shown()) {
      const name = this.pinned.has(item.id) ? "Pinned" : item.group;
      groups.set(name, [...(groups.get(name) ?? []), item]);
    }
    const rank = (name) => (name === "Pinned" ? 0 : name === "" ? 2 : 1);
    const names = [...groups.keys()].sort((one, other) => rank(one) - rank(other));
    const sections = names.map((name) => this.#section(name, groups.get(name), names.length > 1));
    for (const [id, card] of this.cards) if (!this.items.some((item) => item.id === id)) this.#drop(id, card);
    replaceChildren(this.place, sections);
  }

  #section(name, items, hasHead) {
    const isOpen = !this.closed.has(name) || this.words.length > 0;
    const cards = isOpen ? items.map((item) => this.#card(item)) : [];
    const head = hasHead
      ? element`<h3 class="chart-group-head"><button type="button" data-group=${name} aria-expanded=${String(isOpen)} onclick=${() => this.#toggle(name)}><span>${showInvisible(name || "Other")}</span> <span class="faint">${items.length}</span></button></h3>`
      : null;
    return element`<div class="chart-group">${head}<div class="chart-grid">${cards}</div></div>`;
  }

  #card({ id, title }) {
    const known = this.cards.get(id);
    if (known) return known.element;
    const card = { chart: null, isNear: false, isLarge: false };
    const actions = this.linkOf
      ? [
          element`<button class="button button-quiet" type="button" aria-pressed=${String(this.pinned.has(id))} title="Pin to the top" aria-label=${`Pin ${title}`} data-pins onclick=${() => this.#pin(id)}>${icon("pin")}</button>`,
          element`<button class="button button-quiet" type="button" title="Copy a link to this chart alone" aria-label=${`Copy a link to the chart of ${title}`} data-copies-link onclick=${() => this.#copyLink(id)}>${icon("link")}</button>`,
        ]
      : [];
    card.element = element`<figure class="chart-card">
      <figcaption><span class="chart-card-title mono" title=${showInvisible(title)}>${showInvisible(title)}</span><span class="chart-card-values"></span>
        <span class="chart-card-actions">${actions}<button class="button button-quiet" type="button" aria-pressed="false" title="Large" aria-label=${`Show ${title} large`} data-enlarges onclick=${() => this.#enlarge(id)}>${icon("enlarge")}</button></span></figcaption>
      <div class="chart-place"></div>
    </figure>`;
    card.element.dataset.chart = id;
    this.cards.set(id, card);
    this.views.observe(card.element);
    return card.element;
  }

  #see(entry) {
    const card = this.cards.get(entry.target.dataset.chart);
    if (!card) return;
    card.isNear = entry.isIntersecting;
    if (card.isNear) this.#draw(entry.target.dataset.chart, card);
    else this.#erase(card);
  }

  #draw(id, card) {
    if (card.chart) return;
    card.chart = this.makeChart(card.element.querySelector(".chart-place"), id, card.isLarge ? LARGE_HEIGHT : HEIGHT);
  }

  #erase(card) {
    card.chart?.destroy();
    card.chart = null;
  }

  #drop(id, card) {
    this.#erase(card);
    this.views.unobserve(card.element);
    this.cards.delete(id);
  }

  #toggle(name) {
    if (!this.closed.delete(name)) this.closed.add(name);
    this.#arrange();
    this.place.querySelector(`[data-group="${CSS.escape(name)}"]`)?.focus();
  }

  #enlarge(id) {
    const card = this.cards.get(id);
    card.isLarge = !card.isLarge;
    card.element.classList.toggle("is-large", card.isLarge);
    card.element.querySelector("[data-enlarges]").setAttribute("aria-pressed", String(card.isLarge));
    this.#erase(card);
    this.#draw(id, card);
    card.element.scrollIntoView({ block: "nearest" });
  }

  #pin(id) {
    if (!this.pinned.delete(id)) this.pinned.add(id);
    localStorage.setItem(PINNED, JSON.stringify([...this.pinned]));
    const button = this.cards.get(id).element.querySelector("[data-pins]");
    button.setAttribute("aria-pressed", String(this.pinned.has(id)));
    this.#arrange();
    button.focus();
  }

  async #copyLink(id) {
    try {
      await navigator.clipboard.writeText(new URL(this.linkOf(id), location.href).href);
      showToast("Copied a link to the chart.");
    } catch {
      showToast("The browser does not let this page copy. Open the chart's own page instead, and copy its address.", { kind: "error" });
    }
  }
}

function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [attribute, value] of Object.entries({ viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true", class: "icon" })) svg.setAttribute(attribute, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Charts stay pinned on the pages of all jobs. */
function readPinned() {
  try {
    const pinned = JSON.parse(localStorage.getItem(PINNED) ?? "[]");
    return Array.isArray(pinned) ? pinned : [];
  } catch {
    return [];
  }
}

/** The part of a name in front of its first / or :, as in train/loss and validation:accuracy. */
export function groupOf(name) {
  const end = name.search(/[/:]/);
  return end > 0 ? name.slice(0, end) : "";
}
