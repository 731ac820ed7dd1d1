/** The table of facts: a column for each run, and only the rows in which they differ, unless all are wanted. */

import { element, html, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { dashedRuns, statusBadge, swatch } from "./runs.js";

const TITLES = {
  job: "Outcome", metric: "Metrics, last value", parameter: "Hyperparameters", code: "Code, by content", package: "Packages that the code asks for",
  data: "Data", "data location": "Data", environment: "Environment", instances: "Hardware",
};
const ORDER = ["job", "metric", "parameter", "code", "package", "data", "data location", "environment", "instances"];

/** @param {HTMLTableElement} table @param {{jobs: object[], facts: {kind: string, name: string, values: (string|null)[], isSame: boolean}[]}} found */
export function drawDifferences(table, { jobs, facts }, { showsSame }) {
  const dashed = dashedRuns(jobs.map(({ name }) => name));
  const heads = jobs.map(({ name, status }) => html`<th scope="col"><span class="run-head">${swatch(name, dashed.has(name))}
    <a class="mono" href=${`/-/training/${name}`}>${showInvisible(name)}</a>${statusBadge(status)}</span></th>`);
  const groups = groupsOf(facts);
  const rows = groups.flatMap(([title, members]) => {
    // Where data is located matters only if its content is unknown; its location then stands for it.
    const shown = members.filter((fact) => showsSame || (!fact.isSame && fact.kind !== "data location"));
    const same = members.filter((fact) => fact.isSame).length;
    const note = shown.length === 0 ? "the same" : same > 0 && !showsSame ? `${same} more the same` : "";
    return [html`<tr class="fact-kind"><th scope="rowgroup" colspan=${jobs.length + 1}>${title} <span class="faint">${note}</span></th></tr>`, ...shown.map(factRow)];
  });
  replaceChildren(table, html`<thead><tr><th scope="col">Fact</th>${heads}</tr></thead><tbody>${rows}</tbody>`);
}

function groupsOf(facts) {
  const groups = new Map();
  for (const kind of ORDER) for (const fact of facts) {
    if (fact.kind !== kind) continue;
    groups.set(TITLES[kind], [...(groups.get(TITLES[kind]) ?? []), fact]);
  }
  return [...groups];
}

function factRow({ kind, name, values, isSame }) {
  const label = kind === "data location" ? `${name}, location` : name;
  const cells = values.map((value, number) => {
    const differs = !isSame && number > 0 && value !== values[0];
    return element`<td class=${differs ? "differs" : ""}>${value === null ? element`<span class="faint">none</span>` : showInvisible(value)}</td>`;
  });
  return html`<tr><th scope="row">${showInvisible(label)}</th>${cells}</tr>`;
}
