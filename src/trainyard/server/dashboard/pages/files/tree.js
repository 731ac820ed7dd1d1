/** The tree of a job's files: folders are read when they are opened. Works with the mouse and with the arrow keys. */

import { formatBytes } from "../../format.js";
import { element, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";

const ARCHIVE = /\.(tar\.gz|tgz|tar|zip)$/i;
const MAX_DEPTH = 8;

/**
 * One line of the tree. A member of an archive has the path of the archive and its own name in it.
 * @typedef {{place: string, path: string, member: string, name: string, kind: "folder"|"file"|"archive", size?: number,
 *   title?: string, children?: Node[]}} Node
 */

export class FileTree {
  /** @param {HTMLElement} element @param {string} address of the routes of the files @param {(node: Node) => void} onOpen */
  constructor(element, address, places, onOpen) {
    this.address = address;
    this.onOpen = onOpen;
    this.items = new Map();
    this.root = element;
    this.root.addEventListener("keydown", (event) => this.#press(event));
    this.#drawPlaces(places);
  }

  /** Open the folders above a file, and select it. @param {{place: string, path: string, member: string}} wanted */
  async reveal({ place, path, member }) {
    let item = this.#find((node) => node.isPlace && node.place === place);
    while (item && !isSame(item.node, { place, path, member })) {
      if (!isAbove(item.node, { path, member })) return null;
      await this.#expand(item);
      item = [...this.items.keys()].map((each) => this.items.get(each)).find(
        (each) => each.parent === item && (isSame(each.node, { place, path, member }) || isAbove(each.node, { path, member })));
    }
    if (item) this.#select(item);
    return item?.node ?? null;
  }

  /** Read the folders that are open again. */
  async refresh() {
    const open = [...this.items.values()].filter((each) => each.isExpanded && !each.node.children);
    for (const item of open) if (this.items.has(item.element)) await this.#load(item, { isAgain: true });
  }

  #drawPlaces(places) {
    const groups = new Map();
    for (const place of places) groups.set(place.group, [...(groups.get(place.group) ?? []), place]);
    for (const [title, members] of groups) {
      const heading = element`<h3 class="file-group">${title}</h3>`;
      heading.id = `group-${groups.size}-${this.root.childElementCount}`;
      const list = element`<ul class="file-tree" role="tree" aria-labelledby=${heading.id}></ul>`;
      this.root.append(heading, list);
      for (const place of members) list.append(this.#placeItem(place));
    }
    const first = this.root.querySelector("[role=treeitem]");
    if (first) first.tabIndex = 0;
  }

  #placeItem(place) {
    const kind = place.isFile ? kindOf(place.name) : "folder";
    const node = { place: place.id, path: "", member: "", name: place.isFile ? place.name : place.title, title: place.title, kind, uri: place.uri, isPlace: true };
    if (place.isBrowsable) {
      const item = this.#item(node, null, 0);
      item.element.classList.add("file-place");
      item.element.title = showInvisible(place.uri);
      return item.element;
    }
    return element`<li class="file-item file-place" role="treeitem" aria-disabled="true" aria-selected="false" tabindex="-1"><div class="file-row"><span class="file-twist"></span>
      <span class="file-name">${showInvisible(place.title)}</span></div><p class="file-note">${showInvisible(place.note)}</p></li>`;
  }

  #item(node, parent, depth) {
    const isFolder = node.kind !== "file";
    const label = node.isPlace && node.title !== node.name && node.kind !== "folder" ? `${node.title} · ${node.name}` : node.name;
    const made = element`<li class=${`file-item depth-${Math.min(depth, MAX_DEPTH)}`} role="treeitem" aria-selected="false"
      aria-expanded=${isFolder ? "false" : null} tabindex="-1"><div class="file-row"><span class="file-twist" aria-hidden="true">${isFolder ? "▶" : ""}</span>
      <span class="file-name">${showInvisible(label)}</span><span class="file-size">${node.size === undefined ? "" : formatBytes(node.size)}</span></div></li>`;
    const item = { node, parent, depth, element: made, isExpanded: false };
    this.items.set(made, item);
    made.firstElementChild.addEventListener("click", (event) => this.#click(item, event));
    return item;
  }

  #click(item, event) {
    this.#focus(item.element);
    if (event.target.classList.contains("file-twist") && item.node.kind === "archive") this.#toggle(item);
    else this.#open(item);
  }

  #open(item) {
    if (item.node.kind === "folder") {
      this.#toggle(item);
      // A folder in an archive has no location of its own.
      if (item.node.children) return;
    }
    if (item.node.kind === "archive" && !item.isExpanded) this.#expand(item);
    this.#select(item);
    this.onOpen(item.node);
  }

  #toggle(item) {
    if (item.isExpanded) this.#collapse(item);
    else this.#expand(item);
  }

  async #expand(item) {
    if (item.isExpanded) return item.loading;
    item.isExpanded = true;
    item.element.setAttribute("aria-expanded", "true");
    item.loading = this.#load(item, {});
    return item.loading;
  }

  #collapse(item) {
    item.isExpanded = false;
    item.element.setAttribute("aria-expanded", "false");
    this.#empty(item);
    item.list?.remove();
    item.list = null;
  }

  #empty(item) {
    for (const [made, each] of this.items) if (each.parent === item) {
      this.#empty(each);
      this.items.delete(made);
    }
  }

  async #load(item, { isAgain = false }) {
    const list = element`<ul role="group"></ul>`;
    if (!isAgain) {
      replaceChildren(list, note("Reading…", item.depth));
      item.list?.remove();
      item.element.append(list);
      item.list = list;
    }
    try {
      const { nodes, next, text } = await this.#children(item);
      if (!item.isExpanded) return;
      if (isAgain) this.#merge(item, nodes, next);
      else this.#show(item, list, nodes, next, text);
    } catch (error) {
      if (!isAgain) replaceChildren(list, note(error.message, item.depth, "bad"));
    }
  }

  #show(item, list, nodes, next, text = "") {
    const made = nodes.map((node) => this.#item(node, item, item.depth + 1).element);
    replaceChildren(list, made);
    if (text) list.append(note(text, item.depth));
    if (next) list.append(this.#moreButton(item, list, next));
    if (made.length === 0 && !text) replaceChildren(list, note("There are no files here yet.", item.depth));
  }

  /** Add what is new to a folder, and leave what is there, with what is open in it. */
  #merge(item, nodes, next) {
    const known = new Map([...this.items.values()].filter((each) => each.parent === item).map((each) => [each.node.path, each]));
    if (known.size === 0) return this.#show(item, item.list, nodes, next);
    for (const node of nodes) {
      const found = known.get(node.path);
      if (found) found.element.querySelector(".file-size").textContent = node.size === undefined ? "" : formatBytes(node.size);
      else item.list.append(this.#item(node, item, item.depth + 1).element);
    }
  }

  #moreButton(item, list, next) {
    const row = element`<li role="none"><button class="button button-small file-more" type="button">More files</button></li>`;
    row.className = `depth-${Math.min(item.depth, MAX_DEPTH)}`;
    row.firstElementChild.addEventListener("click", async () => {
      try {
        const more = await this.#page(item.node, next);
        row.remove();
        for (const node of more.nodes) list.append(this.#item(node, item, item.depth + 1).element);
        if (more.next) list.append(this.#moreButton(item, list, more.next));
      } catch (error) {
        row.after(note(error.message, item.depth, "bad"));
      }
    });
    return row;
  }

  async #children({ node }) {
    if (node.children) return { nodes: node.children };
    if (node.kind !== "archive") return this.#page(node, "");
    const { members, note: text } = await getJson(`${this.address}/members?${query(node)}`);
    return { nodes: nest(node, members), text };
  }

  async #page(node, after) {
    const { entries, next } = await getJson(`${this.address}/list?${query({ ...node, after })}`);
    const nodes = entries.map((each) => ({ ...each, place: node.place, member: "", kind: each.kind === "folder" ? "folder" : kindOf(each.name) }));
    return { nodes, next };
  }

  #find(fits) {
    return [...this.items.values()].find((each) => fits(each.node));
  }

  #select(item) {
    for (const each of this.root.querySelectorAll('[aria-selected="true"]')) each.setAttribute("aria-selected", "false");
    item.element.setAttribute("aria-selected", "true");
    this.#focus(item.element, false);
  }

  #focus(target, moves = true) {
    for (const each of this.root.querySelectorAll('[role=treeitem][tabindex="0"]')) each.tabIndex = -1;
    target.tabIndex = 0;
    if (moves) target.focus();
  }

  #press(event) {
    const current = event.target.closest("[role=treeitem]");
    if (!current || event.target.closest("button") || event.ctrlKey || event.altKey || event.metaKey) return;
    const item = this.items.get(current);
    const all = [...this.root.querySelectorAll("[role=treeitem]")];
    const at = all.indexOf(current);
    const moves = { ArrowDown: all[at + 1], ArrowUp: all[at - 1], Home: all[0], End: all[all.length - 1] };
    if (event.key in moves) {
      if (moves[event.key]) this.#focus(moves[event.key]);
    } else if (event.key === "ArrowRight" && item && item.node.kind !== "file") {
      if (!item.isExpanded) this.#expand(item);
      else if (item.list?.querySelector("[role=treeitem]")) this.#focus(item.list.querySelector("[role=treeitem]"));
    } else if (event.key === "ArrowLeft" && item) {
      if (item.isExpanded) this.#collapse(item);
      else if (item.parent) this.#focus(item.parent.element);
    } else if ((event.key === "Enter" || event.key === " ") && item) this.#open(item);
    else return;
    event.preventDefault();
  }
}

export function query(values) {
  const given = ["place", "path", "member", "after", "first", "raw"].filter((name) => values[name]);
  return new URLSearchParams(given.map((name) => [name, values[name]]));
}

function kindOf(name) {
  return ARCHIVE.test(name) ? "archive" : "file";
}

function isSame(node, { place, path, member }) {
  return node.place === place && node.path === path && node.member === member && (!node.isPlace || node.kind !== "folder");
}

function isAbove(node, { path, member }) {
  if (node.kind === "folder" && node.children) return member.startsWith(node.member);
  if (node.kind === "archive") return node.path === path && member !== "";
  return node.kind === "folder" && (node.isPlace || path.startsWith(node.path));
}

/** Nest the members of an archive, which are a flat list. @returns {Node[]} */
function nest({ place, path }, members) {
  const top = { children: [], folders: new Map() };
  for (const { name, size, kind } of members) {
    const parts = name.split("/").filter((part) => part !== "" && part !== ".");
    const last = kind === "folder" ? parts.length : parts.length - 1;
    let within = top;
    let above = name.startsWith("./") ? "./" : name.startsWith("/") ? "/" : "";
    for (const part of parts.slice(0, last)) {
      above += `${part}/`;
      let folder = within.folders.get(part);
      if (!folder) {
        folder = { place, path, member: above, name: part, kind: "folder", children: [], folders: new Map() };
        within.folders.set(part, folder);
        within.children.push(folder);
      }
      within = folder;
    }
    if (kind !== "folder" && parts.length > 0) within.children.push({ place, path, member: name, name: kind === "link" ? `${parts[last]} (link)` : parts[last], kind: "file", size });
  }
  return top.children;
}

function note(text, depth, kind = "") {
  return element`<li role="none" class=${`file-note depth-${Math.min(depth, MAX_DEPTH)} ${kind}`}>${showInvisible(text)}</li>`;
}
