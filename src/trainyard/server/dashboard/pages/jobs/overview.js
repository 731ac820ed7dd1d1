/** What stands above the list: the capacity of the machine or cluster, the queue, and money. */

import { formatBytes, formatMoney, formatNumber } from "../../format.js";
import { element } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";

/** @typedef {[used: number | null, all: number | null]} Use */

const REFRESH_MS = 10_000;

export class Overview {
  /**
   * @param {{strip: HTMLElement, details: HTMLElement, button: HTMLButtonElement}} parts
   * @param {{onToggle: (isOpen: boolean) => void, onShowWaiting: () => void}} handlers
   */
  constructor({ strip, details, button }, { onToggle, onShowWaiting }) {
    Object.assign(this, { strip, details, button, onShowWaiting });
    this.loadedAt = 0;
    this.money = null;
    button.addEventListener("click", () => {
      this.setOpen(details.hidden);
      onToggle(!details.hidden);
    });
  }

  setOpen(isOpen) {
    this.details.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.load();
  }

  /** Show how much is in use now. */
  showCapacity(capacity) {
    const stats = [
      capacity.slots[1] ? stat("Slots", capacity.slots, formatNumber) : null,
      stat("Cores", capacity.cpus, (value) => formatNumber(Math.round(value * 10) / 10)),
      stat("Memory", capacity.memory, formatBytes),
      capacity.gpus[1] ? stat("GPUs", capacity.gpus, formatNumber) : null,
      this.waitingStat(capacity.waiting),
    ];
    this.strip.replaceChildren(...stats.filter((each) => each !== null), ...capacity.obstacles.map(obstacle));
    if (!this.details.hidden && Date.now() - this.loadedAt > REFRESH_MS) this.load();
  }

  waitingStat(waiting) {
    if (!waiting) return element`<div class="capacity-stat"><span class="stat-label">Waiting</span><span class="capacity-value">none</span></div>`;
    return element`<div class="capacity-stat"><span class="stat-label">Waiting</span>
      <button class="link-button capacity-value" type="button" onclick=${() => this.onShowWaiting()}>${waiting === 1 ? "1 job" : `${formatNumber(waiting)} jobs`}</button></div>`;
  }

  async load() {
    this.loadedAt = Date.now();
    if (!this.details.childElementCount) this.details.append(element`<p class="loading">Loading</p>`);
    try {
      const [overview, { money }] = await Promise.all([getJson("/-/jobs/overview"), this.money ? { money: this.money } : getJson("/-/jobs/money")]);
      this.money = money;
      this.details.replaceChildren(...[queueCard(overview), runningCard(overview.running), nodesCard(overview.nodes), moneyCard(money)].filter((each) => each !== null));
    } catch (error) {
      this.details.replaceChildren(element`<p class="notice notice-error" role="alert">${showInvisible(error.message)}</p>`);
    }
  }
}

/** @param {string} title @param {Use} use @param {(value: number) => string} format */
function stat(title, [used, all], format) {
  if (all === null || all === undefined) return null;
  const text = useText([used, all], format);
  return element`<div class="capacity-stat"><span class="stat-label">${title}</span><span class="capacity-value">${text}</span>${meter(used, all)}</div>`;
}

function meter(used, all) {
  if (used === null || used === undefined || !all) return null;
  const share = Math.max(0, Math.min(1, used / all));
  const bar = element`<span class=${`meter${share > 0.9 ? " meter-full" : ""}`} aria-hidden="true"><span></span></span>`;
  bar.firstElementChild.style.width = `${100 * share}%`;
  return bar;
}

function obstacle(text) {
  return element`<p class="notice notice-warn capacity-obstacle">${showInvisible(text)}</p>`;
}

function queueCard({ queue, waiting }) {
  if (!waiting) return card("Queue", element`<p class="faint">No job waits.</p>`);
  const items = queue.map(
    (job) => element`<li><span class="queue-position">${job.position ? `#${job.position}` : ""}</span><span><a class="mono" href=${`/-/training/${encodeURIComponent(job.name)}`}>${showInvisible(job.name)}</a>
      <span class="wait-reason">${showInvisible(job.reason ?? "")}</span></span></li>`,
  );
  const others = waiting - queue.length;
  const rest = others > 0 ? element`<p class="faint">${`${formatNumber(others)} more ${others === 1 ? "job waits" : "jobs wait"}.`}</p>` : null;
  return card("Queue", element`<ol class="queue">${items}</ol>`, rest);
}

function runningCard(running) {
  if (!running.length) return card("Running", element`<p class="faint">No job runs.</p>`);
  const hasGpus = running.some(({ gpu }) => gpu !== null);
  const rows = running.map(
    (job) => element`<tr><th scope="row"><a class="mono" href=${`/-/training/${encodeURIComponent(job.name)}`}>${showInvisible(job.name)}</a></th>
      <td>${percent(job.cpu)}</td><td>${percent(job.memory)}</td>${hasGpus ? element`<td>${percent(job.gpu)}</td>` : null}</tr>`,
  );
  return card("Running", table(["Job", "CPU", "Memory", ...(hasGpus ? ["GPU"] : [])], rows));
}

function nodesCard(nodes) {
  if (nodes.length < 2) return null;
  const rows = nodes.map(
    (node) => element`<tr><th scope="row"><span class="mono">${showInvisible(node.name || "this machine")}</span>${node.spot ? element`<span class="chip">spot</span>` : null}</th>
      <td>${useText(node.slots, formatNumber)}</td><td>${useText(node.cpus, formatNumber)}</td><td>${useText(node.memory, formatBytes)}</td><td>${useText(node.gpus, formatNumber)}</td></tr>`,
  );
  return card("Nodes", table(["Node", "Slots", "Cores", "Memory", "GPUs"], rows));
}

function moneyCard(money) {
  if (!money) return null;
  const stats = [
    [money.days === 1 ? "Last day" : `Last ${money.days} days`, formatMoney(money.cost), money.jobs === 1 ? "1 job" : `${formatNumber(money.jobs)} jobs`],
    ["Running now", `${formatMoney(money.perHour)} per hour`, ""],
    ["Saved by spot", formatMoney(money.saved), "all ended spot jobs"],
  ];
  return card("Money", element`<div class="stats">${stats.map(([label, value, note]) => element`<div class="stat"><span class="stat-label">${label}</span><span class="stat-value">${value}</span><span class="stat-note">${note}</span></div>`)}</div>`);
}

function card(title, ...content) {
  return element`<section class="card"><h2 class="card-head">${title}</h2>${content}</section>`;
}

function table(titles, rows) {
  return element`<div class="scroll" tabindex="0" role="region" aria-label=${titles[0]}><table class="table"><thead><tr>${titles.map((title) => element`<th scope="col">${title}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;
}

function percent(value) {
  if (value === null || value === undefined) return element`<span class="faint">–</span>`;
  return element`<span class="use">${meter(value, 100)}<span>${`${Math.round(value)} %`}</span></span>`;
}

/** Such as "3 of 8", or "5.6 of 24 GB". */
function useText([used, all], format) {
  if (used === null || used === undefined) return format(all);
  const [[amount, unit], whole] = [format(used).split(" "), format(all)];
  return unit && !whole.endsWith(` ${unit}`) ? `${amount} ${unit} of ${whole}` : `${amount} of ${whole}`;
}
