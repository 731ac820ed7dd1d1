/** The search over everything: a field, and what it finds as a list that arrows go through. */

import { showDialog } from "./dialog.js";
import { element, replaceChildren } from "./html.js";
import { getJson } from "./http.js";
import { recall, remember } from "./remembered.js";
import { showInvisible } from "./text.js";

const RECENT = "recent";
const MAX_RECENT = 6;
const WAIT_MS = 60;
const BADGES = { waiting: "waiting", running: "running", stopping: "stopped", completed: "completed", failed: "failed", stopped: "stopped" };

let isOpen = false;

export function openSearch() {
  if (isOpen) return;
  isOpen = true;
  const search = new Search();
  showDialog(search.dialog).then(() => {
    search.abort?.abort();
    isOpen = false;
  });
  search.field.focus();
  search.find();
}

class Search {
  constructor() {
    this.dialog = element`<dialog class="dialog search" aria-label="Search">
      <input class="search-field" type="search" role="combobox" aria-label="Search jobs, pages and settings" aria-expanded="true" aria-controls="search-results"
             aria-autocomplete="list" placeholder="Search jobs, pages and settings" autocomplete="off" spellcheck="false" maxlength="300" oninput=${() => this.onInput()}>
      <div class="search-results" id="search-results" role="listbox" aria-label="Results" onmousemove=${(event) => this.onMove(event)} onclick=${(event) => this.onClick(event)}></div>
      <p class="search-state faint" role="status"></p>
    </dialog>`;
    this.field = this.dialog.querySelector("input");
    this.results = this.dialog.querySelector(".search-results");
    this.state = this.dialog.querySelector(".search-state");
    this.dialog.addEventListener("keydown", (event) => this.onKey(event));
    this.chosen = 0;
    this.timer = 0;
  }

  get options() {
    return [...this.results.querySelectorAll("[role=option]")];
  }

  onInput() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), WAIT_MS);
  }

  async find() {
    this.abort?.abort();
    this.abort = new AbortController();
    const text = this.field.value.trim();
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    try {
      const { groups } = await getJson(`/-/search?${new URLSearchParams({ q: text })}`, { signal: this.abort.signal });
      this.show([...localGroups(words), ...groups], text, words);
    } catch (error) {
      if (error.name === "AbortError") return;
      replaceChildren(this.results);
      this.state.textContent = error.message;
    }
  }

  show(groups, text, words) {
    const seen = new Set();
    let number = 0;
    const parts = groups.map(({ title, items }) => {
      const fresh = items.filter(({ href }) => !seen.has(href) && seen.add(href));
      if (!fresh.length) return null;
      return element`<div role="group" aria-label=${title}><p class="search-group" aria-hidden="true">${title}</p>${fresh.map((item) => option(item, words, number++))}</div>`;
    });
    replaceChildren(this.results, ...parts);
    this.results.dataset.shown = text;
    this.state.textContent = number ? "" : `Nothing has “${showInvisible(text)}” in its name.`;
    this.choose(0, false);
  }

  choose(number, isScrolled = true) {
    const { options } = this;
    this.chosen = options.length ? (number + options.length) % options.length : 0;
    options.forEach((each, place) => each.setAttribute("aria-selected", String(place === this.chosen)));
    const chosen = options[this.chosen];
    if (!chosen) {
      this.field.removeAttribute("aria-activedescendant");
      return;
    }
    this.field.setAttribute("aria-activedescendant", chosen.id);
    if (isScrolled) chosen.scrollIntoView({ block: "nearest" });
  }

  onKey(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.choose(this.chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      this.enter(event);
    } else if (event.key === "Tab") event.preventDefault();
  }

  /** Open what is chosen. What was typed last may not be answered yet: then it is asked for first. */
  async enter({ ctrlKey, metaKey }) {
    clearTimeout(this.timer);
    if (this.field.value.trim() !== this.results.dataset.shown) await this.find();
    const chosen = this.options[this.chosen];
    if (!chosen) return;
    rememberRecent(chosen);
    if (ctrlKey || metaKey) window.open(chosen.href, "_blank", "noopener");
    else location.assign(chosen.href);
  }

  onMove(event) {
    const place = this.options.indexOf(event.target.closest("[role=option]"));
    if (place >= 0 && place !== this.chosen) this.choose(place, false);
  }

  onClick(event) {
    const chosen = event.target.closest("[role=option]");
    if (chosen) rememberRecent(chosen);
  }
}

function option({ title, note, state, at, href }, words, number) {
  return element`<a class="search-option" role="option" id=${`search-option-${number}`} aria-selected="false" tabindex="-1" href=${href} data-title=${title}>
    <span class="search-title">${marked(showInvisible(title), words)}</span>
    ${note ? element`<span class="search-note faint">${showInvisible(note)}</span>` : null}
    ${state ? element`<span class=${`badge badge-${BADGES[state] ?? "stopped"}`}>${state}</span>` : null}
    ${at ? element`<time class="faint" datetime=${at}></time>` : null}
  </a>`;
}

/** The title, with the words that were searched for marked. */
function marked(title, words) {
  const lower = title.toLowerCase();
  const hits = words.map((word) => [lower.indexOf(word), word.length]).filter(([at]) => at >= 0).sort(([one], [other]) => one - other);
  const nodes = [];
  let from = 0;
  for (const [at, length] of hits) {
    if (at < from) continue;
    nodes.push(title.slice(from, at), element`<mark>${title.slice(at, at + length)}</mark>`);
    from = at + length;
  }
  return [...nodes, title.slice(from)];
}

/** What this browser knows by itself: the tabs of this page and, before anything is typed, what was found last. */
function localGroups(words) {
  const tabs = [...document.querySelectorAll(".tabs a.tab")].map((tab) => ({ title: tab.textContent, note: "on this page", href: tab.getAttribute("href") }));
  const matching = words.length ? tabs.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word))) : [];
  return [
    { title: "Recent", items: words.length ? [] : readRecent() },
    { title: "On this page", items: matching },
  ];
}

function readRecent() {
  const found = recall(RECENT);
  return Array.isArray(found) ? found.filter((each) => typeof each?.title === "string" && typeof each?.href === "string") : [];
}

function rememberRecent(chosen) {
  const item = { title: chosen.dataset.title, href: chosen.getAttribute("href") };
  const others = readRecent().filter(({ href }) => href !== item.href);
  remember(RECENT, [item, ...others].slice(0, MAX_RECENT));
}
