/** The steps that the flight recorder has saved, with the commands that replay them. */

import { formatBytes, formatNumber } from "../../format.js";
import { html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";

const RANGE_STEPS = 2;

export class RecordsView {
  /** @param {string} address of the page's data @param {string} job @param {(step: number) => void} onStep */
  constructor(address, job, onStep) {
    Object.assign(this, { address, job, onStep, place: document.getElementById("records") });
  }

  /** @param {{hasRules: boolean, isRunning: boolean}} view */
  async show({ hasRules, isRunning }) {
    const { Steps: steps } = await getJson(`${this.address}/records`);
    if (steps.length === 0) return replaceChildren(this.place, emptyText(hasRules, isRunning));
    const hasRanks = new Set(steps.map((each) => each.Worker)).size > 1;
    replaceChildren(
      this.place,
      html`<ul class="records">${steps.map((each) => this.#record(each, hasRanks))}</ul>
      <p class="faint debugger-hint">A replay is a job with the same definition. It starts from the recorded weights, batches and random states, and says whether the loss is the same, bit for bit.</p>`,
    );
  }

  #record(record, hasRanks) {
    const { Step: step, FirstStep: first, Worker: worker } = record;
    const range = step - first >= RANGE_STEPS ? `Any step from ${formatNumber(first)} on can be replayed.` : "";
    const query = new URLSearchParams({ step: String(step), worker });
    const command = `trainyard replay ${this.job} --step ${step}`;
    return html`<li class="record">
      <div class="record-text">
        <p><strong>Step ${formatNumber(step)}</strong>${hasRanks ? ` of ${worker}` : ""} ${record.Reason ? html`<span class="faint">saved because of</span> <span class="mono">${showInvisible(record.Reason)}</span>` : null}
          ${record.IsComplete ? null : html`<span class="badge badge-waiting">Arriving</span>`}</p>
        <p class="faint">${record.RecordedAt ? html`<time datetime=${record.RecordedAt}></time>, ` : null}${formatBytes(record.SizeInBytes)}. ${range}</p>
      </div>
      <span class="copyable"><code>${command}</code><button class="button button-quiet" type="button" data-copies=${command}>Copy</button></span>
      <span class="record-actions">
        <button class="button button-small" type="button" onclick=${() => this.onStep(step)}>Show step</button>
        <a class="button button-small" href=${`${this.address}/record?${query}`} download="">Download</a>
      </span>
    </li>`;
  }
}

function emptyText(hasRules, isRunning) {
  if (!hasRules) return html`<p class="faint">The flight recorder runs in jobs with rules, and saves the steps at which one finds something.</p>`;
  return html`<p class="faint">${isRunning ? "No rule has found anything so far" : "No rule found anything"}, so no steps were saved.</p>`;
}
