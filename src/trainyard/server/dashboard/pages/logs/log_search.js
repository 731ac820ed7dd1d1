/** Searches the log on the server: jumps from match to match, and counts all of them in the background. */

import { getJson } from "../../http.js";

const MAX_PLACES = 100_000;

export class LogSearch {
  /** @param {{address: (parameters: object) => string, onCount: () => void}} options */
  constructor({ address, onCount }) {
    this.address = address;
    this.onCount = onCount;
    this.clear();
  }

  /** @param {object | null} pattern the parameters of the search: find, regex, case or errors */
  start(pattern) {
    this.clear();
    this.pattern = pattern;
    if (pattern) this.count();
  }

  clear() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.pattern = null;
    // Places of the matches, in rising order, as far as they are found.
    this.places = [];
    this.isComplete = false;
    this.isLimited = false;
    this.problem = "";
    this.token = "";
  }

  /** Count on where the last count ended, because the log has grown. */
  grow(total) {
    if (!this.pattern || !this.isComplete || this.isLimited || total <= this.countedTotal) return;
    this.isComplete = false;
    // The last line may have grown, too.
    const from = Math.max(1, this.countedTotal);
    while (this.places.at(-1) >= from) this.places.pop();
    this.count(from);
  }

  async count(from = 1) {
    const { signal } = this.abort;
    try {
      let next = "";
      do {
        this.countedTotal = this.total?.() ?? 0;
        const answer = await getJson(this.address({ ...this.pattern, from, max: 1000, next }), { signal });
        for (const place of answer.places) this.places.push(place);
        next = answer.next;
        this.isLimited = this.places.length >= MAX_PLACES && next !== "";
        this.isComplete = next === "" || this.isLimited;
        this.onCount();
      } while (!this.isComplete);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.problem = error.message;
      this.onCount();
    }
  }

  /** Find the match after a line, or before it. @returns {Promise<{place: number, isWrapped: boolean} | null>} */
  async find(place, { isBackward }) {
    const { signal } = this.abort;
    const known = this.findKnown(place, isBackward);
    if (known !== undefined) return known;
    const start = isBackward ? place - 1 : place + 1;
    const found = start < 1 ? null : await this.ask(start, isBackward, signal);
    if (found !== null) return { place: found, isWrapped: false };
    const wrapped = await this.ask(isBackward ? -1 : 1, isBackward, signal);
    return wrapped === null ? null : { place: wrapped, isWrapped: true };
  }

  /** The number of a match among all, from 1; 0 if it is not known. */
  numberOf(place) {
    const number = countBefore(this.places, place);
    return this.places[number] === place ? number + 1 : 0;
  }

  findKnown(place, isBackward) {
    const { places } = this;
    const isKnown = this.isComplete && !this.isLimited;
    if (isBackward) {
      const number = countBefore(places, place);
      if (number > 0 && (isKnown || place <= places.at(-1))) return { place: places[number - 1], isWrapped: false };
      if (isKnown) return places.length ? { place: places.at(-1), isWrapped: true } : null;
      return undefined;
    }
    const number = countBefore(places, place + 1);
    if (number < places.length) return { place: places[number], isWrapped: false };
    if (isKnown) return places.length ? { place: places[0], isWrapped: true } : null;
    return undefined;
  }

  async ask(from, isBackward, signal) {
    let next = "";
    do {
      const answer = await getJson(this.address({ ...this.pattern, from, max: 1, next, back: isBackward ? 1 : "" }), { signal });
      if (answer.places.length) return answer.places[0];
      next = answer.next;
    } while (next);
    return null;
  }
}

function countBefore(places, place) {
  let low = 0;
  let high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < place) low = middle + 1;
    else high = middle;
  }
  return low;
}
