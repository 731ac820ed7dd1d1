"use strict";
// What the page can do beyond being read: values under the pointer, zoom, a choice of theme, and the current section.
// Values are read back from the coordinates of the drawings, whose limits are in the attributes of each plot.

const SIZE = 1000;
const plots = [...document.querySelectorAll(".plot")];

// ---- theme

const root = document.documentElement;
const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

function recallTheme() {
  // A page that was opened from a file may have no storage.
  try { return localStorage.getItem("profiler-report-theme"); } catch { return null; }
}

function chooseTheme(theme) {
  root.dataset.theme = theme;
  try { localStorage.setItem("profiler-report-theme", theme); } catch { /* the choice lasts as long as the page */ }
}

const recalled = recallTheme();
if (recalled === "dark" || recalled === "light") root.dataset.theme = recalled;
document.getElementById("theme").addEventListener("click", () => chooseTheme(isDark() ? "light" : "dark"));

// ---- numbers

function shorten(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

function scaled(value, steps, factor) {
  let step = 0;
  while (Math.abs(value) >= factor && step < steps.length - 1) { value /= factor; step += 1; }
  return `${shorten(value)} ${steps[step]}`;
}

function clock(seconds) {
  const whole = Math.round(seconds), two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

function format(value, unit, span) {
  if (unit === "%") return `${value.toFixed(1)} %`;
  if (unit === "B" || unit === "B/s") return scaled(value, ["B", "kB", "MB", "GB", "TB"], 1000) + unit.slice(1);
  if (unit === "elapsed" && span >= 3) return clock(value);
  if (unit === "s" || unit === "elapsed") {
    if (Math.abs(value) >= 60) return clock(value);
    return Math.abs(value) >= 1 ? `${shorten(value)} s` : scaled(value * 1e6, ["µs", "ms"], 1000);
  }
  if (unit.startsWith("10^")) return scaled(10 ** value, ["", "k", "M", "G", "T", "P"], 1000) + unit.slice(3);
  return `${shorten(value)} ${unit}`.trim();
}

// ---- reading drawings

function limits(plot) {
  const { x0, x1, y0, y1, xUnit, yUnit } = plot.dataset;
  return { x0: Number(x0), x1: Number(x1), y0: Number(y0), y1: Number(y1), xUnit, yUnit };
}

function points(path) {
  path.points ??= [...path.getAttribute("d").matchAll(/[ML](-?\d+) (-?\d+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
  return path.points;
}

function blocks(path) {
  path.blocks ??= [...path.getAttribute("d").matchAll(/M(-?\d+) (-?\d+)V(-?\d+)h(-?\d+)/g)].map((found) => found.slice(1).map(Number));
  return path.blocks;
}

function lineValues(plot, x) {
  const { y0, y1, yUnit } = limits(plot);
  return [...plot.querySelectorAll(".line")].flatMap((path) => {
    const nearest = points(path).reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best, [Infinity, 0]);
    if (Math.abs(nearest[0] - x) > 25) return [];
    const value = y0 + (SIZE - nearest[1]) / SIZE * (y1 - y0);
    return [{ label: path.dataset.label, colour: path.style.stroke, text: format(value, yUnit) }];
  });
}

function stackValues(plot, x) {
  const { y0, y1, yUnit } = limits(plot);
  return [...plot.querySelectorAll(".block")].flatMap((path) => {
    const block = blocks(path).find(([left, , , width]) => x >= left && x <= left + width + 2);
    if (!block) return [];
    const value = (block[1] - block[2]) / SIZE * (y1 - y0);
    return [{ label: path.dataset.label || "", colour: path.style.fill, text: format(value, yUnit) }];
  }).reverse();
}

function dotValues(plot, x, y) {
  const box = plot.getBoundingClientRect();
  let nearest = null, least = 24;
  for (const path of plot.querySelectorAll(".dot")) {
    const [dotX, dotY] = points(path)[0];
    const distance = Math.hypot((dotX - x) / SIZE * box.width, (dotY - y) / SIZE * box.height);
    if (distance < least) { nearest = path; least = distance; }
  }
  return nearest ? [{ label: "", colour: nearest.style.stroke, text: nearest.dataset.label }] : [];
}

function heatmapValues(plot, x, y) {
  const image = plot.querySelector("image");
  const rows = Number(image.dataset.rows), columns = Number(image.dataset.columns);
  const row = Math.min(rows - 1, Math.max(0, Math.floor(y / SIZE * rows)));
  const column = Math.min(columns - 1, Math.max(0, Math.floor(x / SIZE * columns)));
  const context = plot.pixels;
  if (!context) return [];
  const [red, , blue, alpha] = context.getImageData(column, row, 1, 1).data;
  const text = alpha && red === 128 && blue === 128 ? "not known" : `${Math.round(alpha / 255 * 100)} %`;
  return [{ label: image.dataset.labels.split("\n")[row], colour: "var(--series-0)", text }];
}

function loadPixels(plot) {
  const source = plot.querySelector("image"), image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    plot.pixels = canvas.getContext("2d", { willReadFrequently: true });
    plot.pixels.drawImage(image, 0, 0);
  };
  image.src = source.getAttribute("href");
}

// ---- zoom: the part of the drawing that is shown, from 0 to SIZE

function shown(plot) {
  return plot.shown ?? [0, SIZE];
}

function relabel(plot) {
  const axis = plot.parentElement.querySelector(".x-axis");
  plot.labels ??= axis.innerHTML;
  const [from, to] = shown(plot);
  if (from === 0 && to === SIZE) { axis.innerHTML = plot.labels; return; }
  const { x0, x1, xUnit } = limits(plot);
  axis.replaceChildren(...[0, 0.2, 0.4, 0.6, 0.8, 1].map((place) => {
    const label = document.createElement("span"), value = x0 + (from + place * (to - from)) / SIZE * (x1 - x0);
    label.textContent = format(value, xUnit, (x1 - x0) * (to - from) / SIZE);
    label.style.left = `${place * 100}%`;
    label.className = place > 0.96 ? "end" : "";
    return label;
  }));
}

function show(from, to, chosen) {
  const low = Math.max(0, from), high = Math.min(SIZE, to);
  if (high - low < 8) return;
  const group = chosen.dataset.group;
  for (const plot of group ? plots.filter((each) => each.dataset.group === group) : [chosen]) {
    plot.shown = [low, high];
    plot.querySelector("svg").setAttribute("viewBox", `${low} 0 ${high - low} ${SIZE}`);
    relabel(plot);
  }
  document.getElementById("zoom").hidden = plots.every((each) => shown(each)[1] - shown(each)[0] === SIZE);
}

function showAll() {
  plots.forEach((plot) => show(0, SIZE, plot));
}

document.getElementById("zoom").addEventListener("click", showAll);

// ---- the pointer and the keys

function place(plot, share) {
  const [from, to] = shown(plot);
  return from + Math.min(1, Math.max(0, share)) * (to - from);
}

function title(plot, x) {
  const { x0, x1, xUnit } = limits(plot), names = plot.dataset.names;
  if (names) {
    const all = names.split("\n");
    return `step ${all[Math.min(all.length - 1, Math.floor(x / SIZE * all.length))]}`;
  }
  return format(x0 + x / SIZE * (x1 - x0), xUnit, x1 - x0);
}

function point(plot, share, height) {
  const x = place(plot, share), y = height * SIZE;
  const read = { lines: lineValues, dots: dotValues, stacks: stackValues, histogram: stackValues, heatmap: heatmapValues }[plot.dataset.kind];
  const values = read(plot, x, y);
  forget(plot);
  if (!values.length) return;
  const cross = document.createElement("div"), tip = document.createElement("div"), head = document.createElement("b");
  cross.className = "cross";
  cross.style.left = `${share * 100}%`;
  tip.className = "tip";
  tip.setAttribute("role", "status");
  head.textContent = title(plot, x);
  tip.append(head, ...values.map(({ label, colour, text }) => {
    const line = document.createElement("div"), key = document.createElement("i");
    key.style.background = colour;
    line.append(key, label ? `${label}: ${text}` : text);
    return line;
  }));
  if (share > 0.55) tip.style.right = `calc(${(1 - share) * 100}% + 10px)`;
  else tip.style.left = `calc(${share * 100}% + 10px)`;
  plot.append(cross, tip);
  plot.share = share;
}

function forget(plot) {
  plot.querySelectorAll(".cross, .tip").forEach((each) => each.remove());
}

function select(plot, from, to) {
  const mark = plot.querySelector(".selection") ?? plot.appendChild(document.createElement("div"));
  mark.className = "selection";
  mark.style.left = `${Math.min(from, to) * 100}%`;
  mark.style.width = `${Math.abs(to - from) * 100}%`;
}

for (const plot of plots) {
  if (plot.dataset.kind === "heatmap") loadPixels(plot);
  const isZoomed = ["lines", "stacks", "heatmap"].includes(plot.dataset.kind) && !plot.dataset.names;
  let start = null;
  const where = (event) => {
    const box = plot.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  plot.addEventListener("pointermove", (event) => {
    const [share, height] = where(event);
    if (start !== null) select(plot, start, Math.min(1, Math.max(0, share)));
    point(plot, Math.min(1, Math.max(0, share)), Math.min(0.999, Math.max(0, height)));
  });
  plot.addEventListener("pointerdown", (event) => {
    if (!isZoomed || event.pointerType === "touch" || event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    start = where(event)[0];
  });
  plot.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const ends = [start, where(event)[0]].map((share) => place(plot, share)).sort((a, b) => a - b);
    start = null;
    plot.querySelector(".selection")?.remove();
    if (ends[1] - ends[0] > 8) show(ends[0], ends[1], plot);
  });
  plot.addEventListener("dblclick", showAll);
  plot.addEventListener("pointerleave", () => forget(plot));
  plot.addEventListener("blur", () => forget(plot));
  plot.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.1 : 0.01, [from, to] = shown(plot);
    const middle = place(plot, plot.share ?? 0.5), width = to - from;
    const actions = {
      ArrowLeft: () => point(plot, Math.max(0, (plot.share ?? 0.5) - step), 0.5),
      ArrowRight: () => point(plot, Math.min(1, (plot.share ?? 0.5) + step), 0.5),
      "+": () => isZoomed && show(middle - width / 4, middle + width / 4, plot),
      "-": () => isZoomed && show(middle - width, middle + width, plot),
      Escape: () => { forget(plot); showAll(); },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}

// ---- the current section in the list of sections

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.isSeen = entry.isIntersecting;
  const first = [...document.querySelectorAll("section")].find((section) => section.isSeen);
  if (!first) return;
  links.forEach((link, id) => {
    link.classList.toggle("current", id === first.id);
    if (id === first.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  });
}, { rootMargin: "-10% 0px -60% 0px" });
document.querySelectorAll("section").forEach((section) => seen.observe(section));

// A link into something folded opens it, and printing opens all of it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
}
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
unfold();
