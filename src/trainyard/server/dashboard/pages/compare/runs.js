/** The runs of a comparison: each has a colour of its own, and can be hidden, made the one to compare with, or removed. */

import { element, replaceChildren } from "../../html.js";
import { runColourNumber } from "../../run_colours.js";
import { showInvisible } from "../../text.js";

const BADGES = { InProgress: "running", Completed: "completed", Failed: "failed" };
const WORDS = { InProgress: "Running" };

/** Colours follow from names, so two runs may share one; the later one is then dashed. @param {string[]} names */
export function dashedRuns(names) {
  const seen = new Set();
  return new Set(names.filter((name) => {
    const number = runColourNumber(name);
    return seen.has(number) || (seen.add(number), false);
  }));
}

export function swatch(name, isDashed) {
  return element`<span class=${`run-swatch run-colour-${runColourNumber(name)}${isDashed ? " is-dashed" : ""}`} aria-hidden="true"></span>`;
}

export function statusBadge(status) {
  return element`<span class=${`badge badge-${BADGES[status] ?? "stopped"}`}>${WORDS[status] ?? status}</span>`;
}

/**
 * @param {HTMLElement} list @param {string[]} names
 * @param {{hidden: string[], onToggle: (name: string, isAlone: boolean) => void, onRemove: (name: string) => void}} options
 */
export function drawRuns(list, names, { hidden, onToggle, onRemove }) {
  const dashed = dashedRuns(names);
  replaceChildren(list, names.map((name) => {
    const shown = showInvisible(name);
    return element`<li class="run"><button class="run-toggle" type="button" aria-pressed=${String(!hidden.includes(name))} title="Click to hide or show its curves, shift-click to show them alone."
        onclick=${(event) => onToggle(name, event.shiftKey)}>${swatch(name, dashed.has(name))}<span class="run-name">${shown}</span></button>
      <button class="button button-quiet button-icon" type="button" aria-label=${`Remove ${shown}`} onclick=${() => onRemove(name)}>×</button></li>`;
  }));
}
