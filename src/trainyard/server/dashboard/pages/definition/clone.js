/** Create a job from another: as a form or as JSON, which show the same request. */

import { postJson } from "../../http.js";
import { showInvisible } from "../../text.js";
import { keepToast } from "../../toast.js";
import { Quote } from "./quote.js";
import { RequestForm } from "./request_form.js";

const data = JSON.parse(document.getElementById("data").textContent);
const part = (id) => document.getElementById(id);
const quote = new Quote(part("quote"));
const form = new RequestForm(part("request-form"), { instanceTypes: data.instanceTypes, onChange });
let isJson = false;

function onChange() {
  const request = readRequest();
  if (request) quote.ask(request);
}

/** @returns {object | null} null while the JSON is invalid */
function readRequest() {
  if (!isJson) return form.read();
  try {
    const request = JSON.parse(part("json").value);
    if (request === null || typeof request !== "object" || Array.isArray(request)) throw new SyntaxError("A request is an object.");
    showJsonProblem("");
    return request;
  } catch (error) {
    showJsonProblem(`This is not valid JSON: ${error.message}`);
    return null;
  }
}

function showJsonProblem(text) {
  part("json-problem").textContent = text;
  part("json-problem").hidden = text === "";
  part("json").setAttribute("aria-invalid", String(text !== ""));
}

function showAs(json) {
  const request = readRequest();
  if (json === isJson || request === null) return;
  isJson = json;
  if (json) part("json").value = JSON.stringify(request, null, 2);
  else form.show(request);
  for (const [tab, panel, isShown] of [["tab-form", "request-form", !json], ["tab-json", "json-panel", json]]) {
    part(tab).setAttribute("aria-selected", String(isShown));
    part(tab).tabIndex = isShown ? 0 : -1;
    part(panel).hidden = !isShown;
  }
}

async function create() {
  const request = readRequest();
  if (request === null) return;
  showProblem("");
  part("create").disabled = true;
  try {
    const { address } = await postJson("/-/new-job", request);
    keepToast(`Created ${showInvisible(request.TrainingJobName)}.`);
    location.assign(address);
  } catch (error) {
    showProblem(error.message);
    part("create").disabled = false;
  }
}

function showProblem(message) {
  part("problem").textContent = showInvisible(message);
  part("problem").hidden = message === "";
  if (!isJson) form.markProblems(message);
}

form.show(data.request);
part("json").addEventListener("input", onChange);
part("create").addEventListener("click", create);
part("tab-form").addEventListener("click", () => showAs(false));
part("tab-json").addEventListener("click", () => showAs(true));
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  showAs(!isJson);
  part(isJson ? "tab-json" : "tab-form").focus();
});
onChange();
