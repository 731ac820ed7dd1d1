/** The box beside the pointer that names what lies under it, and the pointer that charts of one page share. */

import { make, swatch } from "./surface.js";

/** @typedef {{name: string, value?: string, colour?: string, isNear?: boolean}} TipRow */

export class Tooltip {
  /** @param {import("./surface.js").Surface} surface */
  constructor(surface) {
    this.surface = surface;
    this.box = make("div", "chart-tip");
    this.box.hidden = true;
    surface.plot.append(this.box);
  }

  /** @param {number} x @param {number} y within the plot @param {string} title @param {TipRow[]} rows */
  show(x, y, title, rows) {
    this.box.replaceChildren(make("strong", "", title), ...rows.map(rowOf));
    this.box.hidden = false;
    const { offsetWidth, offsetHeight } = this.box;
    const { width, height } = this.surface;
    const left = x + 14 + offsetWidth <= width ? x + 14 : x - 14 - offsetWidth;
    this.box.style.left = `${Math.max(0, Math.min(left, width - offsetWidth))}px`;
    this.box.style.top = `${Math.max(0, Math.min(y + 14, height - offsetHeight))}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

function rowOf({ name, value = "", colour, isNear }) {
  const row = make("div", isNear ? "chart-row is-near" : "chart-row");
  row.append(colour ? swatch(colour) : make("span"), make("span", "", name), make("span", "", value));
  return row;
}

/** @type {Map<string, Set<(x: number|null) => void>>} */
const groups = new Map();

/** The pointer of all charts with one key: each is told the x at which another is read, and null when none is. */
export class SharedCursor {
  /** @param {string|undefined} key @param {(x: number|null) => void} onMove */
  constructor(key, onMove) {
    this.key = key;
    this.onMove = onMove;
    if (key) groups.set(key, (groups.get(key) ?? new Set()).add(onMove));
  }

  /** @param {number|null} x */
  move(x) {
    for (const onMove of groups.get(this.key) ?? []) if (onMove !== this.onMove) onMove(x);
  }

  leave() {
    groups.get(this.key)?.delete(this.onMove);
  }
}
