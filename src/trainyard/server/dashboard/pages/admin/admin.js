/** The administration: buttons and forms that change something, filters of tables, and parts that are refreshed. */

import { confirmAction } from "../../dialog.js";
import { listen, postJson } from "../../http.js";
import { readState, writeState } from "../../state.js";
import { showToast } from "../../toast.js";

const SAID = "trainyard-said";
const FILTER = { q: "", set: false };

/** Change something, and show the page as it is then. */
async function change(address, body) {
  const { said } = await postJson(address, body);
  sessionStorage.setItem(SAID, said);
  location.reload();
}

async function askAndChange(button) {
  const { posts, body, asks, text, action } = button.dataset;
  if (!(await confirmAction({ title: asks, text, action, isDangerous: true }))) return;
  try {
    await change(posts, JSON.parse(body));
  } catch (error) {
    showToast(error.message, { kind: "error" });
  }
}

function showForm(button) {
  const dialog = document.getElementById(button.dataset.shows);
  const form = dialog.querySelector("form");
  form.reset();
  showProblem(form, "");
  for (const [name, value] of Object.entries(JSON.parse(button.dataset.body ?? "{}"))) form.elements[name].value = value;
  dialog.showModal();
}

async function send(form) {
  const body = Object.fromEntries([...form.elements].filter((field) => field.name).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value.trim()]));
  const button = form.querySelector(".button-primary");
  button.disabled = true;
  try {
    await change(form.dataset.posts, body);
  } catch (error) {
    showProblem(form, error.message);
    button.disabled = false;
  }
}

function showProblem(form, text) {
  const place = form.querySelector("[role=alert]");
  place.textContent = text;
  place.hidden = !text;
}

function filterSettings() {
  const words = filter.value.toLowerCase().split(/\s+/);
  const isOnlySet = onlySet.checked;
  let shown = 0;
  for (const row of document.querySelectorAll("#settings tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word)) || (isOnlySet && row.dataset.set !== "true");
    shown += row.hidden ? 0 : 1;
  }
  document.getElementById("settings-nothing").hidden = shown > 0;
  writeState({ q: filter.value, set: isOnlySet }, { defaults: FILTER });
}

/** Fetch the page again, and show its live part as it is now. */
async function refresh() {
  const response = await fetch(location.href, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const next = page.querySelector("[data-refreshes-on]");
  if (next) live.replaceChildren(...next.childNodes);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.shows) showForm(button);
  else if (button.dataset.posts) askAndChange(button);
  else if (button.dataset.closes !== undefined) button.closest("dialog").close();
});
document.addEventListener("submit", (event) => {
  if (!event.target.dataset.posts) return;
  event.preventDefault();
  send(event.target);
});

const filter = document.querySelector("[data-filters=settings]");
const onlySet = document.querySelector("[data-filters-set=settings]");
if (filter) {
  const state = readState(FILTER);
  filter.value = state.q;
  onlySet.checked = state.set;
  filter.addEventListener("input", filterSettings);
  onlySet.addEventListener("change", filterSettings);
  filterSettings();
}

const live = document.querySelector("[data-refreshes-on]");
if (live) listen(live.dataset.refreshesOn, { changed: refresh });

const said = sessionStorage.getItem(SAID);
if (said) {
  sessionStorage.removeItem(SAID);
  showToast(said);
}
