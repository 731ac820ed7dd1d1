"""The profiler report of a real job: its page in a browser, and its notebook beside the yard of the job."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, start_browser
from tests.notebooks import code_of, run_cells
from tests.system.fuzz.world import User
from tests.system.test_profiler import rule
from tests.system.trainees import Trainee
from trainyard.testing.eventually import eventually

TRAINING = """
import torch
from torch import nn

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 640
    def __getitem__(self, index):
        return torch.randn(16), index % 2

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    for x, y in torch.utils.data.DataLoader(Numbers(), batch_size=16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
REPORT = "out/reported/rule-output/ProfilerReport-1/profiler-output"


@pytest.mark.system
def test_the_report_of_a_job_opens_in_a_browser_and_its_notebook_reads_the_job(
    administrator: User, tmp_path: Path
) -> None:
    anna = Trainee(administrator.add_user("anna")).prepare()
    config = {"ProfilingIntervalInMilliseconds": 100}
    rules = [rule("ProfilerReport-1", "ProfilerReport")]
    told = anna.run(
        "reported",
        TRAINING,
        ProfilerConfig=config,
        ProfilerRuleConfigurations=rules,
        Environment={"OMP_NUM_THREADS": "1"},
    )
    assert told["TrainingJobStatus"] == "Completed"

    def has_judged() -> bool:
        (status,) = anna.describe("reported")["ProfilerRuleEvaluationStatuses"]
        return bool(status["RuleEvaluationStatus"] != "InProgress")

    eventually(has_judged, within=timedelta(seconds=60))
    for name in ("profiler-report.html", "profiler-report.ipynb"):
        stored = anna.user.client("s3").get_object(Bucket=anna.bucket, Key=f"{REPORT}/{name}")
        (tmp_path / name).write_bytes(stored["Body"].read())

    if CHROMIUM is not None:
        with start_browser(tmp_path) as browser:
            page = browser.open_page()
            page.show_as(width=1280)
            page.open(tmp_path / "profiler-report.html")
            titles = page.evaluate("[...document.querySelectorAll('h2')].map((each) => each.innerText)")
            assert {"Verdict", "Where the time of steps goes", "Rules", "Data loading", "System usage"} <= set(titles)
            assert (
                page.evaluate("JSON.parse(document.getElementById('profile-data').textContent).steps[0].steps") == 240
            )
            assert page.logged == []

    user = anna.user
    environment = {
        "AWS_ENDPOINT_URL": user.endpoint,
        "AWS_ACCESS_KEY_ID": user.access_key_id,
        "AWS_SECRET_ACCESS_KEY": user.secret_access_key,
        "AWS_REGION": user.region,
    }
    cells = code_of(json.loads((tmp_path / "profiler-report.ipynb").read_text()))
    seen = 'print("read", len(StepTimelineChart(framework_metrics).steps), "steps")'
    shown = run_cells([*cells, seen], tmp_path, environment=environment)
    assert "The job is not reached" not in shown
    assert "read 240 steps" in shown
