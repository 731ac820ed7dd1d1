"""The profiler of a job in a real browser, with real trainings: one waits for data, one runs, one has no profile."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

# Each item takes 10 ms to load, and a step next to nothing. Trains for some steps, or until it is stopped.
SCRIPT = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 400_000
    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(8), number % 2

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("training", flush=True)
for step, (x, y) in enumerate(DataLoader(Slow(), batch_size=4)):
    with torch.profiler.record_function("<b>my part</b>"):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == int(os.environ.get("STEPS", "1000000")):
        break
"""
RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
GPU_TRACE = Path(__file__).parents[1] / "unit/insight/profiling/traces/gpt2_h200.pt.trace.json.gz"
LONG_RULE = "r" * 200
SLOW, RUNNING, PLAIN = "waits-for-data", "still-runs", "not-profiled"
MARKUP = "<b>my part</b>"


def rule(name: str, kind: str, **parameters: str) -> dict[str, Any]:
    asked = {"rule_to_invoke": kind, **parameters}
    return {"RuleConfigurationName": name, "RuleEvaluatorImage": RULES_IMAGE, "RuleParameters": asked}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    settings = {"TRAINYARD_SERVER_SLOTS": "3"}
    with running_yard(tmp_path_factory.mktemp("profiler") / "yard", environment=settings) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Iterator[Trainee]:
    """A user with the three jobs. The running one is stopped at the end."""
    made = trainee_of(yard).prepare()
    output = {"S3OutputPath": "s3://data/profiles"}
    windows = {
        "DetailedProfilingConfig": json.dumps({"StartStep": 6, "NumSteps": 4}),
        "PythonProfilingConfig": json.dumps({"StartStep": 20, "NumSteps": 1, "ProfilerName": "cprofile"}),
    }
    made.start(
        SLOW,
        SCRIPT,
        Environment={"STEPS": "40"},
        ProfilerConfig={**output, "ProfilingIntervalInMilliseconds": 100, "ProfilingParameters": windows},
        ProfilerRuleConfigurations=[
            rule(LONG_RULE, "MaxInitializationTime", threshold="0.00001"),
            rule("report", "ProfilerReport"),
        ],
    )
    sampled = {**output, "ProfilingIntervalInMilliseconds": 100}
    made.start(RUNNING, SCRIPT, ProfilerConfig=sampled, **UNTIL_STOPPED)
    made.start(PLAIN, "print('nothing to see')", ProfilerConfig={"DisableProfiler": True})
    made.reach(SLOW, "Completed")
    made.reach(PLAIN, "Completed")
    yield made
    made.sagemaker.stop_training_job(TrainingJobName=RUNNING)
    made.reach(RUNNING, "Stopped")


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    return sign_in(browser, yard, width=1360)


def show(page: Page, yard: RunningYard, job: str, query: str = "") -> None:
    page.logged.clear()
    page.requested.clear()
    page.open_url(f"{yard.http}/-/training/{job}/profiler{query}")


def focus_on_chart(page: Page, selector: str) -> None:
    """Focus a chart once it is drawn, for it takes no keys before."""
    page.wait_until(f"document.querySelector('{selector} .chart-plot') !== null")
    page.evaluate(f"document.querySelector('{selector} .chart-plot').focus()")
    page.wait_until_drawn()


def text_of(page: Page, selector: str, *, has: str = "") -> str:
    """Return the text of an element, once it has some and contains what it should."""
    found: str = page.wait_until(
        f"(() => {{ const text = document.querySelector({selector!r})?.innerText ?? '';"
        f"return text.trim() && !text.startsWith('Loading') && text.includes({has!r}) ? text : null; }})()"
    )
    return found


def test_the_verdict_comes_first_with_evidence_bound_cost_and_advice(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW)
    verdict = text_of(page, "#verdict", has="Evidence")
    assert verdict.startswith("Data loading")
    for part in ("waits for data", "Gain at most", "A step takes", "A step costs", "The loader of Slow has no workers"):
        assert part in verdict
    assert page.evaluate("document.querySelector('#verdict').getBoundingClientRect().top") < 300
    advice = text_of(page, "#advice")
    for part in ("data workers instead of none", "loader workers = ", "expected: at most", "not measured yet"):
        assert part in advice
    assert f"trainyard advise {SLOW} --verify" in text_of(page, "#advice-verify")
    mean = text_of(page, "#phases", has="data wait")
    assert "41 training steps" in mean
    assert "CPU" in text_of(page, "#utilization", has="p99")
    page.evaluate("document.fonts.ready")
    assert_is_quiet(page, yard)


def test_rules_show_their_state_and_what_they_found(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW)
    # The job ends before its rules are evaluated for the last time; the page asks until they are.
    page.wait_until("document.querySelector('.rule') && !document.querySelector('#rules .badge-running')")
    assert "of 2 found something" in text_of(page, "#rules-note")
    assert text_of(page, f"[data-rule={LONG_RULE}] .badge") == "Found"
    page.click(f"[data-rule={LONG_RULE}] summary")
    details = text_of(page, ".rule[open] .rule-details")
    assert LONG_RULE in details
    assert "MaxInitializationTime" in details
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_steps_are_shown_by_phase_with_what_the_program_did(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW, "?view=steps")
    assert "data wait" in text_of(page, "#stacks", has="data wait")
    focus_on_chart(page, "#stacks")
    page.press("ArrowRight")
    told = page.evaluate("document.querySelector('#stacks [aria-live]').textContent")
    assert told.startswith("step 0: all ")
    page.press("t")
    assert page.evaluate("document.querySelectorAll('#stacks tbody tr').length") == 41
    assert "Slow" in text_of(page, "#loaders")
    assert "time.sleep(0.01)" in text_of(page, "#lines")
    assert "float32" in text_of(page, "#program")
    assert "parameters" in text_of(page, "#holders")


def test_a_trace_is_a_timeline_that_is_searched_zoomed_and_told_about(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW, "?view=traces")
    assert "the profiler" in text_of(page, "#traces", has="rank 0")
    assert "aten::addmm" in text_of(page, "#trace", has="Step time by role")
    page.wait_until("document.querySelector('.trace-legend')?.innerText.includes('data loader')")
    page.click(".chart-search input")
    page.type("MY PART")
    page.press("Enter")
    page.wait_until("document.querySelector('.chart-search').innerText.includes('1 of 4')")
    # Its name is markup, which is only shown.
    assert text_of(page, ".slice-title") == MARKUP
    details = text_of(page, ".slice")
    assert "ProfilerStep#6" in details
    assert "4, " in details
    page.wait_until("new URLSearchParams(location.search).get('to') > 0")
    shown = page.evaluate("location.search")
    page.press("Enter")
    page.wait_until("document.querySelector('.slice-path')?.innerText.includes('ProfilerStep#7')")
    page.wait_until(f"location.search !== {shown!r}")
    # The address holds what is seen.
    page.open_url(f"{yard.http}/-/training/{SLOW}/profiler{shown}")
    page.wait_until("document.querySelector('.trace-timeline .chart-tools')?.innerText.includes('Reset zoom')")
    page.wait_until(f"location.search === {shown!r}")
    page.evaluate("document.querySelector('.trace-timeline .chart-plot').focus()")
    page.press("0")
    page.wait_until("!new URLSearchParams(location.search).has('to')")
    assert_is_quiet(page, yard)


def test_the_tables_of_a_trace_are_sorted(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW, "?view=traces")
    table = "document.querySelector('[aria-label=Operators] table')"
    page.wait_until(f"{table} !== null")
    page.evaluate(f"[...{table}.querySelectorAll('th button')].find((each) => each.innerText === 'Calls').click()")
    calls = page.evaluate(f"[...{table}.querySelectorAll('tbody tr')].map((row) => Number(row.cells[1].innerText))")
    assert calls == sorted(calls, reverse=True)
    assert page.evaluate(f"{table}.querySelector('[aria-sort=descending]').innerText").startswith("Calls")
    assert "allocated" in text_of(page, "#trace", has="Held at the peak").lower()
    assert "functions of Python" in text_of(page, "#files", has="python_stats")
    for place in ("#traces", "#files"):
        link = page.evaluate(f"document.querySelector('{place} a').href")
        size = page.evaluate(f"fetch({link!r}).then((answer) => answer.arrayBuffer()).then((body) => body.byteLength)")
        assert size > 1000


def test_every_core_is_a_row_of_a_heat_map(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW, "?view=hardware")
    focus_on_chart(page, "#heat")
    page.press("ArrowRight")
    assert page.evaluate("document.querySelector('#heat [aria-live]').textContent").startswith("core 0, ")
    assert "Memory, %" in text_of(page, "#curves", has="CPU and GPU")
    page.evaluate("document.querySelector('#heat-metric').value = 'wait'")
    page.evaluate("document.querySelector('#heat-metric').dispatchEvent(new Event('change'))")
    page.wait_until("new URLSearchParams(location.search).get('heat') === 'wait'")


def test_the_next_steps_of_a_running_job_are_recorded_and_all_is_live(
    page: Page, yard: RunningYard, trainee: Trainee
) -> None:
    trainee.await_line(RUNNING, "training")
    show(page, yard, RUNNING, "?view=traces")
    assert f"trainyard profile {RUNNING} --steps 5" in text_of(page, "#traces")
    page.wait_until("document.querySelector('[data-live-state]').innerText === 'Live'")
    page.evaluate("document.querySelector('#profile-steps').value = 3")
    page.click("#profile-button")
    text_of(page, "#profile-state", has="has arrived")
    assert "from step" in text_of(page, "#traces", has="algo-1-worker_0").lower()
    page.wait_until("document.querySelector('#trace')?.innerText.includes('3 steps')")
    page.click("[data-view=steps]")
    page.wait_until("document.querySelector('#stacks-span') !== null")
    page.evaluate("document.querySelector('#stacks-span').value = 'recent'")
    page.evaluate("document.querySelector('#stacks-span').dispatchEvent(new Event('change'))")
    focus_on_chart(page, "#stacks")
    page.press("ArrowRight")
    first = page.evaluate("document.querySelector('#stacks [aria-live]').textContent")
    page.wait_until(
        "(() => { const plot = document.querySelector('#stacks .chart-plot');"
        "plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));"
        "plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));"
        f"return document.querySelector('#stacks [aria-live]').textContent !== {first!r}; }})()"
    )
    page.click("[data-view=overview]")
    assert "Data loading" in text_of(page, "#verdict", has="Evidence")
    assert_is_quiet(page, yard)


def test_a_request_for_steps_that_cannot_be_recorded_says_why(page: Page, yard: RunningYard) -> None:
    show(page, yard, SLOW, "?view=traces")
    assert page.evaluate("document.querySelector('#profile-form').hidden")
    ask = "import('{}').then(({{ postJson }}) => postJson('{}', {{ steps: {} }})).catch((error) => error.message)"
    module = page.evaluate(
        "performance.getEntriesByType('resource').find((each) => each.name.endsWith('/http.js')).name"
    )
    address = f"/-/training/{SLOW}/profiler/profile"
    assert "only the steps of a job in Training" in page.evaluate(ask.format(module, address, 3))
    assert "from 1 to 1000" in page.evaluate(ask.format(module, address, 0))


def test_the_report_runs_in_a_sandbox_without_origin(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/training/{SLOW}/profiler/report")
    assert "waits for data" in page.wait_until("document.body.innerText")
    assert page.evaluate("self.origin") == "null"
    assert page.evaluate("fetch('/-/jobs').then(() => 'reached', () => 'refused')") == "refused"
    assert page.evaluate("(() => { try { return document.cookie; } catch { return 'refused'; } })()") == "refused"


def test_a_job_without_a_profile_says_so_and_what_to_do(page: Page, yard: RunningYard) -> None:
    show(page, yard, PLAIN)
    assert "disable_profiler" in text_of(page, "#profiler-off")
    assert "No training step was timed" in text_of(page, "#verdict", has="No verdict")
    assert "No steps were timed" in text_of(page, "#phases")
    assert "no samples yet" in text_of(page, "#utilization")
    page.click("[data-view=traces]")
    assert "This job recorded no trace" in text_of(page, "#traces")
    page.click("[data-view=hardware]")
    assert "no samples of cores" in text_of(page, "#heat")
    assert_is_quiet(page, yard)


def test_ranks_that_recorded_the_same_steps_share_a_timeline(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    below = f"profiles/{SLOW}/profiler-output/framework/pytorch/detailed_profiling/2026070112/7"
    for rank, thread in ((3, b"518"), (4, b"918")):
        body = gzip.compress(gzip.decompress(GPU_TRACE.read_bytes()).replace(b"518", thread))
        key = f"{below}/algo-1-worker_{rank}.17.pt.trace.json.gz"
        trainee.user.client("s3").put_object(Bucket="data", Key=key, Body=body)
    show(page, yard, SLOW, "?view=traces")
    kernels = text_of(page, "[aria-label=Kernels]", has="tensor cores")
    assert "Show 48 more" in kernels
    assert "NVIDIA H200" in text_of(page, "#trace")
    page.click(".trace-ranks input")
    page.wait_until("new URLSearchParams(location.search).get('ranks') === '1'")
    page.wait_until("document.querySelector('.trace-legend')?.innerText.includes('kernels')")
    page.click("[aria-label=Kernels] button.clamp")
    page.wait_until("document.querySelector('.chart-search')?.innerText.match(/1 of \\d+/)")
    first = text_of(page, ".slice", has="launched by")
    page.evaluate("document.querySelector('.slice-links button').click()")
    page.wait_until("document.querySelector('.slice-title').innerText.startsWith('cuda')")
    ranks = {"rank 3", "rank 4"}
    assert sum(rank in first for rank in ranks) == 1
    page.evaluate("document.querySelector('.chart-search input').focus()")
    page.press("Enter")
    page.wait_until(f"!document.querySelector('.slice').innerText.includes({next(r for r in ranks if r in first)!r})")
    assert_is_quiet(page, yard)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["overview", "steps", "traces", "hardware"])
def test_every_view_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, view: str, scheme: str) -> None:
    page.show_as(width=1360, scheme=scheme)
    show(page, yard, SLOW, f"?view={view}")
    text_of(page, "#verdict", has="Evidence") if view == "overview" else None
    page.wait_until(f"!document.querySelector('#view-{view} .loading')")
    assert accessibility_problems(page) == []
    page.show_as(width=390, scheme=scheme)
    page.wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.show_as(width=1360)
