/** Reads and changes the text of a filter; server/services/trainyard/job_list/filters.py describes its language. */

const QUOTED = /"(?:[^"\\]|\\.)*"/gs;
const PART = /(?:"(?:[^"\\]|\\.)*"?|[^\s"])+/gs;
const SPECIAL = /[\s,"<>=!]|^$/;

/** @param {string} text @returns {{start: number, end: number, text: string}[]} the parts, with their quotes */
export function splitFilter(text) {
  return [...text.matchAll(PART)].map((found) => ({ start: found.index, end: found.index + found[0].length, text: found[0] }));
}

/** Quote a name or value if the filter would otherwise break it. */
export function quote(value) {
  return SPECIAL.test(value) ? `"${value.replace(/[\\"]/g, "\\$&")}"` : value;
}

export function unquote(text) {
  return text.replace(QUOTED, (quoted) => quoted.slice(1, -1).replace(/\\(["\\])/g, "$1"));
}

/** The values that the filter gives a field by `field:a,b`, or none. @returns {string[]} */
export function valuesOf(text, field) {
  const found = splitFilter(text).findLast((part) => part.text.startsWith(`${field}:`));
  return found ? found.text.slice(field.length + 1).split(",").map(unquote) : [];
}

/** Replace what the filter says about a field, or leave it out if there are no values. @param {string[]} values */
export function withValues(text, field, values) {
  const rest = splitFilter(text).map((part) => part.text).filter((part) => !part.startsWith(`${field}:`));
  return [...rest, ...(values.length ? [`${field}:${values.map(quote).join(",")}`] : [])].join(" ");
}

/** Add a part, unless the filter has it. */
export function withPart(text, added) {
  const parts = splitFilter(text).map((part) => part.text);
  return parts.includes(added) ? text : [...parts, added].join(" ");
}
