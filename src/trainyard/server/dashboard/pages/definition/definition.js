/** The forms of a definition: one at a time, chosen with the mouse or the arrow keys, and kept in the address. */

import { readState, writeState } from "../../state.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const DEFAULTS = { as: tabs[0].id.replace("tab-", "") };

function show(tab) {
  for (const each of tabs) {
    const isShown = each === tab;
    each.setAttribute("aria-selected", String(isShown));
    each.tabIndex = isShown ? 0 : -1;
    document.getElementById(each.getAttribute("aria-controls")).hidden = !isShown;
  }
}

function choose(tab) {
  show(tab);
  writeState({ as: tab.id.replace("tab-", "") }, { defaults: DEFAULTS });
}

for (const tab of tabs) tab.addEventListener("click", () => choose(tab));
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  choose(next);
  next.focus();
});
show(document.getElementById(`tab-${readState(DEFAULTS).as}`) ?? tabs[0]);
