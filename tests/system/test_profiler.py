"""The profiler on a real yard: a training is judged while it runs and after it ended, on S3 and through the API."""

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import start_yard
from trainyard.wire.client import Client

RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"

# Waits for data in most of each step, until an object says that it has trained enough.
TRAINING = """
import os, time
import boto3
import torch
from torch import nn

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * 50
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.randn(8), index % 2

s3 = boto3.client("s3")
def has_enough():
    try:
        return os.environ["ENOUGH"] and s3.list_objects_v2(Bucket="data", Prefix=os.environ["ENOUGH"])["KeyCount"]
    except Exception:
        # The yard is being started again.
        return False
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(Slow(), batch_size=8)
print("training", flush=True)
while not has_enough():
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
print("trained", flush=True)
"""


def rule(name: str, rule: str, **parameters: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": RULES_IMAGE,
        "RuleParameters": {"rule_to_invoke": rule, **parameters},
    }


def call(user: User, operation: str, **request: Any) -> dict[str, Any]:
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        answer: dict[str, Any] = client.call("trainyard", operation, **request)
        return answer


def stream(user: User, operation: str, **request: Any) -> list[dict[str, Any]]:
    with (
        closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client,
        client.stream("trainyard", operation, **request) as lines,
    ):
        return [json.loads(line) for line in lines]


def statuses(trainee: Trainee, name: str) -> dict[str, str]:
    told = trainee.describe(name).get("ProfilerRuleEvaluationStatuses", ())
    return {each["RuleConfigurationName"]: each["RuleEvaluationStatus"] for each in told}


def settled(trainee: Trainee, name: str) -> dict[str, str]:
    """Wait until no rule of an ended job is in progress."""

    def look() -> dict[str, str]:
        found = statuses(trainee, name)
        return found if "InProgress" not in found.values() else {}

    return eventually(look, within=timedelta(seconds=60))


@pytest.mark.system
def test_a_training_is_judged_while_it_runs_and_after_it_ended_across_a_restart_of_the_yard(tmp_path: Path) -> None:
    with closing(Yards(tmp_path / "yard")) as yards:
        anna = Trainee(yards.administrator.add_user("anna")).prepare()
        # A training without data workers that waits for data at all, however busy the machine is.
        waiting = {"patience_s": "3", "wait_threshold": "0"}
        rules = [
            rule("ProfilerReport-1", "ProfilerReport", Dataloader_wait_threshold="0"),
            rule("loading", "Dataloader", **waiting),
            rule("gpus", "LowGPUUtilization"),
        ]
        stop = rule("stop", "Dataloader", **waiting, action_json=json.dumps([{"name": "stoptraining"}]))
        environment = {"OMP_NUM_THREADS": "1", "ENOUGH": "enough"}
        anna.start("waits", TRAINING, Environment=environment, ProfilerRuleConfigurations=rules)
        never = environment | {"ENOUGH": ""}
        anna.start("stopped", TRAINING, Environment=never, ProfilerRuleConfigurations=[stop])
        anna.await_line("waits", "training")
        assert statuses(anna, "waits") == {
            "ProfilerReport-1": "InProgress",
            "loading": "InProgress",
            "gpus": "InProgress",
        }

        # While it runs, the API answers at any time, and the program profiles what it is asked to.
        judged = eventually(lambda: _with_bottleneck(anna.user), within=timedelta(seconds=30)) or {}
        assert judged["Verdict"]["bottleneck"]["kind"] in ("data_loading", "reading")
        assert judged["Phases"][0]["PhaseSeconds"]["data_wait"] > judged["Phases"][0]["StepSeconds"] / 2
        asked = [call(anna.user, "ProfileJob", TrainingJobName="waits", Steps=2, ClientToken="once") for _ in range(2)]
        prefix = asked[0]["ProfilerOutput"].removeprefix("s3://data/")
        eventually(lambda: [key for key in anna.keys(prefix) if "trace.json" in key], within=timedelta(seconds=60))

        yards.restart()
        # A rule that stops the training does so; the other job learns of its findings and continues.
        assert anna.reach("stopped", "Stopped")["TrainingJobStatus"] == "Stopped"
        eventually(lambda: statuses(anna, "waits")["loading"] == "IssuesFound", within=timedelta(seconds=60))
        assert anna.describe("waits")["TrainingJobStatus"] == "InProgress"
        anna.user.client("s3").put_object(Bucket="data", Key="enough", Body=b"")
        assert anna.reach("waits", "Completed", "Failed")["TrainingJobStatus"] == "Completed"

        found = settled(anna, "waits")
        assert found == {"ProfilerReport-1": "IssuesFound", "loading": "IssuesFound", "gpus": "NoIssuesFound"}
        assert settled(anna, "stopped") == {"stop": "IssuesFound"}
        report = "out/waits/rule-output/ProfilerReport-1/profiler-output"
        assert {f"{report}/profiler-report.html", f"{report}/profiler-report.ipynb"} <= set(anna.keys(report))
        assert f"{report}/profiler-reports/Dataloader.json" in anna.keys(report)
        page = anna.user.client("s3").get_object(Bucket="data", Key=f"{report}/profiler-report.html")
        text = page["Body"].read()
        assert b"waits" in text
        # The trace of the steps that were asked for is in the report.
        assert b".pt.trace.json.gz" in text
        described = call(anna.user, "DescribeProfile", TrainingJobName="waits")
        assert described["Report"] == f"s3://data/{report}/profiler-report.html"
        assert {each["Name"]: each["Status"] for each in described["Rules"]} == found
        _check_streams(anna.user)


def _with_bottleneck(user: User) -> dict[str, Any] | None:
    profile = call(user, "DescribeProfile", TrainingJobName="waits")
    return profile if profile["Verdict"].get("bottleneck") and profile["Phases"] else None


def _check_streams(user: User) -> None:
    """The samples and the steps of the ended job can be read, whole and summarized."""
    *samples, end = stream(user, "ReadHardware", TrainingJobName="waits", Metrics=["cpu_percent"])
    assert end == {}
    assert {each["metric"] for each in samples} == {"cpu_percent"}
    assert {"total", "core0"} <= {each["device"] for each in samples}
    *summaries, _ = stream(user, "ReadHardware", TrainingJobName="waits", MaxPoints=5)
    assert all(len(each["at_us"]) == len(each["minima"]) <= 5 for each in summaries)
    *lines, end = stream(user, "ReadSteps", TrainingJobName="waits")
    assert end == {}
    rows = [each for each in lines if "facts" not in each]
    assert {each["worker"] for each in rows} == {"worker_0"}
    assert sum(sum(each["counts"]) for each in rows) > 50
    assert [each["facts"]["framework"] for each in lines if "facts" in each] == ["torch"]


class Yards:
    """A yard that can be killed and started again on the same port, which the jobs know."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._yard = start_yard(home)
        known = self._yard.credentials
        self.administrator = User(
            self._yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region
        )

    @property
    def pid(self) -> int:
        return self._yard.process.pid

    def restart(self) -> None:
        port = urlsplit(self._yard.http).port
        assert port is not None, "a yard listens on a port"
        self._yard.kill()
        self._yard = start_yard(self._home, port=port)

    def close(self) -> None:
        self._yard.stop()
