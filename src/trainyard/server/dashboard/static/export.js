/** Saves the page as one HTML file that needs neither the yard nor a script: as it looks now, in light and in dark. */

import { chartsByElement, drawAllCharts, make, tableOf } from "./charts/surface.js";
import { formatTime } from "./format.js";
import { html } from "./html.js";
import { isLoading, waitUntilLoaded } from "./http.js";
import { showToast } from "./toast.js";

// What only acts, or only helps to act.
const DROPPED = [
  "script", "link", "meta[name=csrf-token]", "template", "iframe", "object", "embed", "dialog", "noscript", "base",
  ".skip-link", ".site-head > *", ".toasts", ".menu", ".page-actions", ".chart-tools", ".chart-tip", ".chart-hidden",
  "[data-copies]", "[data-opens]", "[hidden]:not(canvas)",
].join(", ");
const MAX_TABLE_ROWS = 200;
const MAX_WAIT_MS = 60_000;
const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";
const STYLES = `
.saved-dark { display: none !important; }
:root[data-theme="dark"] .saved-light { display: none !important; }
:root[data-theme="dark"] .saved-dark { display: block !important; }
@media (prefers-color-scheme: dark) {
  :root[data-theme="auto"] .saved-light { display: none !important; }
  :root[data-theme="auto"] .saved-dark { display: block !important; }
}
.chart-plot .saved-image { width: 100%; height: auto; }
.saved-values { font-size: 12.5px; color: var(--text-faint); margin-top: 4px; }
.saved-values > summary { cursor: pointer; }
.saved-note { margin-left: auto; color: var(--text-faint); font-size: 12.5px; overflow-wrap: anywhere; }
button:disabled, select:disabled, input:disabled, textarea:disabled, .button:disabled { opacity: 1; cursor: default; }
`;

/** Save the page under its title. */
export async function exportPage() {
  const text = await pageAsHtml();
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  link.download = `${fileName(document.title)}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  showToast(`Saved as ${link.download}.`);
}

/** The page as the text of an HTML file. @returns {Promise<string>} */
export async function pageAsHtml() {
  // Charts that are drawn only where they are in view hear this. They may ask for their values only now, or appear with them.
  document.dispatchEvent(new CustomEvent("drawall"));
  if (isLoading()) showToast("The page is still loading. It is saved as soon as it is complete.");
  await waitUntilLoaded(MAX_WAIT_MS);
  document.dispatchEvent(new CustomEvent("drawall"));
  const copy = document.documentElement.cloneNode(true);
  const pairs = pairsOf(document.documentElement, copy);
  copyControls(pairs);
  copyCanvases(pairs);
  await inlineImages(pairs);
  const icon = await asData(document.querySelector(".brand img")?.src);
  for (const each of copy.querySelectorAll(DROPPED)) each.remove();
  copy.querySelector(".site-head")?.append(...headOf(icon));
  fixLinks(copy);
  fixTimes(copy);
  for (const each of copy.querySelectorAll("*")) for (const { name } of [...each.attributes]) if (name.startsWith("on")) each.removeAttribute(name);
  // The reader's system decides, as it does for who never chose.
  copy.dataset.theme = "auto";
  addHead(copy.querySelector("head"), icon);
  return `<!doctype html>\n<!-- Saved from ${location.href.replaceAll("--", "%2D%2D")} -->\n${copy.outerHTML}\n`;
}

/** Elements of the page with their copies. @returns {[Element, Element][]} */
function pairsOf(original, copy) {
  const copies = [...copy.querySelectorAll("*")];
  return [...original.querySelectorAll("*")].map((each, number) => [each, copies[number]]);
}

/** Keep what was typed and chosen, which a copy of the document lacks, and let nobody change it. */
function copyControls(pairs) {
  for (const [control, copy] of pairs) {
    if (!control.matches("input, select, textarea, button, option")) continue;
    if (control.matches("option")) copy.toggleAttribute("selected", control.selected);
    else copy.setAttribute("disabled", "");
    if (control.matches("textarea")) copy.textContent = control.value;
    else if (control.matches("input[type=checkbox], input[type=radio]")) copy.toggleAttribute("checked", control.checked);
    else if (control.matches("input[type=password]")) copy.removeAttribute("value");
    else if (control.matches("input")) copy.setAttribute("value", control.value);
  }
}

/** Put pictures where canvases are: one for each theme, with the values beside them in words. */
function copyCanvases(pairs) {
  const charts = chartsByElement();
  const plots = pairs.filter(([each]) => each.matches(".chart-plot"));
  const alone = pairs.filter(([each]) => each.matches("canvas") && !each.closest(".chart-plot"));
  const painted = pairs.filter(([each]) => each.style?.background);
  const [pictures, paints] = [new Map(), new Map()];
  inBothThemes((theme) => {
    for (const [each] of [...plots, ...alone]) pictures.set(each, { ...pictures.get(each), [theme]: pictureOf(each) });
    for (const [each] of painted) paints.set(each, { ...paints.get(each), [theme]: getComputedStyle(each).backgroundColor });
  });
  // Legends have the colours of their curves.
  for (const [each, copy] of painted) copy.style.background = `light-dark(${paints.get(each).light}, ${paints.get(each).dark})`;
  for (const [plot, copy] of plots) {
    const label = plot.getAttribute("aria-label") ?? "Chart";
    const images = imagesOf(pictures.get(plot), label);
    for (const image of images) image.style.maxWidth = `${plot.clientWidth}px`;
    copy.replaceChildren(...images);
    copy.style.minHeight = "";
    for (const name of ["role", "tabindex", "aria-roledescription", "aria-label", "aria-describedby"]) copy.removeAttribute(name);
    const surface = charts.get(plot.parentElement);
    const values = surface?.options.table?.();
    if (values && values.rows.length > 0 && !surface.tableElement) copy.after(html`<details class="saved-values"><summary>Values of ${label}</summary>${tableOf(values, { maxRows: MAX_TABLE_ROWS })}</details>`);
  }
  for (const [canvas, copy] of alone) {
    const images = imagesOf(pictures.get(canvas), canvas.getAttribute("aria-label") ?? "");
    for (const image of images) {
      image.className += ` ${canvas.className}`;
      image.style.cssText += canvas.style.cssText;
    }
    copy.replaceWith(...images);
  }
}

/** Draw everything in light and in dark, without a frame between that would be seen. */
function inBothThemes(work) {
  const root = document.documentElement;
  const chosen = root.dataset.theme;
  const show = (theme) => {
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange"));
    drawAllCharts();
  };
  for (const theme of ["light", "dark"]) {
    show(theme);
    work(theme);
  }
  show(chosen);
}

/** What one or several canvases over each other show; empty where nothing is. */
function pictureOf(element) {
  const canvases = element.matches("canvas") ? [element] : [...element.querySelectorAll("canvas")];
  const [{ width, height }] = canvases;
  if (width === 0 || height === 0) return "";
  const all = Object.assign(document.createElement("canvas"), { width, height });
  const context = all.getContext("2d");
  for (const canvas of canvases) context.drawImage(canvas, 0, 0);
  return all.toDataURL();
}

function imagesOf(pictures, label) {
  return Object.entries(pictures).filter(([, source]) => source).map(([theme, source]) => Object.assign(make("img", `saved-image saved-${theme}`), { src: source, alt: label }));
}

async function inlineImages(pairs) {
  for (const [image, copy] of pairs) {
    if (!image.matches("img")) continue;
    copy.src = await asData(image.currentSrc || image.src);
    copy.removeAttribute("srcset");
    copy.removeAttribute("loading");
  }
}

/** A picture as a data: address; an empty one if it cannot be read. */
async function asData(address) {
  if (!address || address.startsWith("data:")) return address || "data:,";
  try {
    const blob = await (await fetch(address)).blob();
    return await new Promise((resolve) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.readAsDataURL(blob);
    });
  } catch {
    return "data:,";
  }
}

function headOf(icon) {
  const brand = make("span", "brand");
  brand.append(Object.assign(make("img"), { src: icon, alt: "", width: 20, height: 20 }), "Trainyard");
  const note = make("span", "saved-note", `Saved ${formatTime(new Date())} from `);
  note.append(Object.assign(make("a", "", location.host), { href: location.href }));
  return [brand, note];
}

/** Links lead to the yard, or stay within the page; others become text. */
function fixLinks(copy) {
  for (const link of copy.querySelectorAll("[href]")) {
    const given = link.getAttribute("href");
    if (given.startsWith("#")) continue;
    const address = new URL(given, location.href);
    if (address.protocol === "http:" || address.protocol === "https:") link.setAttribute("href", address.href);
    else link.removeAttribute("href");
    link.removeAttribute("download");
  }
  for (const form of copy.querySelectorAll("form")) form.removeAttribute("action");
}

/** "5 min ago" is soon wrong. */
function fixTimes(copy) {
  for (const time of copy.querySelectorAll("time[datetime]")) {
    if (time.dateTime) time.textContent = formatTime(time.dateTime);
    time.removeAttribute("title");
  }
}

function addHead(head, icon) {
  const rules = [...document.styleSheets, ...document.adoptedStyleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText));
  const styles = make("style");
  // No rule can end the element.
  styles.textContent = [...rules, STYLES].join("\n").replaceAll("</", "<\\/");
  const policy = Object.assign(make("meta"), { httpEquiv: "Content-Security-Policy", content: POLICY });
  head.querySelector("meta[charset]").after(policy);
  head.append(Object.assign(make("link"), { rel: "icon", href: icon }), styles);
}

function fileName(title) {
  const name = title.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(0, 120);
  return `${name || "trainyard"}-${new Date().toISOString().slice(0, 10)}`;
}
