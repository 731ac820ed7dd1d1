import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.jobs import spot as module
from trainyard.cli.jobs.spot import spot_table
from trainyard.cli.terminal.tables import table_lines
from trainyard.wire.client import CallFailed

USE: dict[str, Any] = {
    "InstanceType": "ml.m5.large",
    "Jobs": 12,
    "Interruptions": 3,
    "MedianResumeInSeconds": 1.24,
    "WorstResumeInSeconds": 75.4,
    "TrainingTimeInSeconds": 4000,
    "BillableTimeInSeconds": 1200,
    "SavingInPercent": 70.0,
    "Saved": 0.0894,
}


def spot_lines(found: dict[str, Any], *, shows_price: bool = True) -> list[str]:
    table = spot_table(found, shows_price=shows_price)
    return list(table_lines(table.columns, table.rows))


def test_one_type_is_a_line_without_a_sum() -> None:
    head, line = spot_lines({"Types": [USE], "Total": USE | {"InstanceType": "*"}})
    assert head.split() == [
        "type",
        "jobs",
        "interruptions",
        "median",
        "resume",
        "longest",
        "training",
        "billed",
        "saved",
        "in",
        "dollars",
    ]
    assert line.split() == ["ml.m5.large", "12", "3", "1.2", "s", "1:15", "1:06:40", "20:00", "70%", "$0.0894"]


def test_without_prices_there_are_no_dollars() -> None:
    assert "$" not in "".join(spot_lines({"Types": [USE], "Total": USE}, shows_price=False))


def test_several_types_have_a_sum_below() -> None:
    never = {"InstanceType": "ml.p3.2xlarge", "Jobs": 1, "Interruptions": 0, "Saved": 0.0}
    never |= {"TrainingTimeInSeconds": 0, "BillableTimeInSeconds": 0}
    *_, own, total = spot_lines({"Types": [USE, never], "Total": USE | {"InstanceType": "*", "Jobs": 13}})
    assert own.split() == ["ml.p3.2xlarge", "1", "0", "-", "-", "0", "s", "0", "s", "-", "$0.00"]
    assert total.split()[:2] == ["all", "13"]


def test_before_the_first_spot_job_the_command_says_how_to_start_one(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"Types": [], "Total": {"InstanceType": "*", "Jobs": 0}}

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield RecordingApi(DescribeSpot=nothing)

    monkeypatch.setattr(module, "open_api", calls)
    said = trainyard("spot")
    assert (said.code, said.out) == (0, "")
    assert "`trainyard run SCRIPT --use-spot-instances`" in said.err


@pytest.mark.parametrize("wrong", [("--every", "0"), ("--every", "soon"), ("--every", "1", "--times", "0")])
def test_invalid_times_are_refused(trainyard: Trainyard, wrong: tuple[str, ...]) -> None:
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

    monkeypatch.setattr(module, "open_api", calls)
    said = trainyard("interrupt", "mnist", "--every", "3600")
    assert said.code == 1
    assert "It cannot be." in said.err
