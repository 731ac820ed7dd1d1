/** Shows the text of one line: colours and matches as classes, and everything invisible as visible marks. */

import { element } from "../../html.js";
import { formatBytes } from "../../format.js";
import { showInvisible } from "../../text.js";
import { parseColours } from "./ansi.js";

const ODD = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]+/gu;
const HARMLESS = /^[\t\u200d\ufe0f]+$/;
const ASTRAL = /[\ud800-\udfff]/;

/**
 * @param {{text: string, end?: string, size?: number, spans?: number[]}} line
 * @param {{isWhole: boolean, onMore: () => void, onWhole: () => void}} options `isWhole` shows what a progress bar has overwritten
 * @returns {Node[]}
 */
export function textNodes(line, { isWhole, onMore, onWhole }) {
  const runs = parseColours(line.text);
  const nodes = [];
  const overwritten = isWhole || line.end ? 0 : endOfOverwritten(runs);
  if (overwritten > 0) {
    nodes.push(element`<button type="button" class="logs-more" title="Show what the program has overwritten on this line" onclick=${onWhole}>…</button>`);
  }
  let at = 0;
  for (const part of splitAt(runs, characterSpans(line))) {
    const from = Math.max(0, overwritten - at);
    at += part.text.length;
    if (from < part.text.length) nodes.push(...partNodes(part.text.slice(from), part.classes));
  }
  if (line.end) {
    const hidden = line.size - new TextEncoder().encode(line.text).length - 1024;
    nodes.push(element`<button type="button" class="logs-more" title="Show more of this line" onclick=${onMore}>… ${formatBytes(Math.max(0, hidden))} …</button>`);
    for (const run of parseColours(line.end)) nodes.push(...partNodes(run.text, run.classes));
  }
  return nodes;
}

/** The text that a reader sees as it is, for the clipboard. */
export function plainText(line) {
  return line.text.replace(/\x1b\[[0-9;:]*m/g, "") + (line.end ? `…${line.end}` : "");
}

/** A progress bar returns to the beginning of its line and writes it again: only what it wrote last is to be seen. */
function endOfOverwritten(runs) {
  const plain = runs.map((run) => run.text).join("");
  return plain.replace(/\r+$/, "").lastIndexOf("\r") + 1;
}

/** The server counts characters, and a script counts the halves of those beyond the basic plane. */
function characterSpans({ text, spans }) {
  if (!spans) return [];
  const plain = text.replace(/\x1b\[[0-9;:]*m/g, "");
  if (!ASTRAL.test(plain)) return spans;
  const offsets = [0];
  for (const character of plain) offsets.push(offsets.at(-1) + character.length);
  return spans.map((place) => offsets[Math.min(place, offsets.length - 1)]);
}

/** Split runs at the edges of matches, which get a class of their own. */
function splitAt(runs, spans) {
  if (!spans.length) return runs;
  const parts = [];
  let at = 0;
  for (const { text, classes } of runs) {
    let from = 0;
    for (let place = 0; place < spans.length; place += 2) {
      const start = Math.max(from, spans[place] - at);
      const stop = Math.min(text.length, spans[place + 1] - at);
      if (start >= stop) continue;
      if (start > from) parts.push({ text: text.slice(from, start), classes });
      parts.push({ text: text.slice(start, stop), classes: `${classes} logs-hit`.trim() });
      from = stop;
    }
    if (from < text.length) parts.push({ text: text.slice(from), classes });
    at += text.length;
  }
  return parts;
}

function partNodes(text, classes) {
  const nodes = [];
  let at = 0;
  const add = (piece, more) => {
    if (!piece) return;
    const names = `${classes} ${more}`.trim();
    nodes.push(names ? span(piece, names) : document.createTextNode(piece));
  };
  for (const found of text.matchAll(ODD)) {
    if (HARMLESS.test(found[0])) continue;
    add(text.slice(at, found.index), "");
    // A line of its own would break the rows; the other marks are those of every page.
    add(showInvisible(found[0]).replaceAll("\n", "␊"), "logs-odd");
    at = found.index + found[0].length;
  }
  add(text.slice(at), "");
  return nodes;
}

function span(text, classes) {
  const node = document.createElement(classes.includes("logs-hit") ? "mark" : "span");
  node.className = classes;
  node.textContent = text;
  return node;
}
