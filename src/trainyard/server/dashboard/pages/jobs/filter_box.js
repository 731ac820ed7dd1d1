/** The filter of the list: applied while one types, with suggestions of columns and values. */

import { element } from "../../html.js";
import { showInvisible } from "../../text.js";
import { STATES } from "./cells.js";
import { quote, splitFilter, unquote } from "./filter_text.js";

/** @typedef {{text: string, about: string, isWhole: boolean}} Suggestion a whole one ends its part of the filter */

const APPLY_MS = 300;
const MAX_SHOWN = 50;
const AGES = ["1h", "24h", "7d", "30d", "today", "yesterday"];
const OPERATORS = /^(-?)((?:"(?:[^"\\]|\\.)*"|[^"<>=!])+?)(>=|<=|!=|[<>=])(.*)$/s;

export class FilterBox {
  /**
   * @param {{input: HTMLInputElement, options: HTMLElement, problem: HTMLElement}} parts
   * @param {{onChange: (text: string) => void, loadNames: () => Promise<object>}} handlers
   */
  constructor({ input, options, problem }, { onChange, loadNames }) {
    Object.assign(this, { input, options, problem, onChange, loadNames });
    this.names = null;
    this.applied = input.value;
    this.timer = 0;
    this.chosen = -1;
    input.addEventListener("focus", () => this.suggest());
    input.addEventListener("click", () => this.suggest());
    input.addEventListener("input", () => {
      this.applySoon();
      this.suggest();
    });
    input.addEventListener("keydown", (event) => this.handleKey(event));
    input.addEventListener("blur", () => {
      this.close();
      this.apply();
    });
    // A press would take the focus from the input before the click arrives.
    options.addEventListener("pointerdown", (event) => event.preventDefault());
    options.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.accept(Number(option.dataset.number));
    });
  }

  /** Show a filter that something else has set. */
  set(text) {
    clearTimeout(this.timer);
    this.applied = text;
    // Whoever types here may have typed a space for the next part.
    if (this.input.value.trim() !== text) this.input.value = text;
    this.showProblem("");
  }

  showProblem(message) {
    this.problem.hidden = message === "";
    this.problem.textContent = showInvisible(message);
    if (message) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
  }

  applySoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // The part at the caret may be unfinished, as in "loss<".
      if (!/[<>=:!,-]$/.test(this.input.value)) this.apply();
    }, APPLY_MS);
  }

  apply() {
    clearTimeout(this.timer);
    const text = this.input.value.trim();
    if (text === this.applied) return;
    this.applied = text;
    this.onChange(text);
  }

  async suggest() {
    this.names ??= await this.loadNames().catch(() => null);
    if (!this.names || document.activeElement !== this.input) return;
    this.part = partAt(this.input.value, this.input.selectionStart);
    this.suggestions = suggestionsFor(this.part.text, this.names).slice(0, MAX_SHOWN);
    this.chosen = -1;
    this.options.replaceChildren(
      ...this.suggestions.map(
        (each, number) => element`<div class="filter-option" role="option" id=${`filter-option-${number}`} data-number=${number} aria-selected="false">
          <code>${showInvisible(each.text)}</code><span class="faint">${each.about}</span></div>`,
      ),
    );
    this.setOpen(this.suggestions.length > 0);
  }

  setOpen(isOpen) {
    this.options.hidden = !isOpen;
    this.input.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    this.chosen = -1;
    this.setOpen(false);
  }

  choose(number) {
    const count = this.suggestions.length;
    this.chosen = (number + count) % count;
    for (const [at, option] of [...this.options.children].entries()) {
      option.setAttribute("aria-selected", String(at === this.chosen));
      if (at === this.chosen) option.scrollIntoView({ block: "nearest" });
    }
    this.input.setAttribute("aria-activedescendant", `filter-option-${this.chosen}`);
  }

  accept(number) {
    const { start, end } = this.part;
    const { text, isWhole } = this.suggestions[number];
    const rest = this.input.value.slice(end);
    const added = isWhole && !/^\s/.test(rest) ? `${text} ` : text;
    this.input.value = this.input.value.slice(0, start) + added + rest;
    this.input.setSelectionRange(start + added.length, start + added.length);
    this.applySoon();
    this.suggest();
  }

  handleKey(event) {
    const isOpen = !this.options.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (isOpen) this.choose(event.key === "ArrowDown" ? this.chosen + 1 : this.chosen < 0 ? -1 : this.chosen - 1);
      else this.suggest();
    } else if ((event.key === "Enter" || event.key === "Tab") && isOpen && this.chosen >= 0) {
      event.preventDefault();
      this.accept(this.chosen);
    } else if (event.key === "Enter") {
      this.close();
      this.apply();
    } else if (event.key === "Escape" && isOpen) {
      // Otherwise it would empty the field.
      event.preventDefault();
      this.close();
    }
  }
}

/** The part of the filter that the caret is in or behind. */
function partAt(text, caret) {
  const found = splitFilter(text).find((part) => part.start <= caret && caret <= part.end);
  return found ? { ...found, text: text.slice(found.start, caret), end: found.end } : { start: caret, end: caret, text: "" };
}

/** @returns {Suggestion[]} */
function suggestionsFor(text, names) {
  const compared = OPERATORS.exec(text);
  if (compared) {
    const [, minus, column, operator, value] = compared;
    return completeList(`${minus}${column}${operator}`, value, valuesAfter(typedText(column), names));
  }
  const minus = text.startsWith("-") ? "-" : "";
  const body = typedText(text.slice(minus.length));
  const [, prefix, rest] = /^(status|phase|kind|user|type|image|spot|engine|has|sort|tag):(.*)$/s.exec(body) ?? [];
  if (prefix === "tag") return complete(`${minus}tag:`, rest, names.TagKeys.map(({ Key }) => Key));
  if (prefix === "has" || prefix === "sort") {
    const downwards = prefix === "sort" && rest.startsWith("-") ? "-" : "";
    return complete(`${minus}${prefix}:${downwards}`, rest.slice(downwards.length), columnNames(names), { isWhole: true });
  }
  if (prefix) return completeList(`${minus}${prefix}:`, rest, valuesAfter(prefix, names));
  return startsFor(minus, body, names);
}

/** What a new part may begin with: a field, a metric, a hyperparameter, or a tag. */
function startsFor(minus, body, names) {
  const fields = names.Fields.map(({ Name, Type, About }) => ({ text: Name + (Type === "word" || Type === "text" ? ":" : ">"), name: Name, about: About }));
  const special = [
    { text: "tag:", name: "tag", about: "jobs with a tag, as in tag:team=vision" },
    { text: "has:", name: "has", about: "jobs with a metric or a hyperparameter" },
    { text: "sort:", name: "sort", about: "the order, as in sort:-loss.min" },
  ];
  const metrics = names.Metrics.map((name) => ({ text: `${quote(name)}<`, name, about: "metric; its last value, or .min, .max, .best" }));
  const parameters = names.HyperParameters.map((name) => ({ text: `${quote(name)}=`, name, about: "hyperparameter" }));
  const all = [...fields, ...special, ...metrics, ...parameters];
  return ranked(all, body, ({ name }) => name).map(({ text, about }) => ({ text: minus + text, about, isWhole: false }));
}

function valuesAfter(column, names) {
  if (column.startsWith("tag:")) return names.TagKeys.find(({ Key }) => Key === column.slice("tag:".length))?.Values ?? [];
  switch (column.replace(/:$/, "")) {
    case "status":
      return STATES;
    case "kind":
      return ["training", "tuning"];
    case "spot":
      return ["yes", "no"];
    case "user":
      return names.UserNames;
    case "image":
      return names.Images;
    case "type":
      return names.InstanceTypes;
    case "created":
    case "modified":
    case "started":
    case "ended":
      return AGES;
  }
  return [];
}

/** Complete the last of several values, as in status:failed,sto. */
function completeList(before, typed, values) {
  const comma = typed.lastIndexOf(",") + 1;
  return complete(before + typed.slice(0, comma), typedText(typed.slice(comma)), values, { isWhole: true });
}

function complete(before, typed, values, { isWhole = false } = {}) {
  return ranked(values, typed, (value) => value)
    .filter((value) => value !== typed)
    .map((value) => ({ text: before + quote(value), about: "", isWhole }));
}

/** Those that contain what was typed, the ones that begin with it first. */
function ranked(all, typed, nameOf) {
  const wanted = typed.toLowerCase();
  const place = (each) => (nameOf(each).toLowerCase().startsWith(wanted) ? 0 : 1);
  return all.filter((each) => nameOf(each).toLowerCase().includes(wanted)).sort((one, other) => place(one) - place(other));
}

function columnNames(names) {
  return [...names.Fields.map(({ Name }) => Name), ...names.Metrics, ...names.HyperParameters];
}

/** What was typed of a name or value, whose quotes may have no end yet. */
function typedText(text) {
  return unquote(text).replaceAll('"', "");
}
