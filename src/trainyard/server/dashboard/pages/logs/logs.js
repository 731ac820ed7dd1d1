/** The page of a job's log. */

import { formatBytes, formatNumber } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { showInvisible } from "../../text.js";
import { showToast } from "../../toast.js";
import { LineStore } from "./line_store.js";
import { plainText, textNodes } from "./line_text.js";
import { LogSearch } from "./log_search.js";
import { Scroller } from "./scroller.js";

const { log: firstExtent, facts: firstFacts } = JSON.parse(document.getElementById("log-data").textContent);
const DEFAULTS = { attempt: "", instance: "", rank: "", find: "", regex: false, case: false, times: false, wrap: false };
const MAX_COPIED = 20_000;
const LONG_LINE_BYTES = 256 * 1024;
const part = (id) => document.getElementById(id);

const state = readState(DEFAULTS);
let extent = firstExtent;
let facts = firstFacts;
let isFollowing = facts.running && !location.hash && !state.find;
let marked = readHash();
let current = 0;
let stopListening = null;
const wholeLines = new Map();
const linesOfRows = new WeakMap();

const store = new LineStore({ address: () => address("lines", pattern() ?? {}), isMerged, onChange: onLines, onError: showProblem });
const search = new LogSearch({ address: (parameters) => address("search", parameters), onCount: showCount });
search.total = () => extent.total;
const scroller = new Scroller({ view: part("view"), space: part("space"), window: part("window"), rows: part("rows"), makeRow, isStale, onView });
scroller.onMove = () => {
  if (isFollowing !== scroller.isAtEnd && (isFollowing || canFollow())) setFollowing(scroller.isAtEnd);
};

function address(what, parameters = {}) {
  const query = new URLSearchParams({ attempt: state.attempt, instance: state.instance, rank: state.rank });
  for (const [name, value] of Object.entries(parameters)) query.set(name, value);
  return `${facts.address}/${what}?${query}`;
}

function pattern() {
  return state.find ? { find: state.find, regex: state.regex ? 1 : 0, case: state.case ? 1 : 0 } : null;
}

const canFollow = () => extent.growing;

function isMerged() {
  return state.instance === "" && extent.instances.length > 1;
}

/* Rows */

function makeRow(place) {
  const line = store.line(place);
  const row = document.createElement("div");
  row.className = "logs-line";
  row.dataset.place = place;
  const number = document.createElement("a");
  number.className = "logs-number";
  number.textContent = line ? line.line : isMerged() ? "" : place;
  number.tabIndex = -1;
  row.append(number);
  if (!line) {
    row.dataset.waiting = "";
    row.append(element`<span class="logs-text logs-waiting">…</span>`);
    return row;
  }
  linesOfRows.set(row, line);
  number.href = `#L${line.line}`;
  if (isMarked(line)) row.classList.add("logs-line-marked");
  if (place === current) row.classList.add("logs-line-current");
  if (isMerged()) row.append(element`<span class="logs-instance" title=${line.instance}>${line.instance}</span>`);
  if (state.times) row.append(element`<span class="logs-time" title=${new Date(line.at).toISOString()}>${timeText(line.at)}</span>`);
  const text = document.createElement("span");
  text.className = "logs-text";
  const gap = extent.gaps.find((each) => each.instance === line.instance && each.line === line.line);
  if (gap) text.append(element`<span class="logs-gap">${formatBytes(gap.bytes)} missing before this line: the log exceeded its limit</span>`);
  const whole = wholeLines.get(place);
  text.append(...textNodes(whole?.line ? { ...whole.line, spans: line.spans } : line, {
    isWhole: whole !== undefined,
    onMore: () => showMore(place),
    onWhole: () => showWhole(place, {}),
  }));
  row.append(text);
  return row;
}

/** Whether the line of a row has grown or is marked now, or other matches are in it. */
function isStale(place, row) {
  const line = store.line(place);
  const shown = linesOfRows.get(row);
  if (row.classList.contains("logs-line-marked") !== isMarked(shown) || row.classList.contains("logs-line-current") !== (place === current)) return true;
  return line !== undefined && line !== shown && (line.text !== shown.text || line.end !== shown.end || String(line.spans) !== String(shown.spans));
}

async function showMore(place) {
  try {
    const answer = await getJson(`${address("lines")}&from=${place}&count=1&bytes=${LONG_LINE_BYTES}`);
    showWhole(place, { line: answer.lines[0] });
  } catch (error) {
    showProblem(error);
  }
}

function showWhole(place, whole) {
  wholeLines.set(place, whole);
  scroller.redraw();
}

function timeText(at) {
  const moment = new Date(at);
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  return `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
}

function onView(first, last) {
  if (extent.total) store.want(first, last);
  const shown = extent.total ? `${isMerged() ? "Row" : "Line"} ${formatNumber(first)} of ${formatNumber(extent.total)}` : "";
  if (part("place").textContent !== shown) part("place").textContent = shown;
}

function onLines() {
  hideProblem();
  scroller.draw();
}

/* What the log has */

function showExtent(next) {
  const isOther = next.attempt !== extent.attempt;
  const isShorter = next.total < extent.total;
  const hasOtherGaps = next.gaps.length !== extent.gaps.length;
  extent = next;
  if (isOther || isShorter) {
    store.clear();
    wholeLines.clear();
    scroller.redraw();
    search.start(pattern());
  }
  // Lines that come with their number have no matches marked.
  if (next.lines && !state.find) store.append(next.lines, extent.total);
  store.total = extent.total;
  showSources();
  part("empty").hidden = extent.total > 0;
  part("view").hidden = extent.total === 0;
  if (!extent.total) showEmpty();
  showAttempts();
  const uncounted = extent.counted < extent.bytes ? `, counted ${Math.floor((100 * extent.counted) / extent.bytes)} %` : "";
  part("extent").textContent = `${formatNumber(extent.total)} ${extent.total === 1 ? "line" : "lines"}, ${formatBytes(extent.bytes)}${uncounted}${extent.growing ? ", still growing" : ""}`;
  part("follow").disabled = !canFollow();
  if (!canFollow() && isFollowing) setFollowing(false);
  scroller.total = extent.total;
  scroller.isAtEnd = isFollowing || (scroller.isAtEnd && !extent.growing);
  scroller.resize();
  if (hasOtherGaps) scroller.redraw();
  search.grow(extent.total);
}

function showEmpty() {
  const [title, text] = facts.removed
    ? ["The log was removed", facts.removed]
    : extent.attempt === 0
      ? [`The job is ${facts.status || "waiting"}`, "Its log appears here as soon as the program writes something."]
      : extent.growing
        ? ["Nothing was written yet", "Lines appear here as the program writes them. Python keeps what it prints in memory for a while unless PYTHONUNBUFFERED is set."]
        : ["The log is empty", "The program of this instance wrote nothing to its standard output or its standard error."];
  part("empty-title").textContent = title;
  part("empty-text").textContent = text;
}

function showSources() {
  const sources = extent.instances.length > 1 ? [["", "All"], ...extent.instances.map((name) => [name, name])] : [];
  const buttons = sources.map(
    ([name, title]) => element`<button type="button" class="logs-source" aria-pressed=${String(name === state.instance)} onclick=${() => choose({ instance: name })}>${title}</button>`,
  );
  const key = JSON.stringify([sources, state.instance]);
  if (part("sources").dataset.shown !== key) {
    part("sources").dataset.shown = key;
    part("sources").replaceChildren(...buttons);
  }
  showChoice("rank", [["", "All"], ...extent.ranks.map((rank) => [String(rank), String(rank)])], extent.ranks.length > 0 || state.rank !== "");
  part("download").href = address("download");
}

function showChoice(id, choices, isShown) {
  part(`${id}-choice`).hidden = !isShown;
  const key = JSON.stringify(choices);
  if (part(id).dataset.shown !== key) {
    part(id).dataset.shown = key;
    part(id).replaceChildren(...choices.map(([value, title]) => new Option(title, value)));
  }
  part(id).value = state[id];
}

/** Say which attempt is shown, how it ended, and what ended the one before. */
function showAttempts() {
  const { attempts } = facts;
  const last = attempts.length;
  showChoice("attempt", [["", `${last} (last)`], ...attempts.slice(0, -1).reverse().map(({ number }) => [String(number), String(number)])], last > 1);
  const shown = attempts.findIndex(({ number }) => number === extent.attempt);
  part("attempt-note").hidden = last < 2 || shown < 0;
  if (part("attempt-note").hidden) return;
  const { number, end } = attempts[shown];
  const before = attempts[shown - 1];
  const text = end ? `Attempt ${number} of ${last} ${end}` : before?.end ? `Attempt ${number} of ${last}. Attempt ${before.number} ${before.end}` : `Attempt ${number} of ${last}.`;
  const link = (to, title) => to && element`<button type="button" class="button button-small" onclick=${() => chooseAttempt(to.number === last ? "" : String(to.number))}>${title}</button>`;
  replaceChildren(part("attempt-note"), element`<span>${showInvisible(text)}</span>`, link(before, "Attempt before"), link(attempts[shown + 1], "Next attempt"));
}

/** The job has begun another attempt, or ended. */
function showFacts(next) {
  facts = next;
  part("cause").hidden = !facts.cause;
  part("cause").title = facts.cause;
  showAttempts();
}

/** Show another part of the log: another attempt, instance or rank. */
function choose(changes) {
  change(changes);
  marked = null;
  current = 0;
  history.replaceState(null, "", location.pathname + location.search);
  store.clear();
  wholeLines.clear();
  extent = { ...extent, total: 0, gaps: [] };
  scroller.top = 0;
  scroller.isAtEnd = false;
  scroller.redraw();
  connect();
  search.start(pattern());
}

/** @param {string} attempt a number, or "" for the last */
function chooseAttempt(attempt) {
  choose({ attempt, instance: "", rank: "" });
}

function change(changes) {
  Object.assign(state, changes);
  writeState(changes, { defaults: DEFAULTS });
}

function connect() {
  stopListening?.();
  stopListening = listen(address("events"), { facts: showFacts, extent: showExtent });
}

/* Following */

function setFollowing(isOn) {
  isFollowing = isOn && canFollow();
  part("follow").setAttribute("aria-pressed", String(isFollowing));
  if (isFollowing) scroller.scrollTo(Infinity, true);
}

/* Search */

function startSearch() {
  part("find").setAttribute("aria-invalid", "false");
  hideProblem();
  store.clear();
  scroller.redraw();
  search.start(pattern());
  showCount();
}

function showCount() {
  const isOn = search.pattern !== null;
  part("previous").disabled = part("next").disabled = !isOn;
  if (search.problem) {
    part("count").textContent = "";
    part("find").setAttribute("aria-invalid", "true");
    showProblem(new Error(search.problem));
    return;
  }
  const count = search.places.length;
  const all = `${formatNumber(count)}${search.isLimited ? "+" : ""}${search.isComplete ? "" : "…"}`;
  const number = search.numberOf(current);
  part("count").textContent = !isOn ? "" : number ? `${formatNumber(number)} of ${all}` : `${all} ${count === 1 && search.isComplete ? "line" : "lines"}`;
}

async function goToMatch(isBackward) {
  if (!search.pattern) return;
  const from = current || (isBackward ? extent.total + 1 : Math.floor(scroller.top));
  try {
    const found = await search.find(from, { isBackward });
    if (!found) {
      showToast("No line of the log matches.");
      return;
    }
    if (found.isWrapped && current) showToast(isBackward ? "Continued from the end." : "Continued from the beginning.");
    goTo(found.place);
  } catch (error) {
    if (error.name !== "AbortError") showProblem(error);
  }
}

/** Show a line, and mark it as the one that the reader is at. */
function goTo(place) {
  setFollowing(false);
  current = place;
  scroller.isAtEnd = false;
  if (!scroller.isShown(place)) scroller.show(place);
  scroller.draw();
  showCount();
}

async function goToFirstError() {
  const finder = new LogSearch({ address: (parameters) => address("search", parameters), onCount: () => {} });
  finder.pattern = { errors: 1 };
  part("first-error").disabled = true;
  try {
    const found = await finder.ask(1, false, finder.abort.signal);
    if (found === null) showToast("No line of the log looks like an error.");
    else goTo(found);
  } catch (error) {
    showProblem(error);
  } finally {
    part("first-error").disabled = false;
  }
}

async function goToCause() {
  try {
    const found = await getJson(`${facts.address}/cause`);
    if (!found.instance) {
      showToast("The log does not have the lines of the failure. The first error may help.");
      return;
    }
    if (state.attempt !== "" || state.rank !== "" || (extent.instances.length > 1 && state.instance !== found.instance)) {
      choose({ attempt: "", rank: "", instance: extent.instances.length > 1 ? found.instance : "" });
    }
    mark({ first: found.first, last: found.last });
    goTo(found.first);
  } catch (error) {
    showProblem(error);
  }
}

/* Marked lines, which have an address */

function readHash() {
  const found = /^#L(\d{1,15})(?:-L(\d{1,15}))?$/.exec(location.hash);
  if (!found) return null;
  const numbers = [Number(found[1]), Number(found[2] ?? found[1])].sort((one, other) => one - other);
  return { first: Math.max(1, numbers[0]), last: Math.max(1, numbers[1]) };
}

function isMarked(line) {
  return marked !== null && line.line >= marked.first && line.line <= marked.last && (marked.instance ?? line.instance) === line.instance;
}

function mark(lines) {
  marked = lines;
  const hash = lines.first === lines.last ? `#L${lines.first}` : `#L${lines.first}-L${lines.last}`;
  const target = new URL(location.href);
  if (lines.instance && isMerged()) target.searchParams.set("instance", lines.instance);
  target.hash = hash;
  history.replaceState(null, "", target);
  scroller.draw();
}

function onNumber(event) {
  const number = event.target.closest(".logs-number");
  if (!number?.href) return;
  event.preventDefault();
  const line = store.line(Number(number.parentElement.dataset.place));
  if (!line) return;
  const isRange = event.shiftKey && marked && (marked.instance ?? line.instance) === line.instance;
  const start = isRange ? (marked.from ?? marked.first) : line.line;
  mark({ first: Math.min(start, line.line), last: Math.max(start, line.line), from: start, instance: isMerged() ? line.instance : undefined });
}

async function copyLines() {
  try {
    const lines = await linesToCopy();
    await navigator.clipboard.writeText(`${lines.map(plainText).join("\n")}\n`);
    showToast(lines.length === 1 ? "Copied one line." : `Copied ${formatNumber(lines.length)} lines.`);
  } catch (error) {
    showProblem(error);
  }
}

async function linesToCopy() {
  if (!marked) return [...part("rows").children].map((row) => store.line(Number(row.dataset.place))).filter(Boolean);
  const lines = [];
  const last = Math.min(marked.last, marked.first + MAX_COPIED - 1);
  const target = marked.instance ? `${facts.address}/lines?${new URLSearchParams({ attempt: state.attempt, instance: marked.instance })}` : address("lines");
  while (marked.first + lines.length <= last) {
    const answer = await getJson(`${target}&from=${marked.first + lines.length}&count=${Math.min(5000, last - marked.first - lines.length + 1)}`);
    if (!answer.lines.length) break;
    lines.push(...answer.lines);
  }
  if (marked.last > last) showToast(`Only the first ${formatNumber(MAX_COPIED)} lines were copied; download the log for more.`);
  return lines;
}

async function copyLink() {
  const target = new URL(location.href);
  if (state.attempt === "" && extent.attempt) target.searchParams.set("attempt", extent.attempt);
  await navigator.clipboard.writeText(target.href);
  showToast("Copied a link to what you see.");
}

/* Messages */

function showProblem(error) {
  part("problem").textContent = error.message;
  part("problem").hidden = false;
}

function hideProblem() {
  if (!search.problem) part("problem").hidden = true;
}

/* Controls */

function setTimes(isOn) {
  change({ times: isOn });
  part("times").checked = isOn;
  scroller.redraw();
}

function setWrap(isOn) {
  change({ wrap: isOn });
  part("wrap").checked = isOn;
  part("logs").classList.toggle("logs-wraps", isOn);
  scroller.redraw();
}

function setSwitch(name, isOn) {
  change({ [name]: isOn });
  part(name).setAttribute("aria-pressed", String(isOn));
  startSearch();
}

const KEYS = {
  n: () => goToMatch(false),
  N: () => goToMatch(true),
  g: () => {
    setFollowing(false);
    scroller.scrollTo(0);
  },
  G: () => (canFollow() ? setFollowing(true) : scroller.scrollTo(Infinity, true)),
  f: () => setFollowing(!isFollowing),
  e: goToFirstError,
  t: () => setTimes(!state.times),
  w: () => setWrap(!state.wrap),
  c: copyLines,
  l: copyLink,
};

function onKey(event) {
  const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  KEYS[event.key]();
}

let typing = 0;
part("find").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    change({ find: part("find").value });
    startSearch();
  }, 200);
});
part("find").addEventListener("keydown", async (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    if (part("find").value !== state.find) {
      clearTimeout(typing);
      change({ find: part("find").value });
      startSearch();
    }
    await goToMatch(event.shiftKey);
  } else if (event.key === "Escape") part("window").focus();
});
part("next").addEventListener("click", () => goToMatch(false));
part("previous").addEventListener("click", () => goToMatch(true));
part("case").addEventListener("click", () => setSwitch("case", !state.case));
part("regex").addEventListener("click", () => setSwitch("regex", !state.regex));
part("first-error").addEventListener("click", goToFirstError);
part("cause").addEventListener("click", goToCause);
part("follow").addEventListener("click", () => setFollowing(!isFollowing));
part("times").addEventListener("change", (event) => setTimes(event.target.checked));
part("wrap").addEventListener("change", (event) => setWrap(event.target.checked));
part("copy-lines").addEventListener("click", copyLines);
part("copy-link").addEventListener("click", copyLink);
part("rank").addEventListener("change", (event) => choose({ rank: event.target.value }));
part("attempt").addEventListener("change", (event) => chooseAttempt(event.target.value));
part("rows").addEventListener("click", onNumber);
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => {
  marked = readHash();
  if (marked) scroller.show(marked.first);
  scroller.draw();
});

part("find").value = state.find;
showFacts(facts);
part("times").checked = state.times;
for (const name of ["case", "regex"]) part(name).setAttribute("aria-pressed", String(state[name]));
setWrap(state.wrap);
showExtent(extent);
setFollowing(isFollowing);
if (marked) scroller.show(marked.first);
search.start(pattern());
showCount();
if (extent.growing || extent.counted < extent.bytes) connect();
// The keys of the page scroll it at once.
part("window").focus({ preventScroll: true, focusVisible: false });
