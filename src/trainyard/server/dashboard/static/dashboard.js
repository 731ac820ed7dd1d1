/** What every page does: colours, times, shortcuts, menus, copying, signing out. */

import { showDialog } from "./dialog.js";
import { formatRelativeTime, formatTime } from "./format.js";
import { element } from "./html.js";
import { postJson } from "./http.js";
import { showKeptToast, showToast } from "./toast.js";

const THEMES = { auto: "Colours of the system", light: "Light colours", dark: "Dark colours" };
const SHORTCUTS = [
  ["Ctrl K", "search for anything"],
  ["/", "go to the filter or search of the page"],
  ["Alt M", "change the colours"],
  ["G J", "go to the jobs"],
  ["?", "show this list"],
];
let keyBefore = "";

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.querySelector("[data-theme-button]");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  button.title = `${THEMES[theme]} (Alt M)`;
  document.dispatchEvent(new CustomEvent("themechange"));
}

function changeTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  localStorage.setItem("trainyard-theme", next);
  showTheme(next);
}

function refreshTimes(within = document) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const text = formatRelativeTime(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = formatTime(time.dateTime);
  }
}

function refreshAddedTimes(changes) {
  for (const change of changes) {
    for (const node of change.addedNodes) if (node.nodeType === Node.ELEMENT_NODE) refreshTimes(node.parentElement ?? document);
  }
}

function showShortcuts() {
  const rows = SHORTCUTS.map(([keys, meaning]) => element`<div><dt><kbd class="kbd">${keys}</kbd></dt><dd>${meaning}</dd></div>`);
  showDialog(element`<dialog class="dialog"><h2>Keyboard shortcuts</h2><dl class="shortcuts">${rows}</dl>
    <form method="dialog" class="dialog-actions"><button class="button">Close</button></form></dialog>`);
}

const openers = {
  shortcuts: showShortcuts,
  search: async () => (await import("./search.js")).openSearch(),
  export: async () => (await import("./export.js")).exportPage(),
};

async function open(name) {
  try {
    await openers[name]();
  } catch (error) {
    showToast(error.message, { kind: "error" });
  }
}

async function copy(button) {
  await navigator.clipboard.writeText(button.dataset.copies);
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

async function signOut() {
  const { next } = await postJson("/-/sign-out");
  location.assign(next);
}

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]") !== null;
}

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open("search");
    return;
  }
  if (event.altKey && event.code === "KeyM") {
    event.preventDefault();
    changeTheme();
    return;
  }
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "/") {
    const filter = document.querySelector("[data-page-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  } else if (event.key === "?") open("shortcuts");
  else if (keyBefore === "g" && event.key === "j") location.assign("/-/jobs");
  keyBefore = event.key;
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target) || button) menu.open = false;
  if (!button) return;
  if (button.dataset.opens) open(button.dataset.opens);
  else if (button.dataset.copies !== undefined) copy(button);
  else if (button.dataset.themeButton !== undefined) changeTheme();
  else if (button.dataset.signsOut !== undefined) signOut();
});
showTheme(document.documentElement.dataset.theme);
// On a phone, not all entries and tabs have room.
for (const current of document.querySelectorAll(".site-nav [aria-current], .tabs [aria-current]")) current.scrollIntoView({ block: "nearest", inline: "center" });
refreshTimes();
showKeptToast();
setInterval(() => refreshTimes(), 10_000);
new MutationObserver(refreshAddedTimes).observe(document.body, { childList: true, subtree: true });
