/** The rules with their state, findings, evidence and actions. */

import { LineChart } from "../../charts/line_chart.js";
import { formatNumber, formatTime } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";

const STATES = {
  IssuesFound: ["badge-failed", "Found an issue"],
  NoIssuesFound: ["badge-completed", "No issues"],
  InProgress: ["badge-running", "Watching"],
  Error: ["badge-warn", "Error"],
  Stopping: ["", "Stopping"],
  Stopped: ["", "Stopped"],
};
const SEVERITIES = { critical: ["badge-bad", "Critical"], warning: ["badge-warn", "Warning"], notice: ["", "Notice"] };
const RANKS = ["critical", "warning", "notice", ""];
const ACTIONS = { Done: ["badge-good", "Done"], Failed: ["badge-bad", "Failed"], Due: ["badge-waiting", "Trying"], DryRun: ["", "Dry run"] };

/** All findings of the rules: those that had consequences first, then the worst, then the earliest. */
export function findingsOf(rules) {
  const found = rules.flatMap((rule) => rule.findings.map((finding) => ({ ...finding, rule: rule.name, actions: rule.actions })));
  const rank = (finding) => RANKS.indexOf(finding.severity);
  return found.sort((one, other) => other.actions.length - one.actions.length || rank(one) - rank(other) || (one.step ?? 0) - (other.step ?? 0));
}

export class RulesView {
  /** @param {(finding: object) => void} onShow called for a finding whose moment shall be shown */
  constructor(onShow) {
    this.onShow = onShow;
    this.charts = [];
    this.open = new Set();
    this.closed = new Set();
  }

  show(rules) {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    this.#showVerdict(rules);
    if (rules.length === 0) return;
    const found = rules.filter((rule) => rule.status === "IssuesFound").length;
    const text = found === 0 ? `${rules.length} watched` : `${found} of ${rules.length} found an issue`;
    replaceChildren(document.getElementById("rules-summary"), text);
    replaceChildren(document.getElementById("rules"), html`<ul class="rules">${rules.map((rule) => this.#rule(rule))}</ul>`);
    this.#drawEvidence(rules);
  }

  #showVerdict(rules) {
    const place = document.getElementById("verdict");
    const [worst, ...others] = findingsOf(rules);
    if (!worst) return replaceChildren(place);
    const at = worst.step === null ? "" : `step ${formatNumber(worst.step)}: `;
    const did = worst.actions.filter((each) => each.status === "Done").map((each) => each.name);
    const consequence = did.length > 0 ? ` Done: ${did.join(", ")}.` : "";
    const more = others.length === 0 ? "" : ` ${others.length} more ${others.length === 1 ? "finding is" : "findings are"} below.`;
    replaceChildren(
      place,
      html`<div class=${worst.severity === "critical" ? "notice notice-error verdict" : "notice notice-warn verdict"}>
        <p><strong>${showInvisible(worst.rule)}</strong>, ${at}${showInvisible(worst.message)}${consequence}${more}</p>
        ${this.#moment(worst, "button button-small")}
      </div>`,
    );
  }

  #rule(rule) {
    const [kind, word] = STATES[rule.status] ?? ["", rule.status];
    const first = rule.findings[0];
    const isOpen = this.open.has(rule.name) || (rule.findings.length > 0 && !this.closed.has(rule.name));
    const what = rule.rule === rule.name ? "" : rule.rule;
    return html`<li class="rule"><details open=${isOpen}>
      <summary onclick=${(event) => this.#remember(rule.name, !event.currentTarget.parentElement.open)}>
        <span class=${`badge ${kind}`}>${word}</span>
        <span class="rule-name"><strong class="mono">${showInvisible(rule.name)}</strong> <span class="faint">${what}</span></span>
        <span class="rule-first">${first ? describe(first) : rule.details ? showInvisible(rule.details) : ""}</span>
        <span class="faint rule-steps">${formatNumber(rule.judged)} ${rule.judged === 1 ? "step" : "steps"}${rule.dropped ? `, ${formatNumber(rule.dropped)} not seen` : ""}</span>
      </summary>
      <div class="rule-body">
        ${rule.details && first === undefined ? html`<p>${showInvisible(rule.details)}</p>` : null}
        ${rule.findings.map((finding, number) => this.#finding(rule, finding, number))}
        ${rule.findings.length === 0 && !rule.details ? html`<p class="faint">${rule.status === "InProgress" ? "Nothing found so far." : "Nothing found."}</p>` : null}
        ${rule.actions.length > 0 ? actionsOf(rule.actions) : null}
        ${rule.parameters.length > 0 ? html`<p class="rule-parameters">${rule.parameters.map(([name, value]) => html`<span class="chip"><span>${name}</span> <span class="mono">${showInvisible(value)}</span></span>`)}</p>` : null}
      </div>
    </details></li>`;
  }

  #finding(rule, finding, number) {
    const [kind, word] = SEVERITIES[finding.severity] ?? ["", finding.severity];
    const where = [finding.mode, finding.worker].filter(Boolean).join(", ");
    return html`<article class="finding">
      <div class="finding-text">
        <p>${word ? html`<span class=${`badge ${kind}`}>${word}</span> ` : null}${finding.step === null ? null : html`<strong>Step ${formatNumber(finding.step)}</strong> `}<span class="faint">${where}</span></p>
        <p>${showInvisible(finding.message)}</p>
        <p class="finding-facts">
          ${finding.tensor ? html`<span class="mono">${showInvisible(finding.tensor)}</span>` : null}
          ${finding.value ? html`<span>value <strong>${numberText(finding.value)}</strong></span>` : null}
          ${finding.threshold ? html`<span>threshold <strong>${numberText(finding.threshold)}</strong></span>` : null}
        </p>
        ${this.#moment(finding, "button button-small")}
      </div>
      ${finding.evidence.length > 0 ? html`<div class="finding-chart" data-evidence=${`${rule.name} ${number}`}></div>` : null}
    </article>`;
  }

  #moment(finding, className) {
    if (finding.step === null && !finding.tensor) return null;
    const text = finding.step === null ? "Show the tensor" : `Show step ${formatNumber(finding.step)}`;
    return html`<button class=${className} type="button" onclick=${() => this.onShow(finding)}>${text}</button>`;
  }

  #drawEvidence(rules) {
    for (const place of document.querySelectorAll("[data-evidence]")) {
      const rule = rules.find((each) => place.dataset.evidence.startsWith(`${each.name} `));
      const finding = rule.findings[Number(place.dataset.evidence.slice(rule.name.length + 1))];
      const series = finding.evidence.map((each) => ({ name: each.label, x: each.steps, y: each.values }));
      const steps = finding.evidence.flatMap((each) => each.steps);
      const values = finding.evidence.flatMap((each) => each.values).filter((each) => Number.isFinite(each));
      const threshold = comparedWith(finding, values);
      if (threshold !== null && steps.length > 1) {
        series.push({ name: `threshold ${numberText(finding.threshold)}`, x: [Math.min(...steps), Math.max(...steps)], y: [threshold, threshold], dashed: true, colour: "bad" });
      }
      const positive = values.filter((each) => each > 0);
      const isWide = positive.length === values.length && Math.max(...positive, threshold || 0) > 100 * Math.min(...positive, threshold || Infinity);
      const marks = finding.step === null ? [] : [{ x: finding.step, text: rule.name, kind: "finding" }];
      this.charts.push(new LineChart(place, { series, marks, height: 130, xLabel: "step", logY: isWide, legend: true, label: `Evidence of ${rule.name}`, syncKey: "step" }));
    }
  }

  #remember(name, isOpen) {
    (isOpen ? this.open : this.closed).add(name);
    (isOpen ? this.closed : this.open).delete(name);
  }
}

/** The threshold of a finding, if its value is one of those in the evidence; else it is of another unit. */
function comparedWith({ threshold, value }, values) {
  const [limit, found] = [Number(threshold), Number(value)];
  const isAmongThem = values.some((each) => Math.abs(each - found) <= 1e-4 * Math.abs(found));
  return threshold && value && isAmongThem && limit > 0 ? limit : null;
}

function describe(finding) {
  const step = finding.step === null ? "" : `step ${formatNumber(finding.step)}`;
  const compared = finding.value && finding.threshold ? `${numberText(finding.value)} against ${numberText(finding.threshold)}` : "";
  return element`<span>${[step, showInvisible(finding.tensor), compared].filter(Boolean).join(" · ")}</span>`;
}

function actionsOf(actions) {
  return html`<div class="rule-actions"><h3>What was done</h3><ul>${actions.map((each) => {
    const [kind, word] = ACTIONS[each.status] ?? ["", each.status];
    return html`<li><span class=${`badge ${kind}`}>${word}</span> <span class="mono">${each.name}</span>
      <span>${showInvisible(each.endpoint)}</span> <span class="faint">${each.at ? formatTime(each.at) : ""}${each.tries > 1 ? `, after ${each.tries} tries` : ""}</span>
      <span>${showInvisible(each.told)}</span></li>`;
  })}</ul></div>`;
}

function numberText(text) {
  const value = Number(text);
  return Number.isFinite(value) ? formatNumber(value) : showInvisible(text);
}
