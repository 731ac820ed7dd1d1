"""The debugger of a job, in a real browser, with real trainings."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.fuzz.world import RULES, User
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.watching import place_of
from trainyard.testing.yard import RunningYard, running_yard

HOSTILE = "<img src=x onerror=alert(1)>\u202e" + "x" * 180
# From step FADE on, its gradients become ten times smaller at each step; if that is negative, once a file is there.
SCRIPT = f"""
import os, time, torch
from torch import nn

STEPS, FADE, PAUSE_S = int(os.environ["STEPS"]), int(os.environ["FADE"]), float(os.environ.get("PAUSE_S", "0"))
torch.set_num_threads(1)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
model.add_module({HOSTILE!r}, nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(STEPS):
    x = torch.randn(20, 8)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    if FADE < 0 and os.path.exists("/opt/ml/fade"):
        FADE = step
    if 0 <= FADE <= step:
        loss = loss * 0.1 ** (step - FADE + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(PAUSE_S)
"""
HOOK = {
    "S3OutputPath": "s3://data/tensors",
    "HookParameters": {"save_interval": "5"},
    "CollectionConfigurations": [{"CollectionName": name} for name in ("weights", "gradients")],
}
GRADIENT = "gradient/Sequential_0.weight"


def rule(name: str, **parameters: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": RULES,
        "RuleParameters": {"rule_to_invoke": "VanishingGradient", **parameters},
    }


STOPPING = rule("fading", action_json='[{"name": "stoptraining"}]')


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("debugger") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """A user whose jobs have ended: one that a rule stopped, a healthy one, one without rules, one without a hook."""
    key = yard.credentials
    user = User(yard.http, key.account, "admin", key.access_key_id, key.secret_access_key)
    prepared = Trainee(user).prepare()
    short = {"STEPS": "40", "FADE": "1000", "OMP_NUM_THREADS": "1"}
    long = {"STEPS": "100000", "FADE": "20", "OMP_NUM_THREADS": "1", "PAUSE_S": "0.02"}
    prepared.start("faded", SCRIPT, DebugHookConfig=HOOK, DebugRuleConfigurations=[STOPPING], Environment=long)
    prepared.start("healthy", SCRIPT, DebugHookConfig=HOOK, DebugRuleConfigurations=[rule("fine")], Environment=short)
    prepared.start("unwatched", SCRIPT, DebugHookConfig={"S3OutputPath": "s3://data/tensors"}, Environment=short)
    prepared.start("unhooked", "print('trained')")
    ends = {name: prepared.reach(name, "Completed", "Stopped", "Failed") for name in ("faded", "healthy", "unwatched")}
    assert ends["faded"]["TrainingJobStatus"] == "Stopped", ends["faded"]
    return prepared


@pytest.fixture
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    opened = sign_in(browser, yard)
    opened.requested.clear()
    opened.logged.clear()
    return opened


def open_debugger(page: Page, yard: RunningYard, job: str, query: str = "") -> None:
    page.open_url(f"{yard.http}/-/training/{job}/debugger{query}")
    page.wait_until("document.querySelector('#tensor-curve canvas, #tensor .empty') !== null")


def text_of(page: Page, selector: str) -> str:
    shown: str = page.wait_until(f"document.querySelector({json.dumps(selector)})?.innerText")
    return shown


def state_of(page: Page) -> dict[str, str]:
    state: dict[str, str] = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    return state


def label_of(page: Page, selector: str) -> str:
    label: str = page.wait_until(f"document.querySelector('{selector} .chart-plot')?.getAttribute('aria-label')")
    return label


def read_chart(page: Page, selector: str, *keys: str) -> str:
    """Focus a chart, press keys, and return what it says then."""
    page.wait_until(f"document.querySelector('{selector} .chart-plot') !== null")
    page.evaluate(f"document.querySelector('{selector} .chart-plot').focus()")
    page.wait_until_drawn()
    for key in keys:
        page.press(key)
    said: str = page.evaluate(f"document.querySelector('{selector} [aria-live]').textContent")
    return said


def test_a_rule_that_fired_leads_to_its_tensor_at_that_step(page: Page, yard: RunningYard) -> None:
    open_debugger(page, yard, "faded")
    verdict = text_of(page, "#verdict")
    assert "fading, step 2" in verdict
    assert "Done: stoptraining" in verdict
    rules = " ".join(text_of(page, "#rules").split())
    for text in ("Found an issue", "threshold 1e-7", "What was done Done stoptraining", "patience 1"):
        assert text in rules
    assert label_of(page, "[data-evidence]") == "Evidence of fading"

    page.click("#rules .finding button")
    name = text_of(page, "#tensor-name")
    step = int(state_of(page)["step"])
    assert name.startswith("gradient/")
    assert 20 <= step < 30
    assert state_of(page)["tensor"] == page.evaluate("document.querySelector('#tree [aria-current]').dataset.tensor")
    assert page.evaluate("document.querySelector('#statistic').value") == "mean_abs"
    page.wait_until("document.querySelector('#tensor-curve').innerText.includes('fading, threshold 1e-7')")
    # The moment is drawn and told in every chart. The program may have done more steps before it was stopped.
    for chart, end in (("#tensor-curve", ["End"]), ("#map", ["ArrowRight"] * 60)):
        told = [read_chart(page, chart, *end)]
        while f"fading, step {step}" not in told[-1]:
            told.append(read_chart(page, chart, "ArrowLeft"))
            assert told[-1] != told[-2], told

    # Its elements were not saved in that step, but nearby.
    assert "only its statistics" in text_of(page, "#elements")
    page.click("#elements .button")
    page.wait_until("document.querySelector('#elements table.elements td') !== null")
    assert int(state_of(page)["step"]) % 5 == 0
    assert_is_quiet(page, yard)


def test_the_map_chooses_tensor_and_step_and_the_address_keeps_the_view(page: Page, yard: RunningYard) -> None:
    open_debugger(page, yard, "healthy")
    page.evaluate(
        "(() => { const kind = document.querySelector('#map-kind'); kind.value = 'weight';"
        "kind.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until("document.querySelector('#map .chart-plot')?.getAttribute('aria-label').includes('Weights')")
    said = read_chart(page, "#map", "ArrowRight", "ArrowRight", "ArrowDown")
    assert said.startswith("Sequential_2.weight, step 1: ")
    page.press("Enter")
    page.wait_until("document.querySelector('#tensor-name')?.textContent === 'Sequential_2.weight'")
    assert state_of(page) | {"kind": "weight", "tensor": "Sequential_2.weight", "step": "1"} == state_of(page)
    assert label_of(page, "#tensor-histograms") == "Distribution of Sequential_2.weight over steps"
    # Bins are rows; a column is a saved step.
    assert " of 256" in read_chart(page, "#tensor-histograms", "ArrowDown", *["ArrowDown"] * 30)
    page.press("Enter")
    page.wait_until("document.querySelectorAll('#elements table.elements tbody tr').length === 12")
    page.click("#elements button[aria-label='Next rows']")
    page.wait_until("document.querySelectorAll('#elements table.elements tbody tr').length === 4")

    page.open_url(page.evaluate("location.href"))
    assert text_of(page, "#tensor-name") == "Sequential_2.weight"
    assert page.wait_until("document.querySelector('#map-kind')?.value") == "weight"
    page.wait_until("document.querySelectorAll('#elements table.elements tbody tr').length === 12")


def test_tensors_are_found_by_layer_by_name_and_by_collection(page: Page, yard: RunningYard) -> None:
    open_debugger(page, yard, "healthy")
    page.wait_until("[...document.querySelectorAll('#tree summary')].some((each) => each.innerText.startsWith('2'))")
    page.press("/")
    page.click("#filter")
    page.type("gradient 0.weight")
    page.wait_until("document.querySelectorAll('#tree [data-tensor]').length === 1")
    page.click("#tree [data-tensor]")
    page.wait_until(f"document.querySelector('#tensor-name').textContent === '{GRADIENT}'")
    page.click(".tensor-chips button[title='Sequential_0.weight']")
    page.wait_until("document.querySelector('#tensor-name').textContent === 'Sequential_0.weight'")
    page.evaluate(
        "(() => { const filter = document.querySelector('#filter'); filter.value = '';"
        "filter.dispatchEvent(new Event('input')); const choice = document.querySelector('#collection');"
        "choice.value = 'losses'; choice.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until("document.querySelectorAll('#tree [data-tensor]').length === 1")
    assert state_of(page)["collection"] == "losses"
    page.evaluate("document.querySelector('#tree summary').focus()")
    page.press("ArrowDown")
    page.press("Enter")
    page.wait_until("document.querySelector('#tensor-name').textContent.endsWith('output_0')")


def test_recorded_steps_can_be_replayed_and_downloaded(page: Page, yard: RunningYard) -> None:
    open_debugger(page, yard, "faded")
    record = text_of(page, ".record")
    step = record.split()[1]
    assert f"trainyard replay faded --step {step}" in record
    assert "saved because of fading" in record
    files = page.evaluate(
        "fetch(document.querySelector('.record a').href).then((answer) => answer.arrayBuffer()).then((body) => {"
        "const text = new TextDecoder('latin1').decode(body); const found = [];"
        "for (let at = 0; at < text.length && text[at] !== '\\0';) {"
        "found.push(text.slice(at, text.indexOf('\\0', at)));"
        "at += 512 + Math.ceil(parseInt(text.slice(at + 124, at + 136), 8) / 512) * 512; } return found.sort(); })"
    )
    assert files == ["inputs.pt", "record.json", "state.safetensors"]


def test_other_rules_are_evaluated_by_a_command(page: Page, yard: RunningYard) -> None:
    open_debugger(page, yard, "unwatched")
    page.click("#rule-run summary")
    page.wait_until("document.querySelector('#run-parameters input[name=threshold]') !== null")
    page.click("#run-parameters input[name=threshold]")
    page.type("it's 1")
    page.click("#run-advised")
    page.click("#run-parameters input[name=patience]")
    page.type("3")
    wanted = (
        "trainyard rules replay unwatched --rule VanishingGradient --parameter defaults=advised --parameter patience=3"
    )
    assert text_of(page, "#run-command code") == wanted


def test_a_job_without_hook_rules_or_layers_says_which_lines_to_add(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/training/unhooked/debugger")
    assert "rules=[" in text_of(page, "main .empty")
    assert accessibility_problems(page) == []
    open_debugger(page, yard, "unwatched")
    assert "rules=[Rule.sagemaker(" in text_of(page, "#rules")
    assert 'CollectionConfig("weights")' in text_of(page, "#map")
    assert "jobs with rules" in text_of(page, "#records")
    page.show_as(width=390)
    page.wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, scheme: str) -> None:
    page.show_as(width=1280, scheme=scheme)
    open_debugger(page, yard, "faded")
    page.click("#rule-run summary")
    page.wait_until("document.querySelector('#run-command code') !== null")
    assert accessibility_problems(page) == []
    page.show_as(width=390, scheme=scheme)
    page.wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # The name of a layer is markup, long, and turns the direction of writing.
    page.click("#filter")
    page.type("onerror")
    page.wait_until("document.querySelector('#tree [data-tensor]') !== null")
    page.click("#tree [data-tensor]")
    page.wait_until("document.querySelector('#tensor-name').textContent.includes('<img')")
    assert "⟨U+202E⟩" in text_of(page, "#tensor-name")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert accessibility_problems(page) == []


def test_a_running_job_is_followed_until_a_rule_stops_it(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    # Its gradients are healthy until the test makes them fade.
    slow = {"STEPS": "100000", "FADE": "-1", "OMP_NUM_THREADS": "1", "PAUSE_S": "0.05"}
    debugged = {"DebugHookConfig": HOOK, "DebugRuleConfigurations": [STOPPING], "Environment": slow}
    trainee.start("live", SCRIPT, **debugged, **UNTIL_STOPPED)
    trainee.reach("live", "Training", "Stopped", "Failed")
    page.open_url(f"{yard.http}/-/training/live/debugger")
    assert text_of(page, "#rules .badge") == "Watching"
    assert "Nothing found so far" in page.evaluate("document.querySelector('#rules').textContent")
    page.wait_until("document.querySelector('[data-live-state]').dataset.liveState === 'live'")
    first = page.wait_until("document.querySelector('#map-note')?.innerText")
    page.wait_until(f"document.querySelector('#map-note').innerText !== {json.dumps(first)}")
    (place_of(yard, "live").ml / "fade").touch()
    page.wait_until("document.querySelector('#rules .badge').innerText === 'Found an issue'")
    (step,) = re.findall(r"fading, step (\d+)", text_of(page, "#verdict"))
    # What was found is open without a click.
    assert page.wait_until("document.querySelector('.finding-text')?.offsetHeight")
    replay = f"trainyard replay live --step {step}"
    page.wait_until(f"document.querySelector('.record code')?.innerText.startsWith('{replay}')")
    page.wait_until("document.querySelector('[data-live-state]').hidden")
    assert_is_quiet(page, yard)
