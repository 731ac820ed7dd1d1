/** What charts on a canvas share: size, theme, redrawing, keyboard focus, spoken values, tools, the table, print. */

import { showInvisible } from "../text.js";
import { addStyles } from "./styles.js";
import { onThemeChange } from "./theme.js";

const MAX_TABLE_ROWS = 1000;
const surfaces = new Set();
let hints = 0;

/**
 * @typedef {{label?: string, height?: number, hint?: string, draw: (context: CanvasRenderingContext2D) => void,
 *   drawOverlay?: (context: CanvasRenderingContext2D) => void, onKey?: (event: KeyboardEvent) => boolean,
 *   table?: () => {columns: string[], rows: (string|number)[][]}, onTheme?: () => void}} SurfaceOptions
 */

/** Two canvases over each other in an element: what is drawn from data, and what follows the pointer. */
export class Surface {
  /** @param {HTMLElement} element @param {SurfaceOptions} options */
  constructor(element, options) {
    addStyles();
    this.element = element;
    this.options = options;
    this.width = this.height = 0;
    this.ratio = 1;
    element.classList.add("chart");
    this.plot = make("div", "chart-plot");
    this.plot.style.minHeight = `${options.height ?? 220}px`;
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "application");
    this.plot.setAttribute("aria-roledescription", "chart");
    this.label = options.label ?? "Chart";
    const hint = make("div", "chart-hidden", options.hint ?? "Arrow keys read values, T shows a table.");
    hint.id = `chart-hint-${++hints}`;
    this.plot.setAttribute("aria-describedby", hint.id);
    this.canvas = make("canvas");
    this.overlay = make("canvas");
    this.plot.append(this.canvas, this.overlay);
    this.live = make("div", "chart-hidden");
    this.live.setAttribute("aria-live", "polite");
    this.tools = make("div", "chart-tools");
    element.append(this.plot, this.tools, hint, this.live);
    this.context = this.canvas.getContext("2d");
    this.overlayContext = this.overlay.getContext("2d");
    this.isVisible = true;
    this.frame = 0;
    this.isDirty = this.isOverlayDirty = true;
    this.resizes = new ResizeObserver(() => this.resize());
    this.resizes.observe(this.plot);
    this.views = new IntersectionObserver(([entry]) => this.show(entry.isIntersecting), { rootMargin: "200px" });
    this.views.observe(this.plot);
    this.unwatch = onThemeChange(() => {
      options.onTheme?.();
      this.drawAll();
    });
    this.plot.addEventListener("keydown", (event) => this.press(event));
    if (options.table) this.tableButton = this.addTool("Table", "Show the values as a table", () => this.toggleTable());
    surfaces.add(this);
  }

  set label(text) {
    this.plot.setAttribute("aria-label", text);
  }

  /** Draw from the data anew, soon. */
  redraw() {
    this.isDirty = true;
    this.redrawOverlay();
  }

  /** Draw what follows the pointer anew, soon. */
  redrawOverlay() {
    this.isOverlayDirty = true;
    if (this.frame === 0 && this.isVisible) this.frame = requestAnimationFrame(() => this.drawDirty());
  }

  /** Change the height of the plot, which is drawn again then. @param {number} pixels */
  setHeight(pixels) {
    const height = `${pixels}px`;
    if (this.plot.style.minHeight !== height) this.plot.style.minHeight = height;
  }

  drawDirty() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.width === 0) return;
    if (this.ratio !== (window.devicePixelRatio || 1)) return this.resize();
    if (this.isDirty) this.drawOn(this.context, this.options.draw);
    if (this.isOverlayDirty && this.options.drawOverlay) this.drawOn(this.overlayContext, this.options.drawOverlay);
    this.isDirty = this.isOverlayDirty = false;
  }

  drawAll() {
    // A chart that was made a moment ago has no size yet.
    if (this.width === 0 && this.plot.clientWidth > 0) return this.resize();
    this.isDirty = this.isOverlayDirty = true;
    this.drawDirty();
  }

  drawOn(context, draw) {
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    draw(context);
  }

  resize() {
    this.width = this.plot.clientWidth;
    this.height = this.plot.clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(this.width * this.ratio);
      canvas.height = Math.round(this.height * this.ratio);
    }
    this.drawAll();
  }

  show(isVisible) {
    this.isVisible = isVisible;
    if (isVisible && (this.isDirty || this.isOverlayDirty)) this.redrawOverlay();
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "t" && this.tableButton) this.toggleTable();
    else if (!this.options.onKey?.(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Say a text to readers of the screen. */
  announce(text) {
    this.live.textContent = text;
  }

  addTool(text, title, onClick) {
    const button = make("button", "", text);
    button.type = "button";
    button.title = title;
    button.addEventListener("click", onClick);
    this.tools.append(button);
    return button;
  }

  toggleTable() {
    if (this.tableElement) this.tableElement.remove();
    this.tableElement = this.tableElement ? null : tableOf(this.options.table());
    this.tableButton.setAttribute("aria-pressed", String(this.tableElement !== null));
    if (this.tableElement) this.element.append(this.tableElement);
  }

  destroy() {
    surfaces.delete(this);
    cancelAnimationFrame(this.frame);
    this.resizes.disconnect();
    this.views.disconnect();
    this.unwatch();
    this.element.classList.remove("chart");
    this.element.replaceChildren();
  }
}

export const FONT = '11px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** Draw every chart of the page now, also those out of sight, as for printing and saving. */
export function drawAllCharts() {
  for (const surface of surfaces) surface.drawAll();
}
addEventListener("beforeprint", drawAllCharts);

/** The charts of the page, by their elements. @returns {Map<HTMLElement, Surface>} */
export function chartsByElement() {
  return new Map([...surfaces].map((surface) => [surface.element, surface]));
}

/** An element with a text, which may come from a program: what cannot be seen in it is shown. @param {string} tag @returns {HTMLElement} */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = showInvisible(text);
  return element;
}

/** @param {string} colour */
export function swatch(colour) {
  const element = make("span", "chart-swatch");
  element.style.background = colour;
  return element;
}

/** The values of a chart as a scrollable table. @param {{columns: string[], rows: (string|number)[][]}} values */
export function tableOf({ columns, rows }, { maxRows = MAX_TABLE_ROWS } = {}) {
  const box = make("div", "chart-table");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Values of the chart");
  const table = make("table");
  if (rows.length > maxRows) table.append(make("caption", "", `The first ${maxRows} of ${rows.length} rows. Zoom in to see others.`));
  const head = make("tr");
  head.append(...columns.map((each) => Object.assign(make("th", "", each), { scope: "col" })));
  const body = make("tbody");
  for (const row of rows.slice(0, maxRows)) {
    const line = make("tr");
    line.append(...row.map((each) => make("td", "", String(each))));
    body.append(line);
  }
  table.append(Object.assign(make("thead")), body);
  table.tHead.append(head);
  box.append(table);
  return box;
}
