/**
 * The form of a CreateTrainingJob request. It changes only the members that it shows; whatever else the request has
 * stays as it is.
 */

import { element, replaceChildren } from "../../html.js";
import { showInvisible } from "../../text.js";
import { PairList } from "./pair_list.js";

const TOOLKIT = "sagemaker_";
const PROGRAM = "sagemaker_program";
const RULES = ["DebugRuleConfigurations", "ProfilerRuleConfigurations"];
const MODES = ["", "File", "FastFile", "Pipe"];

export class RequestForm {
  /** @param {HTMLFormElement} form @param {{instanceTypes: string[], onChange: () => void}} options */
  constructor(form, { instanceTypes, onChange }) {
    Object.assign(this, { form, onChange });
    this.types = element`<datalist id="instance-types">${instanceTypes.map((each) => element`<option value=${each}></option>`)}</datalist>`;
    form.addEventListener("input", (event) => {
      if (event.target.name === "spot") this.#showWaiting();
      onChange();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Show a request. @param {object} request */
  show(request) {
    this.request = request;
    const { ResourceConfig: resources, StoppingCondition: stopping = {}, AlgorithmSpecification: algorithm = {} } = request;
    const onChange = this.onChange;
    this.parameters = new PairList(ownParameters(request), { names: "Name", values: "Value", add: "Add a hyperparameter", empty: "No hyperparameters.", onChange });
    this.variables = new PairList(pairs(request.Environment), { names: "Variable", values: "Value", add: "Add a variable", empty: "No environment variables.", onChange });
    this.tags = new PairList((request.Tags ?? []).map(({ Key, Value }) => ({ name: Key, value: Value })), { names: "Key", values: "Value", add: "Add a tag", empty: "No tags.", onChange });
    this.channels = new PairList(channelRows(request), { names: "Channel", values: "S3 location", add: "Add a channel", empty: "No channels.", choices: MODES, onChange });
    const script = this.#script(request);
    const groups = resources?.InstanceGroups?.length ? element`<p class="is-wide faint">The job has instance groups (${resources.InstanceGroups.map((each) => `${each.InstanceCount} × ${each.InstanceType}`).join(", ")}); change them as JSON.</p>` : null;
    const instances = groups ?? [
      field("Instance type", element`<input class="input mono" name="type" list="instance-types" spellcheck="false" value=${resources?.InstanceType ?? ""}>`),
      field("Instances", number("count", resources?.InstanceCount ?? 1, 1)),
    ];
    replaceChildren(this.form, this.types,
      group("Job", ["TrainingJobName", "AlgorithmSpecification", "image", "sagemaker_program"], element`<div class="fields">
        ${field("Name", element`<input class="input mono" name="jobName" maxlength="63" spellcheck="false" value=${request.TrainingJobName ?? ""}>`, { isWide: true })}${script}
        ${field("Image", element`<input class="input mono" name="image" spellcheck="false" value=${algorithm.TrainingImage ?? ""}>`, { isWide: true })}</div>`),
      group("Hyperparameters", ["HyperParameters"], this.parameters.element),
      group("Instances", ["ResourceConfig", "StoppingCondition", "EnableManagedSpotTraining", "InstanceType", "InstanceCount", "MaxRuntimeInSeconds", "MaxWaitTimeInSeconds"], element`<div class="fields">${instances}
        ${field("Volume, GB", number("volume", resources?.VolumeSizeInGB ?? 30, 1))}
        ${field("Time limit, minutes", number("minutes", Math.ceil((stopping.MaxRuntimeInSeconds ?? 86400) / 60), 1))}
        <label class="check is-wide"><input type="checkbox" name="spot" checked=${Boolean(request.EnableManagedSpotTraining)}>Spot: costs less, may be interrupted, and resumes from its checkpoints</label>
        ${field("Limit with waiting, minutes", number("waiting", Math.ceil((stopping.MaxWaitTimeInSeconds ?? stopping.MaxRuntimeInSeconds ?? 86400) / 60), 1), { isWaiting: true })}</div>`),
      group("Data", ["InputDataConfig", "ChannelName", "channel"], this.channels.element),
      group("Results", ["OutputDataConfig", "CheckpointConfig", "S3OutputPath"], element`<div class="fields">
        ${field("Output", element`<input class="input mono" name="output" spellcheck="false" value=${request.OutputDataConfig?.S3OutputPath ?? ""}>`, { isWide: true })}
        ${field("Checkpoints", element`<input class="input mono" name="checkpoints" spellcheck="false" placeholder="none" value=${request.CheckpointConfig?.S3Uri ?? ""}>`,
          { isWide: true, hint: "The job starts from what is there already." })}</div>`),
      this.#rules(request),
      group("Environment", ["Environment"], this.variables.element),
      group("Tags", ["Tags", "tag", "tags"], this.tags.element));
    this.#showWaiting();
  }

  /** The request as the form shows it now. @returns {object} */
  read() {
    const value = (name) => this.form.elements[name]?.value.trim() ?? "";
    const whole = (name) => (value(name) === "" ? undefined : Number(value(name)));
    const before = this.request;
    const isSpot = this.form.elements.spot.checked;
    const stopping = { ...before.StoppingCondition, MaxRuntimeInSeconds: seconds(whole("minutes"), before.StoppingCondition?.MaxRuntimeInSeconds) };
    if (isSpot) stopping.MaxWaitTimeInSeconds = Math.max(seconds(whole("waiting"), before.StoppingCondition?.MaxWaitTimeInSeconds), 0);
    else delete stopping.MaxWaitTimeInSeconds;
    const resources = { ...before.ResourceConfig, VolumeSizeInGB: whole("volume") };
    if (!before.ResourceConfig?.InstanceGroups?.length) Object.assign(resources, { InstanceType: value("type"), InstanceCount: whole("count") });
    return clean({
      ...before,
      TrainingJobName: value("jobName"),
      AlgorithmSpecification: { ...before.AlgorithmSpecification, TrainingImage: value("image") || undefined },
      HyperParameters: this.#readParameters(value("script")),
      ResourceConfig: resources,
      StoppingCondition: stopping,
      EnableManagedSpotTraining: isSpot || undefined,
      InputDataConfig: this.channels.rows.map(channelOf),
      OutputDataConfig: { ...before.OutputDataConfig, S3OutputPath: value("output") },
      CheckpointConfig: value("checkpoints") ? { ...before.CheckpointConfig, S3Uri: value("checkpoints") } : undefined,
      Environment: Object.fromEntries(this.variables.rows.map(({ name, value: text }) => [name, text])),
      Tags: this.tags.rows.map(({ name, value: text }) => ({ Key: name, Value: text })),
      ...this.#readRules(),
    });
  }

  /** Mark the parts of the form that a message of the API is about. @param {string} message "" for none */
  markProblems(message) {
    const named = [...message.matchAll(/ at '([\w.]+)'/g)].map((found) => found[1].toLowerCase());
    for (const set of this.form.querySelectorAll(".field-set")) {
      const members = set.dataset.members.split(" ");
      const isMeant = members.some((member) => named.some((path) => path === member.toLowerCase() || path.startsWith(`${member.toLowerCase()}.`))
        || new RegExp(`\\b${member}\\b`).test(message));
      set.classList.toggle("has-problem", isMeant);
    }
    this.form.querySelector(".has-problem")?.scrollIntoView({ block: "nearest" });
  }

  #showWaiting() {
    this.form.querySelector(".is-waiting").hidden = !this.form.elements.spot.checked;
  }

  #script({ HyperParameters: values = {} }) {
    if (!(PROGRAM in values)) return null;
    return field("Script", element`<input class="input mono" name="script" spellcheck="false" value=${textOf(values[PROGRAM])}>`, { isWide: true });
  }

  #readParameters(script) {
    const { HyperParameters: before = {} } = this.request;
    const isScript = PROGRAM in before;
    const toolkit = Object.entries(before).filter(([name]) => isScript && name.startsWith(TOOLKIT));
    const own = this.parameters.rows.map(({ name, value, kept }) => [name, kept && kept.shown === value ? kept.raw : isScript ? encode(value) : value]);
    const program = isScript && script !== textOf(before[PROGRAM]) ? [[PROGRAM, JSON.stringify(script)]] : [];
    return Object.fromEntries([...own, ...toolkit, ...program]);
  }

  #rules(request) {
    const boxes = RULES.flatMap((member) => (request[member] ?? []).map((rule, at) =>
      element`<label class="check"><input type="checkbox" name="rule" checked data-member=${member} data-at=${String(at)}><span class="mono">${showInvisible(rule.RuleConfigurationName)}</span></label>`));
    return boxes.length ? group("Rules", RULES, boxes) : null;
  }

  #readRules() {
    const kept = [...this.form.querySelectorAll("[name=rule]")].filter((box) => box.checked);
    const found = RULES.map((member) => [member, kept.filter((box) => box.dataset.member === member).map((box) => this.request[member][Number(box.dataset.at)])]);
    return Object.fromEntries(found.map(([member, rules]) => [member, rules.length ? rules : undefined]));
  }
}

function group(title, members, content) {
  const set = element`<fieldset class="field-set"><legend>${title}</legend><div>${content}</div></fieldset>`;
  set.dataset.members = members.join(" ");
  return set;
}

function field(title, input, { isWide = false, isWaiting = false, hint = "" } = {}) {
  return element`<label class=${`${isWide ? "is-wide" : ""} ${isWaiting ? "is-waiting" : ""}`}>${title}${input}${hint ? element`<span class="field-hint">${hint}</span>` : null}</label>`;
}

function number(name, value, least) {
  return element`<input class="input" type="number" name=${name} min=${least} step="1" value=${value}>`;
}

/** Minutes are shown rounded up; what was not changed stays exact. */
function seconds(minutes, before) {
  return before !== undefined && Math.ceil(before / 60) === minutes ? before : minutes * 60;
}

function ownParameters({ HyperParameters: values = {} }) {
  const isScript = PROGRAM in values;
  const own = Object.entries(values).filter(([name]) => !(isScript && name.startsWith(TOOLKIT)));
  return own.map(([name, raw]) => {
    const shown = isScript ? textOf(raw) : raw;
    return { name, value: shown, kept: { raw, shown } };
  });
}

/** SDKs send the hyperparameters of scripts as JSON. Only texts look different without it. */
function textOf(raw) {
  try {
    const value = JSON.parse(raw);
    return typeof value === "string" ? value : raw;
  } catch {
    return raw;
  }
}

function encode(text) {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

function pairs(values = {}) {
  return Object.entries(values).map(([name, value]) => ({ name, value }));
}

function channelRows({ InputDataConfig: channels = [] }) {
  return channels.map((channel) => {
    const uri = channel.DataSource?.S3DataSource?.S3Uri;
    return { name: channel.ChannelName, value: uri ?? "(not on S3; see the JSON)", choice: channel.InputMode ?? "", kept: channel };
  });
}

function channelOf({ name, value, choice, kept }) {
  const channel = { ...kept, ChannelName: name, InputMode: choice || undefined };
  if (kept && !kept.DataSource?.S3DataSource) return channel;
  const source = kept?.DataSource.S3DataSource ?? { S3DataType: "S3Prefix", S3DataDistributionType: "FullyReplicated" };
  return { ...channel, DataSource: { ...kept?.DataSource, S3DataSource: { ...source, S3Uri: value.trim() } } };
}

/** Leave out what has no value, as JSON would. */
function clean(value) {
  const found = Object.entries(JSON.parse(JSON.stringify(value))).filter(([, member]) => member !== null && !(typeof member === "object" && Object.keys(member).length === 0));
  return Object.fromEntries(found);
}
