/** The actions in the head of a job's pages. What the status does not allow is hidden or disabled. */

import { confirmAction } from "../../dialog.js";
import { element } from "../../html.js";
import { getJson, postJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { keepToast, showToast } from "../../toast.js";
import { editTags } from "./tag_editor.js";

const POLL_MS = 1000;
// Longer than the time that a program has to end, and a slow upload after it.
const POLLS = 300;
const ENDED = new Set(["Completed", "Failed", "Stopped"]);
const KINDS = { Completed: "completed", Failed: "failed" };

const bar = document.getElementById("job-actions");
const facts = document.getElementById("job-facts");
const { job: name, kind } = facts.dataset;
const { arn } = bar.dataset;
const isSpot = bar.dataset.spot !== undefined;
const button = (action) => bar.querySelector(`[data-action="${action}"]`);

function show() {
  const { status } = bar.dataset;
  const isRunning = !ENDED.has(status);
  for (const action of ["stop", "interrupt"]) {
    const found = button(action);
    if (!found) continue;
    found.hidden = !isRunning;
    found.disabled = status === "Stopping";
  }
  const remove = button("delete");
  remove.disabled = isRunning;
  remove.title = isRunning ? "A job can be deleted once it has ended." : "";
}

/** Pages that follow the job write its status into the head. */
function readStatus() {
  const status = document.getElementById("job-status")?.dataset.status;
  if (!status || status === bar.dataset.status) return;
  bar.dataset.status = status;
  show();
}

function writeStatus(status) {
  const place = document.getElementById("job-status");
  if (place && place.dataset.status !== status) {
    place.dataset.status = status;
    place.replaceChildren(element`<span class=${`badge badge-${KINDS[status] ?? "stopped"}`}>${status}</span>`);
  }
  readStatus();
}

/** Follow the status until it is another and will stay. */
async function followStatus(isReached) {
  for (let poll = 0; poll < POLLS; poll++) {
    const state = await getJson(`/-/job-state/${kind}/${encodeURIComponent(name)}`);
    writeStatus(state.status);
    if (isReached(state)) return state;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return null;
}

async function change(action, more = {}) {
  const { failed } = await postJson(`/-/jobs/${action}`, { jobs: [{ kind, name, arn }], ...more });
  if (failed.length > 0) throw new Error(failed[0].message);
}

const actions = {
  async stop() {
    const text = isSpot || kind === "tuning" ? "What has been written so far is kept." : "It gets two minutes to end by itself. What it has written so far is kept.";
    if (!(await confirmAction({ title: `Stop ${shortName()}?`, text, action: "Stop", isDangerous: true }))) return;
    await change("stop");
    showToast("Stopping the job.");
    writeStatus("Stopping");
    const ended = await followStatus(({ status }) => ENDED.has(status));
    if (ended) showToast(`The job is ${ended.status}.`);
  },
  async interrupt() {
    const text = "This takes its instances away, as a cloud does that needs them. The job continues from its checkpoints when there is room.";
    if (!(await confirmAction({ title: `Interrupt ${shortName()}?`, text, action: "Interrupt", isDangerous: true }))) return;
    await postJson(`/-/training/${encodeURIComponent(name)}/interrupt`);
    showToast("The job is interrupted. It continues when there is room.");
  },
  async tag() {
    const tags = await getJson(`/-/job-tags?${new URLSearchParams({ arn })}`);
    if (await editTags(shortName(), tags, (changes) => change("tags", changes))) showToast("The tags are saved.");
  },
  async delete() {
    const text = "Its record, log, metrics and tags are deleted. Models and checkpoints in its buckets stay.";
    if (!(await confirmAction({ title: `Delete ${shortName()}?`, text, action: "Delete", isDangerous: true }))) return;
    await change("delete");
    keepToast(`Deleted ${shortName()}.`);
    location.assign("/-/jobs");
  },
};

function shortName() {
  const shown = showInvisible(name);
  return shown.length > 60 ? `${shown.slice(0, 60)}…` : shown;
}

bar.addEventListener("click", async (event) => {
  // The menu closes, and with it the button that would say so.
  if (event.target.closest("[data-copies]")) showToast("Copied.");
  const pressed = event.target.closest("[data-action]");
  if (!pressed || pressed.disabled) return;
  try {
    await actions[pressed.dataset.action]();
  } catch (error) {
    showToast(error.message, { kind: "error" });
  }
});
new MutationObserver(readStatus).observe(facts, { childList: true, subtree: true });
show();
