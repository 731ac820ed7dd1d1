import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.admin import engines as module

NODE = {"Name": "", "Slots": 2, "Cpus": 2.0, "MemoryBytes": 4 * 1024**3, "Gpus": [], "Spot": False}
LOCAL = {
    "Name": "local",
    "Capabilities": [{"Name": "isolation"}, {"Name": "images", "Reason": "the engine runs none"}],
    "Nodes": [NODE],
}
RAY = {
    "Name": "ray",
    "Capabilities": [{"Name": "isolation", "Reason": "nodes are many"}],
    "Nodes": [NODE | {"Name": "10.0.0.7", "Gpus": [0, 1], "Spot": True}],
}
RULES = [
    {"Engine": "ray", "Conditions": ["instance_type = ml.p4d.*", "tag team = vision"], "Known": True},
    {"Engine": "slurm", "Conditions": [], "Known": False},
]


@pytest.fixture
def answers() -> dict[str, Any]:
    return {"ListEngines": {"Engines": [LOCAL, RAY], "Rules": RULES}}


@pytest.fixture
def api(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    recording = RecordingApi(**answers)

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield recording

    monkeypatch.setattr(module, "open_api", calls)
    return recording


@pytest.mark.usefixtures("api")
def test_engines_are_listed_with_what_they_cannot_do_and_their_machines(trainyard: Trainyard) -> None:
    assert trainyard("engines").out.splitlines() == [
        "local (the default)",
        "  yes  isolation",
        "  no   images                          the engine runs none",
        "  this machine: 2 slots, 2 cores, 4.0 GiB memory",
        "ray",
        "  no   isolation                       nodes are many",
        "  10.0.0.7: 2 slots, 2 cores, 4.0 GiB memory, 2 GPUs, spot",
    ]
    assert [each["Name"] for each in json.loads(trainyard("engines", "--json").out)["Engines"]] == ["local", "ray"]


@pytest.mark.usefixtures("api")
def test_rules_are_listed_in_their_order_with_what_happens_to_other_jobs(trainyard: Trainyard) -> None:
    assert trainyard("engines", "rules").out.splitlines() == [
        "rule  engine  jobs",
        "1     ray     instance_type = ml.p4d.* and tag team = vision",
        "2     slurm   every job  (this yard does not have the engine and rejects such jobs)",
        "-     local   any other job, unless its tag trainyard:engine names an engine",
    ]


def test_unreadable_rules_are_reported_as_such(trainyard: Trainyard, api: RecordingApi) -> None:
    api.answers["ListEngines"] = {"Engines": [LOCAL], "Rules": [], "RulesProblem": "engines.toml is not valid TOML."}

    result = trainyard("engines", "rules")

    assert (result.code, result.out, result.err) == (1, "", "error: engines.toml is not valid TOML.\n")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Nodes": []}, "  its jobs are waiting: it has no machines at the moment"),
        (
            {"Nodes": [], "Obstacle": "The cluster does not answer."},
            "  its jobs are waiting: The cluster does not answer.",
        ),
    ],
)
def test_an_engine_that_can_place_nothing_says_that_its_jobs_wait(
    trainyard: Trainyard, api: RecordingApi, changed: dict[str, Any], said: str
) -> None:
    api.answers["ListEngines"] = {"Engines": [RAY | changed], "Rules": []}

    assert trainyard("engines").out.splitlines()[-1] == said


def test_a_check_asks_for_the_job_that_is_meant_and_tells_why(trainyard: Trainyard, api: RecordingApi) -> None:
    api.answers["QuoteJob"] = {"Engine": "ray", "EngineReason": "rule 1 of engines.toml matches"}

    said = trainyard("engines", "check", "--it", "ml.p4d.24xlarge", "--image", "mine:1", "--tag", "team", "vision")

    assert (said.out, said.err) == ("ray\n", "The job runs there because rule 1 of engines.toml matches.\n")
    assert api.only("QuoteJob") == {
        "InstanceType": "ml.p4d.24xlarge",
        "InstanceCount": 1,
        "Image": "mine:1",
        "Tags": [{"Key": "team", "Value": "vision"}],
    }
