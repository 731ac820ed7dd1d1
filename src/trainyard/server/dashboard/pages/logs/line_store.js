/** Fetches lines by their places, a block at a time, and keeps those that were seen last. */

import { getJson } from "../../http.js";

const BLOCK = 200;
const KEPT = 60;

export class LineStore {
  /** @param {{address: () => string, isMerged: () => boolean, onChange: () => void, onError: (error: Error) => void}} options */
  constructor({ address, isMerged, onChange, onError }) {
    this.address = address;
    this.isMerged = isMerged;
    this.onChange = onChange;
    this.onError = onError;
    this.blocks = new Map();
    this.total = 0;
  }

  /** @param {number} place from 1 @returns {object | undefined} the line, if it is here */
  line(place) {
    return this.blocks.get(Math.floor((place - 1) / BLOCK))?.lines?.[(place - 1) % BLOCK];
  }

  /** Forget everything, because other lines are selected or other matches are shown. */
  clear() {
    for (const block of this.blocks.values()) block.abort?.abort();
    this.blocks.clear();
  }

  /** Fetch what is missing between two places, and stop fetching what is no longer to be seen. */
  want(first, last) {
    const low = Math.floor((first - 1) / BLOCK);
    const high = Math.floor((Math.min(last, this.total) - 1) / BLOCK);
    for (const [number, block] of this.blocks) {
      if (block.abort && (number < low || number > high)) {
        block.abort.abort();
        this.blocks.delete(number);
      }
    }
    for (let number = low; number <= high; number += 1) {
      const block = this.blocks.get(number);
      if (block === undefined || (!block.abort && this.isStale(block, number))) this.fetch(number, block?.lines);
      else this.touch(number, block);
    }
    for (const number of this.blocks.keys()) {
      if (this.blocks.size <= KEPT) break;
      this.blocks.delete(number);
    }
  }

  /**
   * Take new lines that came without being asked for. Those that do not continue a block are fetched if they are shown.
   * @param {object[]} lines the last ones of the log, in their order @param {number} total of the log with them
   */
  append(lines, total) {
    for (const line of lines) {
      const number = Math.floor((line.place - 1) / BLOCK);
      const index = (line.place - 1) % BLOCK;
      const block = this.blocks.get(number) ?? { lines: [], abort: null };
      if (block.abort || block.lines.length < index) continue;
      block.lines = [...block.lines.slice(0, index), line];
      block.total = total;
      this.touch(number, block);
    }
  }

  /** Whether the log has grown where a block ends. */
  isStale(block, number) {
    return block.total < this.total && (block.lines.length < BLOCK || block.lines.at(-1)?.open) && number * BLOCK < this.total;
  }

  async fetch(number, known) {
    const abort = new AbortController();
    const block = { lines: known, abort, total: this.total };
    this.blocks.set(number, block);
    const kept = this.keptOf(known);
    try {
      const answer = await getJson(`${this.address()}&from=${number * BLOCK + 1 + kept.length}&count=${BLOCK - kept.length}`, { signal: abort.signal });
      if (this.blocks.get(number) !== block) return;
      block.lines = [...kept, ...answer.lines];
      block.abort = null;
      block.total = answer.total;
      // Very long lines come in several answers.
      if (number * BLOCK + block.lines.length < Math.min(answer.total, (number + 1) * BLOCK)) await this.fetchRest(number, block);
      this.onChange();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.blocks.delete(number);
      this.onError(error);
    }
  }

  /** What of a block need not be fetched again. Lines that come late may have their place among those of other instances. */
  keptOf(known) {
    if (!known || this.isMerged()) return [];
    return known.at(-1)?.open ? known.slice(0, -1) : known;
  }

  async fetchRest(number, block) {
    while (block.lines.length < BLOCK && number * BLOCK + block.lines.length < block.total) {
      const from = number * BLOCK + block.lines.length + 1;
      const answer = await getJson(`${this.address()}&from=${from}&count=${BLOCK - block.lines.length}`);
      if (!answer.lines.length) return;
      block.lines = [...block.lines, ...answer.lines];
    }
  }

  touch(number, block) {
    this.blocks.delete(number);
    this.blocks.set(number, block);
  }
}
