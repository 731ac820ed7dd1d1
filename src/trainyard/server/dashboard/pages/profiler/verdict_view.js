/** What holds the job up, what to change, what it costs, and what the profiler rules found. */

import { formatDuration, formatMoney, formatNumber } from "../../format.js";
import { element, html, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { meter } from "./data_table.js";
import { BOTTLENECKS, formatFactor, formatShare } from "./words.js";

const GOOD_KINDS = new Set(["compute"]);
const RULE_STATES = {
  IssuesFound: ["badge-warn", "Found"], NoIssuesFound: ["badge-good", "Nothing found"], InProgress: ["badge-running", "Watching"],
  Error: ["badge-bad", "Error"], Stopped: ["", "Stopped"], Stopping: ["", "Stopping"],
};

/** @param {any} profile of DescribeProfile @param {{job: string, running: boolean}} page */
export function showVerdict(profile, page) {
  const verdict = profile.Verdict;
  const place = document.querySelector("#verdict");
  const { bottleneck, regression } = verdict;
  const title = bottleneck ? (BOTTLENECKS[bottleneck.kind] ?? bottleneck.kind) : page.running ? "No verdict yet" : "No verdict";
  const kind = !bottleneck ? "" : GOOD_KINDS.has(bottleneck.kind) ? "badge-good" : "badge-warn";
  replaceChildren(place, element`<div class="verdict">
    <div>
      <div class="verdict-head">
        <span class=${`badge ${kind}`}>${title}</span>
        <span class="faint">as of <time datetime=${profile.EvaluatedAt}></time></span>
      </div>
      <p class="verdict-summary">${showInvisible(verdict.summary)}</p>
    </div>
    ${facts(bottleneck, verdict.costs ?? {})}
    ${regression && regressionNotice(regression)}
    ${bottleneck?.evidence?.length > 0 && html`<div><h3>Evidence</h3><ul class="verdict-evidence">${bottleneck.evidence.map((each) => html`<li>${showInvisible(each)}</li>`)}</ul></div>`}
    ${verdict.others?.length > 0 && html`<div><h3>Also</h3><ul class="verdict-others">${verdict.others.map(other)}</ul></div>`}
  </div>`);
  showAdvice(verdict, page);
  showRules(profile.Rules);
  showNotes([...(verdict.notes ?? []), ...profile.Notes]);
}

/** @param {{message: string}} error */
export function showVerdictError(error) {
  const missing = /pip install \S+/.exec(error.message);
  replaceChildren(document.querySelector("#verdict"), element`<div class="empty">
    <p class="empty-title">${missing ? "The yard cannot evaluate profiles" : "The profile could not be evaluated"}</p>
    <p>${showInvisible(error.message)}</p>
    ${missing && html`<p>Steps and hardware are shown below all the same.</p>`}
  </div>`);
  replaceChildren(document.querySelector("#rules"), element`<p class="faint">Rules are evaluated with the verdict.</p>`);
}

function facts(bottleneck, costs) {
  const stats = [];
  const add = (label, value, note = "") => stats.push(element`<div class="stat"><span class="stat-label">${label}</span><span class="stat-value">${value}</span>${note && html`<span class="stat-note">${note}</span>`}</div>`);
  if (bottleneck) add("Share of a step", formatShare(bottleneck.share));
  if (bottleneck?.max_speedup) add("Gain at most", formatFactor(bottleneck.max_speedup), "if it took no time at all");
  if (costs.step_s) add("A step takes", formatDuration(costs.step_s), costs.samples_per_s ? `${formatNumber(Number(costs.samples_per_s.toPrecision(3)))} samples a second` : "");
  if (costs.money_per_step) add("A step costs", smallMoney(costs.money_per_step, costs.currency), costs.money_per_million_samples ? `${smallMoney(costs.money_per_million_samples, costs.currency)} per million samples` : "");
  if (costs.joules_per_step) add("Energy of a step", `${formatNumber(Number(costs.joules_per_step.toPrecision(3)))} J`, costs.joules_per_sample ? `${formatNumber(Number(costs.joules_per_sample.toPrecision(3)))} J per sample, GPUs only` : "GPUs only");
  return stats.length > 0 && element`<div class="stats">${stats}</div>`;
}

function smallMoney(amount, currency) {
  return amount >= 0.01 ? formatMoney(amount, currency) : `${Number(amount.toPrecision(2)).toExponential().replace("e-", " × 10⁻").replace(/\d+$/, (digits) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join(""))} ${currency}`;
}

function regressionNotice(regression) {
  const kind = regression.ratio > 1 ? "notice notice-warn" : "notice notice-good";
  return html`<p class=${kind}>${showInvisible(regression.message)} <a href=${`/-/training/${encodeURIComponent(regression.since_job)}/profiler`}>Compare with ${showInvisible(regression.since_job)}</a></p>`;
}

function other(bottleneck) {
  const bound = bottleneck.max_speedup ? `at most ${formatFactor(bottleneck.max_speedup)} as fast` : "";
  return html`<li><span class="number">${formatShare(bottleneck.share)}</span><span>${showInvisible(bottleneck.title)}</span><span class="faint">${bound}</span></li>`;
}

function showAdvice(verdict, page) {
  const advice = verdict.advice ?? [];
  document.querySelector("#advice-card").hidden = advice.length === 0;
  document.querySelector("#advice-note").textContent = advice.length > 1 ? "the first gains most" : "";
  const measured = new Map((page.measured ?? []).map((each) => [changesKey(each.Changes), each]));
  const command = `trainyard advise ${page.job} --verify`;
  const canVerify = advice.some((each) => Object.keys(each.changes ?? {}).length > 0);
  replaceChildren(document.querySelector("#advice"), advice.map((each) => adviceItem(each, measured.get(changesKey(each.changes ?? {})))));
  document.querySelector("#advice-verify")?.remove();
  if (canVerify && !page.running) {
    document.querySelector("#advice").after(element`<div class="advice-verify" id="advice-verify"><span class="faint">Short trial runs measure what it gains:</span>
      <span class="copyable"><code>${command}</code><button class="button button-quiet" type="button" data-copies=${command}>Copy</button></span></div>`);
  }
}

function adviceItem(advice, measured) {
  const chips = [];
  for (const [name, value] of Object.entries(advice.changes ?? {})) chips.push(html`<span class="chip mono">${showInvisible(`${name.replaceAll("_", " ")} = ${value}`)}</span>`);
  if (advice.instance_type) chips.push(html`<span class="chip mono">${showInvisible(advice.instance_type)}</span>`);
  if (advice.saved_per_hour) chips.push(html`<span class="chip">saves ${formatMoney(advice.saved_per_hour)} an hour</span>`);
  if (advice.max_speedup) chips.push(html`<span class="chip">expected: at most ${formatFactor(advice.max_speedup)} as fast</span>`);
  if (measured) chips.push(measuredChip(measured));
  else if (Object.keys(advice.changes ?? {}).length > 0) chips.push(html`<span class="chip">not measured yet</span>`);
  return element`<li><p class="advice-title">${showInvisible(advice.title)}</p><p>${showInvisible(advice.reason)}</p><div class="advice-facts">${chips}</div></li>`;
}

function measuredChip(measured) {
  if (measured.Problem) return html`<span class="badge badge-bad">tried: ${showInvisible(measured.Problem)}</span>`;
  const kind = measured.Low > 1 ? "badge-good" : measured.High < 1 ? "badge-bad" : "";
  const what = measured.IsPerSample ? "per sample" : "per step";
  const interval = measured.Low === undefined ? "one pair of trials" : `95 %: ${shortFactor(measured.Low)} to ${shortFactor(measured.High)}`;
  const noise = measured.Low <= 1 && measured.High >= 1 ? ", which may be noise" : "";
  return html`<span class=${`badge ${kind}`}>measured: ${formatFactor(measured.Speedup)} as fast ${what} (${interval})${noise}</span>`;
}

function shortFactor(factor) {
  return formatFactor(factor).replace(" times", "");
}

function changesKey(changes) {
  return JSON.stringify(Object.entries(changes).sort());
}

function showRules(rules) {
  const found = rules.filter((rule) => rule.Status === "IssuesFound").length;
  document.querySelector("#rules-note").textContent = rules.length > 0 ? `${found} of ${rules.length} found something` : "";
  const place = document.querySelector("#rules");
  if (rules.length === 0) {
    return replaceChildren(place, element`<div class="empty"><p class="empty-title">No profiler rules watch this job</p>
      <p>The verdict needs none. Rules are for actions and for limits of your own: pass them to the estimator.</p>
      <span class="copyable"><code>rules=[ProfilerRule.sagemaker(rule_configs.ProfilerReport())]</code><button class="button button-quiet" type="button" data-copies="rules=[ProfilerRule.sagemaker(rule_configs.ProfilerReport())]">Copy</button></span></div>`);
  }
  const open = new Set([...place.querySelectorAll("details[open]")].map((each) => each.dataset.rule));
  const order = { Error: 0, IssuesFound: 1, InProgress: 2 };
  const sorted = [...rules].sort((one, other) => (order[one.Status] ?? 3) - (order[other.Status] ?? 3));
  replaceChildren(place, element`<ul class="rules">${sorted.map((rule) => html`<li>${ruleItem(rule, open.has(rule.Name))}</li>`)}</ul>`);
}

function ruleItem(rule, isOpen) {
  const [kind, word] = RULE_STATES[rule.Status] ?? ["", rule.Status];
  const said = rule.Details ?? rule.Undecided ?? rule.Findings[0]?.Message ?? "";
  const share = rule.Datapoints > 0 ? `${rule.Violations.toLocaleString("en-US")} of ${rule.Datapoints.toLocaleString("en-US")} datapoints are beyond the limits` : "";
  const parameters = Object.entries(rule.Parameters ?? {});
  return element`<details class="rule" data-rule=${rule.Name} open=${isOpen}>
    <summary><span><span class=${`badge ${kind}`}>${word}</span></span><span class="rule-name" title=${rule.Name}>${showInvisible(rule.Name)}</span><span>${showInvisible(said)}</span></summary>
    <div class="rule-details">
      ${rule.Findings.length > 0 && html`<ul>${rule.Findings.slice(0, 20).map((each) => html`<li>${showInvisible(findingText(each))}</li>`)}</ul>`}
      ${rule.Findings.length > 20 && html`<p class="faint">and ${rule.Findings.length - 20} more</p>`}
      ${share && html`<div><p class="faint">${share}</p>${meter(rule.Violations / rule.Datapoints, 1)}</div>`}
      <dl class="facts"><dt>Name</dt><dd>${showInvisible(rule.Name)}</dd><dt>Rule</dt><dd>${showInvisible(rule.Rule)}</dd>${rule.LastModifiedTime && html`<dt>Changed</dt><dd><time datetime=${rule.LastModifiedTime}></time></dd>`}
        ${parameters.length > 0 && html`<dt>Parameters</dt><dd class="mono">${showInvisible(parameters.map(([name, value]) => `${name}: ${value}`).join(", "))}</dd>`}</dl>
    </div>
  </details>`;
}

function findingText(finding) {
  const where = [finding.Host, finding.Worker, finding.Device].filter(Boolean).join(", ");
  return where ? `${finding.Message} (${where})` : finding.Message;
}

function showNotes(notes) {
  const place = document.querySelector("#notes");
  const known = [...new Set(notes)];
  place.hidden = known.length === 0;
  replaceChildren(place, known.map((each) => element`<li>${showInvisible(each)}</li>`));
}
