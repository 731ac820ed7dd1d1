import json
from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit._sdk.training.test_comparison import description
from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi


@pytest.fixture
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(request: dict[str, Any]) -> dict[str, Any]:
        name = request["TrainingJobName"]
        parameters = {"lr": "0.5" if name == "b" else "0.1", "epochs": "3"}
        return description(name, HyperParameters=parameters)

    api = RecordingApi(DescribeTrainingJob=describe)
    monkeypatch.setattr("trainyard.cli.jobs.compare.open_api", lambda _: nullcontext(api))


@pytest.mark.usefixtures("_jobs")
def test_only_what_differs_is_shown(trainyard: Trainyard) -> None:
    assert trainyard("compare", "a", "b", "c").out.splitlines() == [
        "               a    b    c",
        "parameter  lr  0.1  0.5  0.1",
    ]
    assert "epochs" in trainyard("compare", "a", "b", "--all").out
    shown = json.loads(trainyard("compare", "a", "b", "--json").out)
    assert shown == {"Jobs": ["a", "b"], "Facts": [{"Kind": "parameter", "Name": "lr", "Values": ["0.1", "0.5"]}]}


@pytest.mark.usefixtures("_jobs")
def test_equal_jobs_are_said_to_be_the_same(trainyard: Trainyard) -> None:
    result = trainyard("compare", "a", "c")
    assert (result.code, result.out) == (0, "")
    assert "do not differ" in result.err


def test_one_job_is_a_usage_error(trainyard: Trainyard) -> None:
    result = trainyard("compare", "a")
    assert (result.code, "Give at least two jobs." in result.err) == (2, True)
