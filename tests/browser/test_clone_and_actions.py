"""Acting on a job in a real browser: its definition is read and copied, edited and run, and the job is controlled."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

BASE = "digits"
SCRIPT = "import sys\nprint('arguments', sys.argv[1:])\nopen('/opt/ml/checkpoints/step', 'w').write('1')\n"
SLEEPER = "import time\nprint('started', flush=True)\ntime.sleep(600)\n"
HOSTILE = "</script><b>\u202e'\"\\"
TOASTS = "document.querySelector('.toasts').innerText"
STATUS = "document.getElementById('job-status').innerText"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("actions") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    made = trainee_of(yard).prepare()
    request = made.request(BASE, SCRIPT)
    request["HyperParameters"] |= {"lr": "0.1", "note": json.dumps(HOSTILE)}
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    request |= {
        "Environment": {"MODE": HOSTILE},
        "CheckpointConfig": {"S3Uri": f"s3://{made.bucket}/checkpoints/{BASE}"},
        "Tags": [{"Key": f"tag-{number}", "Value": "v" * 200} for number in range(40)],
    }
    made.sagemaker.create_training_job(**request)
    assert made.reach(BASE, "Completed", "Failed")["TrainingJobStatus"] == "Completed", made.lines(BASE)
    return made


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    page = sign_in(browser, yard)
    page.logged.clear()
    return page


def open_page(page: Page, yard: RunningYard, path: str, *, width: int = 1280, scheme: str = "light") -> None:
    page.show_as(width=width, scheme=scheme)
    page.open_url(f"{yard.http}/-/training/{path}")


def set_field(page: Page, name: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {json.dumps(value)};"
        "field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def test_the_definition_is_read(page: Page, yard: RunningYard) -> None:
    open_page(page, yard, f"{BASE}/definition")
    shown = page.evaluate("document.querySelector('.definition-sections').innerText")
    for expected in ("lr", "0.1", "train.py", "1 x ml.m5.large", "on demand", "5 min", "tag-39", "loss=([0-9.]+)"):
        assert expected in shown
    assert "</script><b>⟨U+202E⟩'\"\\" in shown
    page.click("#tab-json")
    request = json.loads(page.evaluate("document.querySelector('#snippet-json [data-copies]').dataset.copies"))
    assert request["HyperParameters"]["note"] == json.dumps(HOSTILE)
    assert "as=json" in page.evaluate("location.search")
    page.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "tab-boto3"


def test_a_snippet_of_boto3_creates_the_same_job(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_page(page, yard, f"{BASE}/definition")
    program = page.evaluate("document.querySelector('#snippet-boto3 [data-copies]').dataset.copies")
    program = program.replace(f'TrainingJobName="{BASE}"', 'TrainingJobName="from-boto3"')
    subprocess.run([sys.executable, "-c", program], env=os.environ | yard.environment(), check=True)
    before, after = trainee.describe(BASE), trainee.reach("from-boto3", "Completed", "Failed")
    for member in ("HyperParameters", "Environment", "ResourceConfig", "StoppingCondition", "CheckpointConfig"):
        assert after[member] == before[member]
    assert after["TrainingJobStatus"] == "Completed"


def test_a_snippet_of_the_sdk_has_the_options_of_the_job(page: Page, yard: RunningYard) -> None:
    open_page(page, yard, f"{BASE}/definition")
    program = page.evaluate("document.querySelector('#snippet-sdk [data-copies]').dataset.copies")
    calls = {ast.unparse(node.func): node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)}
    given = {each.arg: ast.literal_eval(each.value) for each in calls["PyTorch"].keywords}
    assert given["hyperparameters"] == {"lr": 0.1, "note": HOSTILE}
    assert (given["entry_point"], given["max_run"], len(given["tags"])) == ("train.py", 300, 40)
    assert "estimator.fit" in calls


def test_a_job_is_cloned_edited_and_run(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_page(page, yard, BASE)
    page.click("#job-actions a[href$='/clone']")
    page.wait_until("document.querySelector('.quote-facts') !== null")
    assert page.evaluate("document.querySelector('[name=jobName]').value") == f"{BASE}-copy"
    assert page.evaluate("document.querySelector('[name=checkpoints]').value").endswith(f"/checkpoints/{BASE}-copy")
    quoted = page.evaluate("document.getElementById('quote').innerText")
    assert "local" in quoted

    set_field(page, "type", "ml.nothing.large")
    page.wait_until("document.getElementById('quote').innerText.includes('ml.nothing.large')")
    page.click("#create")
    page.wait_until("!document.getElementById('problem').hidden")
    assert "ml.nothing.large" in page.evaluate("document.getElementById('problem').innerText")
    set_field(page, "type", "ml.m5.large")
    set_field(page, "count", "0")
    page.click("#create")
    page.wait_until("document.querySelector('.has-problem legend')?.innerText === 'Instances'")
    set_field(page, "count", "1")

    rows = "[...document.querySelectorAll('[name=request-form], #request-form .pair')]"
    page.evaluate(
        f"(() => {{ const row = {rows}.find((each) => each.querySelector('[name=name]').value === 'lr');"
        "row.querySelector('[name=value]').focus(); row.querySelector('[name=value]').select(); })()"
    )
    page.type("0.5")
    page.click("#tab-json")
    request = json.loads(page.evaluate("document.getElementById('json').value"))
    assert request["HyperParameters"] | {"sagemaker_submit_directory": ""} == {
        "lr": "0.5",
        "note": json.dumps(HOSTILE),
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": "",
    }
    request["Environment"] = {"ADDED": "as JSON"}
    set_json(page, "{")
    page.wait_until("!document.getElementById('json-problem').hidden")
    set_json(page, json.dumps(request))
    page.click("#tab-form")
    assert page.evaluate("[...document.querySelectorAll('#request-form [name=name]')].some((e) => e.value === 'ADDED')")
    page.click("#create")
    page.wait_until(f"location.pathname === '/-/training/{BASE}-copy'")
    assert f"Created {BASE}-copy." in page.wait_until(TOASTS)
    made = trainee.reach(f"{BASE}-copy", "Completed", "Failed")
    assert made["TrainingJobStatus"] == "Completed", trainee.lines(f"{BASE}-copy")
    assert (made["HyperParameters"]["lr"], made["Environment"]) == ("0.5", {"ADDED": "as JSON"})
    assert made["StoppingCondition"] == trainee.describe(BASE)["StoppingCondition"]
    open_page(page, yard, f"{BASE}-copy/clone")
    assert page.evaluate("document.querySelector('[name=jobName]').value") == f"{BASE}-copy-2"
    page.logged.clear()  # what the yard refused


def set_json(page: Page, text: str) -> None:
    page.evaluate(
        f"(() => {{ const area = document.getElementById('json'); area.value = {json.dumps(text)};"
        "area.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def test_a_spot_job_is_interrupted_and_stopped(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    limits = {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600}
    trainee.start("sleeper", SLEEPER, EnableManagedSpotTraining=True, StoppingCondition=limits)
    trainee.reach("sleeper", "Training")
    open_page(page, yard, "sleeper/files")
    assert page.evaluate("document.querySelector('[data-action=delete]').disabled")
    page.click("[data-action=interrupt]")
    page.click("dialog[open] .button-danger")
    page.wait_until(f"{TOASTS}.includes('interrupted')")

    def statuses() -> list[str]:
        return [step["Status"] for step in trainee.describe("sleeper")["SecondaryStatusTransitions"]]

    eventually(lambda: "Interrupted" in statuses(), within=timedelta(seconds=60))
    # With the keyboard alone.
    page.evaluate("document.querySelector('[data-action=stop]').focus()")
    page.press("Enter")
    page.wait_until("document.querySelector('dialog[open]') !== null")
    assert "Stop sleeper?" in page.evaluate("document.querySelector('dialog').innerText")
    page.press("Tab")
    page.press("Enter")
    page.wait_until(f"{TOASTS}.includes('Stopping')")
    page.wait_until(f"{STATUS} === 'Stopped'")
    assert trainee.describe("sleeper")["TrainingJobStatus"] == "Stopped"
    page.wait_until("document.querySelector('[data-action=stop]').hidden")
    assert not page.evaluate("document.querySelector('[data-action=delete]').disabled")


def test_tags_are_edited(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_page(page, yard, f"{BASE}/definition")
    page.click("#job-actions summary")
    page.click("[data-action=tag]")
    page.wait_until("document.querySelectorAll('dialog[open] .tag-row').length === 40")
    assert accessibility_problems(page) == []
    page.click("dialog .tag-row [data-removes]")
    page.evaluate("document.querySelector('dialog .tag-list + button').click()")
    page.type("team")
    page.evaluate("document.querySelector('dialog .tag-row:last-child [name=value]').focus()")
    page.type(HOSTILE)
    page.press("Enter")
    assert "⟨U+202E⟩" in page.wait_until("document.querySelector('dialog [role=alert]').innerText")
    page.evaluate("document.querySelector('dialog .tag-row:last-child [name=value]').select()")
    page.type("vision")
    page.press("Enter")
    page.wait_until(f"{TOASTS}.includes('tags are saved')")
    listed = trainee.sagemaker.list_tags(ResourceArn=trainee.describe(BASE)["TrainingJobArn"])["Tags"]
    tags = {tag["Key"]: tag["Value"] for tag in listed}
    assert (len(tags), tags["team"]) == (40, "vision")
    assert "tag-0" not in tags


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("tab", ["definition", "clone"])
def test_the_pages_are_accessible_and_fit_a_phone(page: Page, yard: RunningYard, tab: str, scheme: str) -> None:
    for width in (1280, 390):
        open_page(page, yard, f"{BASE}/{tab}", width=width, scheme=scheme)
        if tab == "clone":
            page.wait_until("document.querySelector('.quote-facts') !== null")
        assert accessibility_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert_is_quiet(page, yard)


def test_a_job_is_deleted(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_page(page, yard, "sleeper/definition")
    page.click("#job-actions summary")
    page.click("[data-action=delete]")
    page.click("dialog[open] .button-danger")
    page.wait_until("location.pathname === '/-/jobs'")
    assert "Deleted sleeper." in page.wait_until(TOASTS)
    named = [each["TrainingJobName"] for each in trainee.sagemaker.list_training_jobs()["TrainingJobSummaries"]]
    assert "sleeper" not in named
