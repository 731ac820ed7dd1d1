/** What a job would get and cost, asked again whenever the request changes. */

import { formatBytes, formatMoney } from "../../format.js";
import { html, replaceChildren } from "../../html.js";
import { postJson } from "../../http.js";
import { showInvisible } from "../../text.js";

const QUIET_MS = 300;

export class Quote {
  constructor(place) {
    this.place = place;
    this.asked = "";
    this.timer = 0;
  }

  /** @param {object} request of CreateTrainingJob */
  ask(request) {
    const wanted = JSON.stringify(questionOf(request));
    if (wanted === this.asked) return;
    this.asked = wanted;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#answer(wanted), QUIET_MS);
  }

  async #answer(wanted) {
    let shown;
    try {
      shown = facts(await postJson("/-/new-job/quote", JSON.parse(wanted)));
    } catch (error) {
      shown = html`<p class="warn">${showInvisible(error.message)}</p>`;
    }
    if (wanted === this.asked) replaceChildren(this.place, shown);
  }
}

function questionOf(request) {
  const { ResourceConfig: resources = {}, AlgorithmSpecification: algorithm = {}, StoppingCondition: stopping = {} } = request;
  return {
    InstanceType: resources.InstanceType, InstanceCount: resources.InstanceCount, InstanceGroups: resources.InstanceGroups,
    Spot: Boolean(request.EnableManagedSpotTraining), MaxRuntimeInSeconds: stopping.MaxRuntimeInSeconds, Image: algorithm.TrainingImage, Tags: request.Tags,
  };
}

function shareText({ Cpus: cpus, MemoryBytes: memory, Gpus: gpus = [] }) {
  const parts = [cpus && `${cpus} ${cpus === 1 ? "CPU" : "CPUs"}`, memory && formatBytes(memory), gpus.length && `${gpus.length} ${gpus.length === 1 ? "GPU" : "GPUs"}`];
  return parts.filter(Boolean).join(", ") || "no limits";
}

function facts(quote) {
  const { Shares: shares, FreeSlots: free, QueuedJobs: queued } = quote;
  const share = shares[0];
  const rows = [
    ["Engine", quote.Engine],
    ["Each instance", share && shareText(share)],
    ["Start", free >= shares.length && queued === 0 ? "at once" : `waits: ${free} free, ${queued} in the queue`],
    ["Price", quote.PriceIsSet && `${formatMoney(quote.PricePerHour, quote.Currency)} an hour`],
    ["At most", quote.PriceIsSet && quote.MostCost !== undefined && formatMoney(quote.MostCost, quote.Currency)],
  ].filter(([, value]) => value);
  const notes = [quote.Obstacle, ...quote.Notes, ...quote.ImageNotes].filter(Boolean);
  return html`<dl class="facts quote-facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${showInvisible(value)}</dd>`)}</dl>
    ${notes.length ? html`<div class="quote-notes">${notes.map((note) => html`<p class="faint">${showInvisible(note)}</p>`)}</div>` : null}`;
}
