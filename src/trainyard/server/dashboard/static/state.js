/** Keeps the state of a view in the address of the page, so that a copied link shows the same view. */

/**
 * @param {Object<string, string | number | boolean | string[]>} defaults whose types the result has
 * @returns {object}
 */
export function readState(defaults) {
  const given = new URLSearchParams(location.search);
  const state = {};
  for (const [name, standard] of Object.entries(defaults)) {
    const text = given.get(name);
    if (text === null) state[name] = standard;
    else if (Array.isArray(standard)) state[name] = text === "" ? [] : text.split(",").map(decodeURIComponent);
    else if (typeof standard === "number") state[name] = Number.isFinite(Number(text)) ? Number(text) : standard;
    else if (typeof standard === "boolean") state[name] = text === "1";
    else state[name] = text;
  }
  return state;
}

/**
 * Change parts of the state. A value of null, or one equal to its default, leaves the address.
 * @param {object} changes @param {{defaults?: object, isNewEntry?: boolean}} options a new entry can be gone back to
 */
export function writeState(changes, { defaults = {}, isNewEntry = false } = {}) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    const text = asText(value);
    if (value === null || (name in defaults && text === asText(defaults[name]))) address.searchParams.delete(name);
    else address.searchParams.set(name, text);
  }
  history[isNewEntry ? "pushState" : "replaceState"](null, "", address);
}

function asText(value) {
  if (Array.isArray(value)) return value.map(encodeURIComponent).join(",");
  return typeof value === "boolean" ? (value ? "1" : "0") : String(value);
}
