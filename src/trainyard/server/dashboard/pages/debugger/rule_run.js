/** A command that evaluates a rule on the tensors of a job, made from a form. */

import { html, replaceChildren } from "../../html.js";
import { getJson } from "../../http.js";
import { showInvisible } from "../../text.js";

// Words of a shell that need no quotes.
const PLAIN = /^[\w@%+=:,./-]+$/;

export class RuleRun {
  /** @param {string} address of the page's data @param {string} job */
  constructor(address, job) {
    Object.assign(this, { address, job, place: document.getElementById("rule-run-form"), rules: null });
  }

  /** Load the rules when the form is first opened. */
  async open() {
    if (this.rules) return;
    const { rules } = await getJson(`${this.address}/rules`);
    this.rules = rules;
    replaceChildren(
      this.place,
      html`<div class="toolbar"><label>Rule <select class="select" id="run-rule" onchange=${(event) => this.#choose(event.target.value)}>${rules.map((each) => html`<option value=${each.name} selected=${each.name === "VanishingGradient"}>${each.name}</option>`)}</select></label>
        <label><input type="checkbox" id="run-advised" onchange=${() => this.#choose(this.rule.name)}> Advised defaults, which raise no false alarms</label></div>
      <p class="faint" id="run-about"></p>
      <div class="rule-run-parameters" id="run-parameters"></div>
      <div id="run-command"></div>`,
    );
    this.#choose("VanishingGradient");
  }

  #choose(name) {
    this.rule = this.rules.find((each) => each.name === name) ?? this.rules[0];
    this.isAdvised = document.getElementById("run-advised").checked;
    const fields = this.rule.parameters.map((each) => {
      const standard = this.isAdvised ? each.advised : each.standard;
      return html`<label title=${each.help}><span class="mono">${each.name}</span><input class="input" name=${each.name} placeholder=${standard === "" ? "none" : standard} oninput=${() => this.#write()} autocomplete="off" spellcheck="false"></label>`;
    });
    replaceChildren(document.getElementById("run-about"), this.rule.about);
    replaceChildren(document.getElementById("run-parameters"), fields);
    this.#write();
  }

  #write() {
    const given = [...this.place.querySelectorAll("#run-parameters input")].filter((each) => each.value.trim() !== "").map((each) => [each.name, each.value.trim()]);
    const parameters = [...(this.isAdvised ? [["defaults", "advised"]] : []), ...given];
    const words = ["trainyard", "rules", "replay", this.job, "--rule", this.rule.name, ...parameters.flatMap(([name, value]) => ["--parameter", `${name}=${value}`])];
    const command = words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
    replaceChildren(document.getElementById("run-command"), html`<span class="copyable"><code>${showInvisible(command)}</code><button class="button button-quiet" type="button" data-copies=${command}>Copy</button></span>`);
  }
}
