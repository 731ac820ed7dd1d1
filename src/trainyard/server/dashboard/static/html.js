/** Builds DOM nodes from templates whose values are always text or nodes, never markup. */

const cache = new WeakMap();
const SLOT = /^--slot-(\d+)--$/;

/**
 * A tagged template. A value may be text, a number, a node, or a list of these; as an attribute it must be the whole
 * value, and false, null and undefined leave the attribute out.
 * @returns {DocumentFragment}
 */
export function html(strings, ...values) {
  let template = cache.get(strings);
  if (template === undefined) {
    template = document.createElement("template");
    template.innerHTML = markup(strings);
    cache.set(strings, template);
  }
  const fragment = document.importNode(template.content, true);
  for (const target of fragment.querySelectorAll("*")) fillAttributes(target, values);
  const places = [];
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_COMMENT);
  while (walker.nextNode()) places.push(walker.currentNode);
  for (const place of places) {
    const found = SLOT.exec(place.data);
    if (found) place.replaceWith(...asNodes(values[found[1]]));
  }
  return fragment;
}

/** Like `html`, for a template with one element at its top. @returns {HTMLElement} */
export function element(strings, ...values) {
  return html(strings, ...values).firstElementChild;
}

/** Replace what an element contains by nodes or text. */
export function replaceChildren(parent, ...content) {
  parent.replaceChildren(...content.flatMap(asNodes));
}

/** The template's markup, with a mark where each value goes: comments may be anywhere, also in tables. */
function markup(strings) {
  return strings.slice(1).reduce(
    (text, part, index) => (/=\s*"?$/.test(text) ? `${openAttribute(text)}"--slot-${index}--"${part.replace(/^"/, "")}` : `${text}<!----slot-${index}---->${part}`),
    strings[0],
  );
}

/** The browser would report an attribute for an event as an inline script, so it gets another name here. */
function openAttribute(text) {
  return text.replace(/"$/, "").replace(/(\s)on(\w+)=\s*$/, "$1data-on-$2=");
}

function fillAttributes(target, values) {
  for (const { name, value } of [...target.attributes]) {
    const found = SLOT.exec(value);
    if (!found) continue;
    const given = values[found[1]];
    target.removeAttribute(name);
    if (name.startsWith("data-on-")) target.addEventListener(name.slice("data-on-".length), given);
    else if (given !== false && given !== null && given !== undefined) target.setAttribute(name, given === true ? "" : safeAttribute(name, given));
  }
}

function safeAttribute(name, value) {
  const text = String(value);
  const isAddress = name === "href" || name === "src" || name === "action";
  return isAddress && !/^(\/(?!\/)|#|\?|data:image\/|blob:)/.test(text) ? "#" : text;
}

function asNodes(value) {
  if (value === null || value === undefined || value === false) return [];
  if (Array.isArray(value)) return value.flatMap(asNodes);
  return [value instanceof Node ? value : document.createTextNode(String(value))];
}
