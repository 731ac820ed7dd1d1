import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli import interrupt as module
from trainyard.wire.client import CallFailed


@pytest.mark.parametrize("wrong", [("--every", "0"), ("--every", "soon"), ("--every", "1", "--times", "0")])
def test_times_that_are_none_are_refused(trainyard: Trainyard, wrong: tuple[str, ...]) -> None:
    assert trainyard("interrupt", "mnist", *wrong).code == 2


def test_help_shows_how_to_interrupt_again_and_again(trainyard: Trainyard) -> None:
    assert "trainyard interrupt mnist-1 --every 60 --seed 7" in trainyard("interrupt", "-h").out


@pytest.mark.parametrize(("is_spot", "status"), [(False, "InProgress"), (True, "Completed")])
def test_a_job_that_cannot_be_interrupted_is_refused_before_its_time_has_come(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch, is_spot: bool, status: str
) -> None:
    described = {"TrainingJobName": "mnist", "EnableManagedSpotTraining": is_spot, "TrainingJobStatus": status}

    def refuse(_: Any) -> dict[str, Any]:
        raise CallFailed("ValidationException", "It cannot be.", status=400)

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield RecordingApi(DescribeTrainingJob=described, InterruptJob=refuse)

    monkeypatch.setattr(module, "calls", calls)
    said = trainyard("interrupt", "mnist", "--every", "3600")
    assert said.code == 1
    assert "It cannot be." in said.err
