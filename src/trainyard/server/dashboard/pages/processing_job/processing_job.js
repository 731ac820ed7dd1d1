/** Shows a running processing job anew whenever it has another status. */

import { getJson } from "../../http.js";

const POLL_MS = 2000;

const { job: name, running } = document.getElementById("job-facts").dataset;
const address = `/-/job-state/processing/${encodeURIComponent(name)}`;

async function awaitChange() {
  const { secondary: first } = await getJson(address);
  let now = first;
  while (now === first) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    now = (await getJson(address)).secondary;
  }
  location.reload();
}

if (running === "true") awaitChange();
