/** Colours of terminals as classes. Nothing else that a terminal would obey has an effect. */

const COLOUR_SEQUENCE = /\x1b\[([0-9;:]*)m/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };

/**
 * Split a line into runs of text with the same look.
 * @param {string} line @returns {{text: string, classes: string}[]}
 */
export function parseColours(line) {
  if (!line.includes("\x1b[")) return [{ text: line, classes: "" }];
  const runs = [];
  let style = { colour: "", hasBackground: false, marks: new Set() };
  let at = 0;
  for (const found of line.matchAll(COLOUR_SEQUENCE)) {
    if (found.index > at) runs.push({ text: line.slice(at, found.index), classes: classesOf(style) });
    style = applyCodes(style, found[1]);
    at = found.index + found[0].length;
  }
  if (at < line.length) runs.push({ text: line.slice(at), classes: classesOf(style) });
  return runs;
}

function classesOf({ colour, hasBackground, marks }) {
  const names = [...marks, ...(colour ? [colour] : []), ...(hasBackground ? ["on"] : [])];
  return names.map((name) => `ansi-${name}`).join(" ");
}

function applyCodes(style, text) {
  const codes = text.split(/[;:]/).map((code) => Number(code || 0));
  let { colour, hasBackground } = style;
  let marks = new Set(style.marks);
  for (let place = 0; place < codes.length; place += 1) {
    const code = codes[place];
    if (code === 0) {
      colour = "";
      hasBackground = false;
      marks = new Set();
    } else if (code in STYLES) marks.add(STYLES[code]);
    else if (code in ENDS) ENDS[code].forEach((name) => marks.delete(name));
    else if (code >= 30 && code <= 37) colour = NAMES[code - 30];
    else if (code >= 90 && code <= 97) colour = NAMES[code - 90];
    else if (code === 39) colour = "";
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) hasBackground = true;
    else if (code === 49) hasBackground = false;
    else if (code === 38 || code === 48) {
      const [name, used] = extendedColour(codes.slice(place + 1));
      place += used;
      if (code === 38) colour = name;
      else hasBackground = true;
    }
  }
  return { colour, hasBackground, marks };
}

/** One of 256 colours, or red, green and blue: the nearest name, so that it can be read on either background. */
function extendedColour(codes) {
  if (codes[0] === 2) return [nearestName(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), 4];
  if (codes[0] !== 5) return ["", 0];
  const number = codes[1] ?? 0;
  if (number < 16) return [NAMES[number % 8], 2];
  if (number >= 232) return ["", 2];
  const cube = number - 16;
  return [nearestName(...[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((level) => level * 51)), 2];
}

function nearestName(red, green, blue) {
  const highest = Math.max(red, green, blue);
  if (highest - Math.min(red, green, blue) < 40) return "";
  const bit = (level) => (level > highest * 0.6 ? 1 : 0);
  return NAMES[bit(red) + 2 * bit(green) + 4 * bit(blue)];
}
