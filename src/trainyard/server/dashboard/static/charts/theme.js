/** Colours of the page, read from its CSS variables, and read again when the theme changes or the page is printed. */

const FALLBACK = {
  text: "#1b2330", "text-faint": "#5d6877", line: "#dfe3e9", surface: "#ffffff", accent: "#2f5fde", bad: "#b3261e",
  "chart-1": "#2f5fde", "chart-2": "#d9730d", "chart-3": "#1a8a5f", "chart-4": "#c03a56", "chart-5": "#7a4fd0",
  "chart-6": "#0f8a9d", "chart-7": "#9a6b14", "chart-8": "#b8428f", "chart-9": "#5a7d1e", "chart-10": "#64748b",
};
const SERIES_COLOURS = 10;
// Dark to light, even in brightness, and told apart by readers who see few colours.
const SEQUENTIAL = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"];
const COLD = ["#2166ac", "#6aa5d0"];
const WARM = ["#e58a6f", "#b2182b"];

/** @type {Theme|null} */
let current = null;
const listeners = new Set();

/**
 * @typedef {{text: string, faint: string, line: string, surface: string, accent: string, bad: string, isDark: boolean,
 *   series: (number: number) => string}} Theme
 * @returns {Theme}
 */
export function theme() {
  current ??= readTheme();
  return current;
}

/** @param {() => void} listener @returns {() => void} what ends it */
export function onThemeChange(listener) {
  if (listeners.size === 0) watch();
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let isWatched = false;
function watch() {
  if (isWatched) return;
  isWatched = true;
  const change = () => {
    current = null;
    for (const listener of listeners) listener();
  };
  document.addEventListener("themechange", change);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
  matchMedia("print").addEventListener("change", change);
}

function readTheme() {
  // A variable may be any expression of CSS, such as light-dark(); only a computed colour is one that a canvas knows.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.documentElement.append(probe);
  const colours = {};
  for (const [name, fallback] of Object.entries(FALLBACK)) {
    probe.style.color = `var(--${name}, ${fallback})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  const series = Array.from({ length: SERIES_COLOURS }, (_, number) => colours[`chart-${number + 1}`]);
  const [red, green, blue] = channels(colours.surface);
  return {
    text: colours.text, faint: colours["text-faint"], line: colours.line, surface: colours.surface, accent: colours.accent, bad: colours.bad,
    isDark: red * 0.3 + green * 0.59 + blue * 0.11 < 128,
    series: (number) => series[number % SERIES_COLOURS],
  };
}

let sampler = null;
/** Red, green and blue of any CSS colour. @returns {number[]} */
export function channels(colour) {
  sampler ??= Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  sampler.clearRect(0, 0, 1, 1);
  sampler.fillStyle = colour;
  sampler.fillRect(0, 0, 1, 1);
  return [...sampler.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** 256 colours from low to high, as RGBA words for an ImageData. @param {"sequential"|"diverging"} name */
export function palette(name) {
  const middle = theme().isDark ? "#2a303a" : "#f4f4f2";
  const stops = (name === "diverging" ? [...COLD, middle, ...WARM] : SEQUENTIAL).map(channels);
  const words = new Uint32Array(256);
  for (let number = 0; number < 256; number++) {
    const place = (number / 255) * (stops.length - 1);
    const before = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[before].map((low, channel) => Math.round(low + (stops[before + 1][channel] - low) * (place - before)));
    words[number] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return words;
}

/** One colour of a palette as CSS. @param {Uint32Array} words @param {number} fraction */
export function paletteColour(words, fraction) {
  const word = words[Math.max(0, Math.min(255, Math.round(fraction * 255)))];
  return `rgb(${word & 255}, ${(word >> 8) & 255}, ${(word >> 16) & 255})`;
}
