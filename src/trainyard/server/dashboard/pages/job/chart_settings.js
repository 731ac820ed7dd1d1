/** What all charts of a job share: smoothing, axes, outliers, the range in view. It is part of the page's address. */

import { element } from "../../html.js";
import { readState, writeState } from "../../state.js";

/** @typedef {{smoothing: number, axis: import("./metric_store.js").Axis, log: boolean, clip: boolean, from: string, to: string}} Settings */

export const DEFAULTS = { smoothing: 0.6, axis: "step", log: false, clip: false, from: "", to: "" };
// An average over fewer values would hide what they do.
const MIN_SMOOTHED = 50;
const AXES = { step: "Step", time: "Time", relative: "Time since the start" };
// What follows a schedule has no noise to smooth, and no best value.
const SCHEDULED = /(^|[^a-z])(lr|learning[ _-]?rate|epoch|step)([^a-z]|$)/i;

/** @returns {Settings} */
export function readSettings() {
  const settings = readState(DEFAULTS);
  settings.axis = settings.axis in AXES ? settings.axis : DEFAULTS.axis;
  settings.smoothing = Math.max(0, Math.min(0.99, settings.smoothing));
  return settings;
}

export function writeSettings(changes) {
  writeState(changes, { defaults: DEFAULTS });
}

/** The range in view, or null where everything is. @param {Settings} settings */
export function rangeOf({ from, to }) {
  const [low, high] = [Number(from), Number(to)];
  return from !== "" && to !== "" && low < high ? { from: low, to: high } : null;
}

/** The options of a line chart that follow from the settings. @param {Settings} settings @param {boolean} hasSteps */
export function chartOptions(settings, hasSteps) {
  const { axis, log, clip } = settings;
  return {
    xKind: { step: "number", time: "time", relative: "duration" }[axis],
    xLabel: { step: hasSteps ? "step" : "value", time: "", relative: "" }[axis],
    logY: log,
    clipOutliers: clip,
  };
}

export function isScheduled(metric) {
  return SCHEDULED.test(metric);
}

/** How much to smooth a metric with so many points. @param {Settings} settings */
export function smoothingOf(settings, metric, count) {
  return isScheduled(metric) || count < MIN_SMOOTHED ? 0 : settings.smoothing;
}

/** The controls. @param {Settings} settings @param {(changes: Partial<Settings>) => void} onChange */
export function settingControls(settings, onChange) {
  const output = element`<output class="charts-amount">${settings.smoothing.toFixed(2)}</output>`;
  const smooth = (event) => {
    output.textContent = Number(event.target.value).toFixed(2);
    onChange({ smoothing: Number(event.target.value) });
  };
  const toggle = (name) => (event) => {
    const isOn = event.target.getAttribute("aria-pressed") !== "true";
    event.target.setAttribute("aria-pressed", String(isOn));
    onChange({ [name]: isOn });
  };
  const axes = Object.entries(AXES).map(([name, title]) => element`<option value=${name} selected=${name === settings.axis}>${title}</option>`);
  return [
    element`<label title="An average over time; the values themselves stay visible behind it. Learning rates, and curves with few values, are not smoothed.">Smoothing
      <input type="range" min="0" max="0.99" step="0.01" value=${settings.smoothing} oninput=${smooth} id="smoothing">${output}</label>`,
    element`<label>X axis <select class="select" id="axis" onchange=${(event) => onChange({ axis: event.target.value, from: "", to: "" })}>${axes}</select></label>`,
    element`<button class="button" type="button" id="log-scale" aria-pressed=${String(settings.log)} title="Logarithmic y axis" onclick=${toggle("log")}>Log</button>`,
    element`<button class="button" type="button" id="clip-outliers" aria-pressed=${String(settings.clip)} title="Let the few values that lie far out not stretch the y axis" onclick=${toggle("clip")}>Clip outliers</button>`,
  ];
}
