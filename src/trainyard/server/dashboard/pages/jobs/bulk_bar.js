/** What can be done to the selected jobs: stop, delete, tag, compare. */

import { confirmAction, showDialog } from "../../dialog.js";
import { element } from "../../html.js";
import { postJson } from "../../http.js";
import { compareNames, showInvisible } from "../../text.js";
import { showToast } from "../../toast.js";

const RUNNING = new Set(["waiting", "running"]);
const SHOWN_NAMES = 8;
const MAX_COMPARED = 50;
// With more tags than fit into view, one searches for those to remove.
const MAX_SEEN_TAGS = 10;
// As many as one request may name.
export const MAX_AT_ONCE = 500;

export class BulkBar {
  /**
   * @param {HTMLElement} bar
   * @param {{selected: () => object[], matching: () => number | null, onSelectAll: () => void, onClear: () => void,
   *   onDone: (failed: Set<string>) => void}} handlers `matching` is how many jobs the list has on all pages, if that is known
   */
  constructor(bar, { selected, matching, onSelectAll, onClear, onDone }) {
    Object.assign(this, { bar, selected, matching, onDone });
    this.count = element`<strong></strong>`;
    this.stop = element`<button class="button button-small" type="button" onclick=${() => this.stopJobs()}>Stop</button>`;
    this.remove = element`<button class="button button-small button-danger" type="button" onclick=${() => this.deleteJobs()}>Delete</button>`;
    this.tag = element`<button class="button button-small" type="button" onclick=${() => this.tagJobs()}>Tag</button>`;
    this.compare = element`<a class="button button-small">Compare</a>`;
    this.all = element`<button class="button button-small button-quiet" type="button" onclick=${onSelectAll}></button>`;
    const clear = element`<button class="button button-small button-quiet" type="button" onclick=${onClear}>Clear the selection</button>`;
    bar.append(this.count, this.stop, this.compare, this.tag, this.remove, this.all, clear);
  }

  /** Show how many jobs are selected. */
  refresh() {
    const jobs = this.selected();
    this.bar.hidden = jobs.length === 0;
    this.count.textContent = `${countOf(jobs)} selected`;
    this.stop.disabled = !jobs.some(isRunning);
    const names = jobs.filter(({ kind }) => kind === "training").map(({ name }) => encodeURIComponent(name));
    this.compare.hidden = names.length < 2;
    this.compare.href = `/-/compare?jobs=${encodeURIComponent(names.slice(0, MAX_COMPARED).join(","))}`;
    const all = this.matching() ?? 0;
    this.all.hidden = Math.min(all, MAX_AT_ONCE) <= jobs.length;
    this.all.textContent = all > MAX_AT_ONCE ? `Select the first ${MAX_AT_ONCE}` : `Select all ${countOf({ length: all })}`;
  }

  async stopJobs() {
    const jobs = this.selected().filter(isRunning);
    const ended = this.selected().length - jobs.length;
    const text = [nameList(jobs), element`<p>What they have written so far is kept.</p>`];
    if (ended) text.push(element`<p class="faint">${ended === 1 ? "1 selected job has" : `${ended} selected jobs have`} ended already.</p>`);
    const isSure = await confirmAction({ title: `Stop ${countOf(jobs)}?`, text: block(text), action: "Stop", isDangerous: true });
    if (isSure) await this.change("stop", "Stopping", jobs);
  }

  async deleteJobs() {
    const jobs = this.selected();
    const text = [nameList(jobs), element`<p>Their records, logs, metrics and tags are deleted. Models and checkpoints in their buckets stay.</p>`];
    if (jobs.some(isRunning)) text.push(element`<p class="warn">Jobs that have not ended cannot be deleted; stop them first.</p>`);
    const isSure = await confirmAction({ title: `Delete ${countOf(jobs)}?`, text: block(text), action: "Delete", isDangerous: true });
    if (isSure) await this.change("delete", "Deleted", jobs);
  }

  async tagJobs() {
    const jobs = this.selected();
    const keys = [...new Set(jobs.flatMap((job) => (job.tags ?? []).map(([key]) => key)))].sort(compareNames);
    const boxes = keys.map((key) => element`<label class="tag-removal"><input type="checkbox" name="remove" value=${key}><span class="clipped" title=${showInvisible(key)}>${showInvisible(key)}</span></label>`);
    const removal = keys.length ? element`<fieldset class="tag-removals"><legend>Remove</legend>${keys.length > MAX_SEEN_TAGS ? tagSearch(boxes) : null}${boxes}</fieldset>` : null;
    const dialog = element`<dialog class="dialog"><form method="dialog" class="form">
      <h2>${`Tag ${countOf(jobs)}`}</h2>
      <div class="tag-fields"><label>Key <input class="input" name="key" maxlength="128" autocomplete="off" autofocus></label>
      <label>Value <input class="input" name="value" maxlength="256" autocomplete="off"></label></div>
      ${removal}
      <div class="dialog-actions"><button class="button" value="" formnovalidate>Cancel</button><button class="button button-primary" value="yes">Save</button></div>
    </form></dialog>`;
    const form = new Promise((resolve) => dialog.addEventListener("close", () => resolve(new FormData(dialog.querySelector("form")))));
    // The first button is the one that Enter presses.
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
      event.preventDefault();
      dialog.querySelector("button[value=yes]").click();
    });
    if ((await showDialog(dialog)) !== "yes") return;
    const given = await form;
    const key = given.get("key").trim();
    const body = { add: key ? { [key]: given.get("value") } : {}, remove: given.getAll("remove").filter((each) => each !== key) };
    if (key || body.remove.length) await this.change("tags", "Tagged", jobs, body);
  }

  /** Change the jobs, and say what happened to them. */
  async change(action, word, jobs, more = {}) {
    const named = jobs.map(({ kind, name, arn }) => ({ kind, name, arn }));
    const failed = [];
    let done = 0;
    this.bar.inert = true;
    try {
      for (let first = 0; first < named.length; first += MAX_AT_ONCE) {
        const answer = await postJson(`/-/jobs/${action}`, { jobs: named.slice(first, first + MAX_AT_ONCE), ...more });
        done += answer.done;
        failed.push(...answer.failed);
      }
      if (failed.length) await showFailures(`${word} ${done} of ${countOf(jobs)}`, failed);
      else showToast(`${word} ${countOf(jobs)}.`);
    } catch (error) {
      showToast(error.message, { kind: "error" });
    } finally {
      this.bar.inert = false;
      this.onDone(new Set(failed.map(({ arn }) => arn)));
    }
  }
}

function showFailures(title, failed) {
  const rows = failed.map(({ name, message }) => element`<tr><th scope="row" class="mono">${showInvisible(name)}</th><td>${showInvisible(message)}</td></tr>`);
  return showDialog(element`<dialog class="dialog"><form method="dialog"><h2>${title}</h2>
    <p class="notice notice-error">${failed.length === 1 ? "One job was left as it is:" : `${failed.length} jobs were left as they are:`}</p>
    <div class="scroll failures" tabindex="0" role="region" aria-label="What failed"><table class="table"><tbody>${rows}</tbody></table></div>
    <div class="dialog-actions"><button class="button button-primary" autofocus>Close</button></div></form></dialog>`);
}

/** A field that leaves only those tags to see whose keys have a text, and those that are chosen. */
function tagSearch(boxes) {
  const search = element`<input class="input tag-search" type="search" placeholder=${`Find one of ${boxes.length} tags`} aria-label="Find a tag to remove" autocomplete="off">`;
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const box of boxes) box.hidden = !box.textContent.toLowerCase().includes(wanted) && !box.querySelector("input").checked;
  });
  // The dialog is not left with what was only searched for.
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
  });
  return search;
}

function nameList(jobs) {
  const items = jobs.slice(0, SHOWN_NAMES).map((job) => element`<li class="mono">${showInvisible(job.name)}</li>`);
  const rest = jobs.length - items.length;
  return element`<ul class="name-list">${items}${rest > 0 ? element`<li class="faint">and ${rest} more</li>` : null}</ul>`;
}

function block(content) {
  return element`<div class="dialog-text">${content}</div>`;
}

function isRunning(job) {
  return RUNNING.has(job.state);
}

function countOf(jobs) {
  return jobs.length === 1 ? "1 job" : `${jobs.length.toLocaleString("en-US")} jobs`;
}
