/** The files of a job: a tree of what it read and wrote, and a preview of the file that is chosen. */

import { readState, writeState } from "../../state.js";
import { showFolder, showPreview } from "./preview.js";
import { FileTree } from "./tree.js";

const REFRESH_MS = 15_000;
const DEFAULTS = { place: "", path: "", member: "" };
const { job, isRunning, places } = JSON.parse(document.getElementById("data").textContent);
const address = `/-/training/${encodeURIComponent(job)}/files`;
const panel = document.getElementById("preview");
let reading = new AbortController();

function open(file, { isNewEntry = true } = {}) {
  reading.abort();
  reading = new AbortController();
  if (file.kind === "folder") {
    writeState(DEFAULTS, { defaults: DEFAULTS, isNewEntry: true });
    showFolder(panel, file);
    return;
  }
  if (isNewEntry) {
    writeState({ place: file.place, path: file.path, member: file.member }, { defaults: DEFAULTS, isNewEntry });
    // On a narrow screen the preview is below the list.
    if (panel.getBoundingClientRect().top > innerHeight * 0.8) panel.scrollIntoView({ block: "start" });
  }
  showPreview(panel, address, file, { signal: reading.signal });
}

async function showState() {
  const wanted = readState(DEFAULTS);
  if (!wanted.place) return;
  const name = (wanted.member || wanted.path).replace(/\/$/, "").split("/").at(-1);
  const known = await tree.reveal(wanted);
  open(known ?? { ...wanted, name: name || wanted.place }, { isNewEntry: false });
}

const tree = new FileTree(document.getElementById("tree"), address, places, open);
document.getElementById("refresh").addEventListener("click", () => tree.refresh());
addEventListener("popstate", showState);
if (isRunning) setInterval(() => document.hidden || tree.refresh(), REFRESH_MS);
showState();
