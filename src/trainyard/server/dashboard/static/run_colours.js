/** The colour of a run. It follows from the name alone, so a run looks the same in every table and chart. */

import { theme } from "./charts/theme.js";

export const RUN_COLOURS = 10;

/** @param {string} name of the job @returns {number} from 0, for `theme().series` and the variables --chart-1 to --chart-10 */
export function runColourNumber(name) {
  // FNV-1a, because names often differ in their last digit only.
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  return ((hash ^ (hash >>> 15)) >>> 0) % RUN_COLOURS;
}

/** @param {string} name of the job @returns {string} a CSS colour of the current theme */
export function runColour(name) {
  return theme().series(runColourNumber(name));
}
