/** Draws previews of files. Whatever is in a file becomes text; a picture is drawn by the browser from its own address. */

import { formatBytes, formatNumber, formatTime } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { query } from "./tree.js";

const SHOWN_TENSORS = 1000;

/** @param {HTMLElement} panel @param {string} address @param {{place: string, path: string, member: string, name: string}} file */
export async function showPreview(panel, address, file, { isRaw = false, signal } = {}) {
  const download = `${address}/download?${query(file)}`;
  replaceChildren(panel, head(file, {}, download), html`<div class="loading" role="status">Reading…</div>`);
  let found;
  try {
    found = await getJson(`${address}/preview?${query({ ...file, raw: isRaw ? "1" : "" })}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    replaceChildren(panel, head(file, {}, download), html`<div class="notice notice-error" role="alert">${showInvisible(error.message)}</div>`);
    return;
  }
  const draw = drawers[found.kind] ?? drawers.note;
  const again = (raw) => showPreview(panel, address, file, { isRaw: raw });
  replaceChildren(panel, head(file, found, download), uriOf(file, found), draw(found, { address, file, isRaw, again }), found.note && found.kind !== "note" ? html`<p class="preview-note">${showInvisible(found.note)}</p>` : null);
}

/** What is known of a folder: its location. @param {HTMLElement} panel @param {{name: string, uri: string}} folder */
export function showFolder(panel, { name, uri }) {
  replaceChildren(panel, html`<div class="preview-head"><div class="preview-title"><h2 class="mono">${showInvisible(name)}</h2></div></div>
    ${uriOf({ member: "" }, { uri })}<p class="faint">To get all of it:</p>${copyable(`aws s3 cp --recursive '${uri.replaceAll("'", "'\\''")}' .`)}`);
}

function copyable(text) {
  return html`<span class="copyable"><code>${showInvisible(text)}</code><button class="button button-quiet" type="button" data-copies=${text}>Copy</button></span>`;
}

function head(file, found, download) {
  const facts = [found.size !== undefined && (found.isCut ? `more than ${formatBytes(found.size)}` : formatBytes(found.size)), ...(factsOf[found.kind]?.(found) ?? [])];
  const modified = found.modified && html`<span>saved <time datetime=${found.modified}>${formatTime(found.modified)}</time></span>`;
  return html`<div class="preview-head"><div class="preview-title"><h2 class="mono">${showInvisible(file.name)}</h2>
    <p class="preview-facts">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}${modified}</p></div>
    <div class="preview-actions"><a class="button" href=${download} download>Download</a></div></div>`;
}

function uriOf(file, { uri }) {
  const text = file.member ? `${uri} › ${file.member}` : uri;
  return html`<div class="preview-uri"><span class="copyable"><code>${showInvisible(text)}</code><button class="button button-quiet" type="button" data-copies=${uri}>Copy</button></span></div>`;
}

const factsOf = {
  picture: ({ width, height, contentType }) => [`${formatNumber(width)} × ${formatNumber(height)} pixels`, contentType],
  large_picture: ({ width, height }) => [`${formatNumber(width)} × ${formatNumber(height)} pixels`],
  tensors: ({ total, elements }) => [`${formatNumber(total)} tensors`, `${formatNumber(elements)} elements`],
  array: ({ dtype, shape }) => [dtype, shapeText(shape)],
  table: ({ total }) => [total !== undefined && `${formatNumber(total)} rows`],
  archive: ({ files, bytes, note }) => [`${formatNumber(files)}${note ? " or more" : ""} files`, `${formatBytes(bytes)} unpacked`],
};

const drawers = {
  empty: () => html`<div class="empty"><p class="empty-title">The file is empty</p></div>`,
  note: ({ note }) => html`<div class="notice">${showInvisible(note ?? "This kind of file is not shown here.")}</div>`,
  archive: () => html`<p class="faint">The files of the archive are in the list; choose one to look into it.</p>`,
  large_picture: () => html`<div class="notice">The picture is too large to be drawn here. Download it instead.</div>`,
  picture: (_found, { address, file }) =>
    html`<img class="preview-picture" src=${`${address}/picture?${query(file)}`} alt=${`The picture ${file.name}`}>`,
  text: drawText,
  table: drawTable,
  tensors: drawTensors,
  array: ({ dtype, shape, elements, isColumnMajor }) =>
    factList([["Data type", dtype], ["Shape", shapeText(shape)], ["Elements", formatNumber(elements)], ["Order", isColumnMajor ? "by columns (Fortran)" : "by rows (C)"]]),
  bytes: ({ lines, shown }) => html`<p class="preview-note">No text, and no format that is shown here. The first ${shown} bytes:</p>
    <pre class="preview-text" tabindex="0">${lines.join("\n")}</pre>`,
};

function drawText(found, { address, file, isRaw, again }) {
  const text = element`<pre class="preview-text" tabindex="0">${showInvisible(found.text)}</pre>`;
  const wrap = element`<button class="button button-small" type="button" aria-pressed="false">Wrap lines</button>`;
  wrap.addEventListener("click", () => wrap.setAttribute("aria-pressed", String(text.classList.toggle("is-wrapped"))));
  const raw = found.isIndented || isRaw
    ? element`<button class="button button-small" type="button" aria-pressed=${String(isRaw)}>As it is</button>` : null;
  raw?.addEventListener("click", () => again(!isRaw));
  return html`<div class="toolbar">${wrap}${raw}</div>${text}${found.next ? moreButton(text, address, file, found.next) : null}`;
}

function moreButton(text, address, file, next) {
  const place = element`<p class="preview-note"><button class="button" type="button">Show more</button></p>`;
  place.firstElementChild.addEventListener("click", async ({ target }) => {
    target.disabled = true;
    try {
      const more = await getJson(`${address}/preview?${query({ ...file, first: next })}`);
      text.append(showInvisible(more.text));
      if (more.next) place.replaceWith(moreButton(text, address, file, more.next));
      else place.remove();
    } catch (error) {
      replaceChildren(place, html`<span class="bad">${showInvisible(error.message)}</span>`);
    }
  });
  return place;
}

function drawTable(found, { isRaw, again }) {
  const raw = found.types ? null : element`<button class="button button-small" type="button" aria-pressed=${String(isRaw)}>As text</button>`;
  raw?.addEventListener("click", () => again(true));
  const headings = found.columns.map((name, number) => html`<th scope="col">${showInvisible(name)}${found.types ? html`<br><span class="faint">${showInvisible(found.types[number])}</span>` : null}</th>`);
  const rows = found.rows.map((row) => html`<tr>${row.map((cell) => html`<td>${showInvisible(cell)}</td>`)}</tr>`);
  const more = [found.hasMore && `The first ${formatNumber(found.rows.length)} rows.`, found.hasMoreColumns && `The first ${found.columns.length} columns.`].filter(Boolean);
  return html`${raw ? html`<div class="toolbar">${raw}</div>` : null}
    <div class="scroll preview-table" tabindex="0" role="region" aria-label="Rows"><table class="table"><thead><tr>${headings}</tr></thead><tbody>${rows}</tbody></table></div>
    ${more.length ? html`<p class="preview-note">${more.join(" ")}</p>` : null}`;
}

function drawTensors(found) {
  const body = element`<tbody></tbody>`;
  const note = element`<p class="preview-note"></p>`;
  const filter = element`<input class="input preview-filter mono" type="search" aria-label="Filter the tensors by name" placeholder="Filter by name" spellcheck="false" data-page-filter>`;
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const fitting = found.tensors.filter((each) => each.name.toLowerCase().includes(wanted));
    replaceChildren(body, fitting.slice(0, SHOWN_TENSORS).map(tensorRow));
    const left = found.total - found.tensors.length + Math.max(0, fitting.length - SHOWN_TENSORS);
    note.textContent = found.tensors.length === 0 ? "The file has no tensors." : fitting.length === 0 ? "No tensor has this in its name." : left > 0 ? `${formatNumber(left)} more are not shown; filter by name.` : "";
  };
  filter.addEventListener("input", show);
  show();
  const metadata = Object.entries(found.metadata);
  return html`${metadata.length ? factList(metadata) : null}${found.tensors.length > 12 ? filter : null}
    <div class="scroll preview-table" tabindex="0" role="region" aria-label="Tensors"><table class="table"><thead><tr><th scope="col">Tensor</th><th scope="col">Shape</th>
    <th scope="col">Data type</th><th scope="col" class="number">Elements</th><th scope="col" class="number">Size</th></tr></thead>${body}</table></div>${note}`;
}

function tensorRow({ name, shape, dtype, bytes }) {
  const elements = shape.reduce((product, side) => product * side, 1);
  return html`<tr><td class="mono">${showInvisible(name)}</td><td>${shapeText(shape)}</td><td>${showInvisible(dtype)}</td>
    <td class="number">${formatNumber(elements)}</td><td class="number">${bytes === null ? "–" : formatBytes(bytes)}</td></tr>`;
}

function factList(facts) {
  return html`<dl class="facts preview-facts-list">${facts.map(([name, value]) => html`<dt>${showInvisible(name)}</dt><dd>${showInvisible(value)}</dd>`)}</dl>`;
}

function shapeText(shape) {
  return shape.length ? shape.join(" × ") : "scalar";
}
