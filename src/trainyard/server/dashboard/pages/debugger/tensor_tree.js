/** The list of all tensors: a tree by module, or what matches while one types. */

import { element, html, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { nameInModule, shapeText } from "./catalog.js";

const MAX_MATCHES = 300;
const LOOSE = { loss: "Losses", scalar: "Scalars", input: "Inputs of the model", output: "Outputs of the model" };
const KINDS = { weight: "W", bias: "B", gradient: "G", optimizer: "S", input: "I", output: "O", loss: "L", scalar: "N", custom: "T" };

export class TensorTree {
  /** @param {(name: string) => void} onSelect */
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.place = document.getElementById("tree");
    this.tensors = [];
    this.alarmed = new Set();
    this.open = new Set();
    this.chosen = "";
    this.place.addEventListener("click", (event) => {
      const button = event.target.closest("[data-tensor]");
      if (button) this.onSelect(button.dataset.tensor);
    });
    this.place.addEventListener("keydown", (event) => this.#move(event));
  }

  /** @param {import("./catalog.js").Tensor[]} tensors @param {{filter: string, collection: string, alarmed: Set<string>}} view */
  show(tensors, { filter, collection, alarmed }) {
    this.alarmed = alarmed;
    this.tensors = tensors;
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = tensors.filter((each) => (!collection || each.collections.includes(collection)) && words.every((word) => each.name.toLowerCase().includes(word)));
    if (matches.length === 0) return replaceChildren(this.place, html`<p class="empty">No tensor matches.</p>`);
    if (words.length > 0) return this.#showMatches(matches);
    this.root = nest(matches);
    replaceChildren(this.place, html`<ul>${this.#children(this.root, "")}</ul>`);
  }

  /** Mark the chosen tensor, and open the branches to it. */
  choose(name) {
    this.chosen = name;
    const tensor = this.tensors.find((each) => each.name === name);
    if (!tensor) return;
    if (!this.place.querySelector(`[data-tensor="${CSS.escape(name)}"]`)) {
      let path = "";
      for (const part of pathOf(tensor)) {
        path = `${path}/${part}`;
        const branch = this.place.querySelector(`details[data-path="${CSS.escape(path)}"]`);
        if (!branch) break;
        this.#fill(branch);
        branch.open = true;
      }
    }
    for (const button of this.place.querySelectorAll("[data-tensor]")) {
      const isChosen = button.dataset.tensor === name;
      button.toggleAttribute("aria-current", isChosen);
      if (isChosen) scrollWithin(this.place, button);
    }
  }

  #showMatches(matches) {
    const more = matches.length > MAX_MATCHES ? html`<li class="faint tree-more">${matches.length - MAX_MATCHES} more; type more of the name.</li>` : null;
    replaceChildren(this.place, html`<ul>${matches.slice(0, MAX_MATCHES).map((each) => this.#leaf(each, each.name))}${more}</ul>`);
  }

  #children(node, path) {
    return [
      ...[...node.children].map(([name, child]) => this.#branch(name, child, `${path}/${name}`)),
      ...node.tensors.map((each) => this.#leaf(each, nameInModule(each))),
    ];
  }

  #branch(name, node, path) {
    const isOpen = this.open.has(path) || (this.root.children.size <= 2 && path.split("/").length <= 2);
    const branch = element`<li><details data-path=${path} open=${isOpen}><summary><span class="mono">${showInvisible(name)}</span>
      <span class="faint tree-count">${node.count}</span>${hasAny(node, this.alarmed) ? html`<span class="tree-alarm" title="A rule found something here">◆<span class="chart-hidden"> finding</span></span>` : null}</summary><ul></ul></details></li>`;
    const details = branch.querySelector("details");
    details.branch = { node, path };
    if (isOpen) this.#fill(details);
    details.addEventListener("toggle", () => {
      if (!details.open) return this.open.delete(path);
      this.open.add(path);
      this.#fill(details);
    });
    return branch;
  }

  /** Make what is in a branch when it is opened first: a model has thousands of tensors. */
  #fill(details) {
    if (!details.branch) return;
    const { node, path } = details.branch;
    details.branch = null;
    replaceChildren(details.querySelector("ul"), this.#children(node, path));
  }

  #leaf(tensor, text) {
    const alarm = this.alarmed.has(tensor.name) ? html`<span class="tree-alarm" title="A rule found something here">◆</span>` : null;
    return html`<li><button type="button" data-tensor=${tensor.name} title=${tensor.name} aria-current=${tensor.name === this.chosen ? "true" : null}>
      <span class="tree-kind" data-kind=${tensor.kind} title=${tensor.kind}>${KINDS[tensor.kind] ?? "T"}</span><span class="mono tree-name">${showInvisible(text)}</span>${alarm}<span class="faint tree-shape">${shapeText(tensor.shape)}</span>
    </button></li>`;
  }

  #move(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const stops = [...this.place.querySelectorAll("summary, [data-tensor]")].filter((each) => each.offsetParent !== null);
    const next = stops[stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (!next) return;
    next.focus();
    event.preventDefault();
  }
}

function pathOf(tensor) {
  return tensor.module ? tensor.module.split(".") : [LOOSE[tensor.kind] ?? "The model"];
}

function nest(tensors) {
  const root = { children: new Map(), tensors: [], count: 0 };
  for (const tensor of tensors) {
    let node = root;
    for (const part of pathOf(tensor)) {
      if (!node.children.has(part)) node.children.set(part, { children: new Map(), tensors: [], count: 0 });
      node = node.children.get(part);
      node.count++;
    }
    node.tensors.push(tensor);
  }
  return root;
}

function hasAny(node, names) {
  if (names.size === 0) return false;
  return node.tensors.some((each) => names.has(each.name)) || [...node.children.values()].some((each) => hasAny(each, names));
}

/** Scroll a list, but not the page. */
function scrollWithin(list, item) {
  const [outer, inner] = [list.getBoundingClientRect(), item.getBoundingClientRect()];
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top + 8;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 8;
}
