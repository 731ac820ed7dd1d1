from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperparameterRange,
    Objective,
    RangeKind,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningJob,
    TuningPlan,
    TuningStatus,
    TuningTrial,
)
from trainyard.server.jobs import tuning
from trainyard.server.records.contract import Records, Resource
from trainyard.server.records.sql import open_records

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
RATE = HyperparameterRange("lr", RangeKind.CONTINUOUS, 0.1, 1.0)
PLAN = TuningPlan(
    StrategyKind.RANDOM,
    (TuningDefinition("", Objective("loss", Direction.MINIMIZE), (RATE,)),),
    max_parallel=2,
    max_trials=9,
)
JOB = TuningJob("Tune", "arn", "123456789012", "eu-west-3", PLAN, NOON)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def parent(records: Records) -> Resource:
    return records.create(tuning.draft_of(JOB, {"asked": "so"}, tags={}), now=NOON)


def test_a_tuning_job_is_stored_completely_and_found_in_any_case(records: Records, parent: Resource) -> None:
    found = records.load(tuning.tuning_key(JOB.account, "tUNE"))
    assert found == parent
    assert tuning.job_of(found) == JOB
    assert tuning.request_of(found) == {"asked": "so"}


def test_only_a_new_status_counts_as_a_modification_and_makes_an_event(records: Records, parent: Resource) -> None:
    counted = replace(JOB, planned=3)
    assert tuning.change_to(parent, counted).is_quiet
    assert tuning.events_of(JOB, counted) == []
    over = replace(JOB, status=TuningStatus.COMPLETED, stop_reason="All were begun.")
    assert not tuning.change_to(parent, over).is_quiet
    assert tuning.change_to(parent, over).is_settling
    (event,) = tuning.events_of(JOB, over)
    assert event.body == {"status": "Completed", "reason": "All were begun."}


def test_the_name_of_a_trial_depends_only_on_its_tuning_job_and_number() -> None:
    name = tuning.trial_name("Tune", "id-1", 7)
    assert name == tuning.trial_name("Tune", "id-1", 7)
    assert name.startswith("Tune-007-")
    assert len(tuning.trial_name("x" * 32, "id-1", 10_000)) <= 63
    assert name != tuning.trial_name("Tune", "id-2", 7), "a tuning job of the same name that was deleted had others"


def test_trials_come_by_number_across_pages(
    records: Records, parent: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_PAGE", 2)
    for number in (3, 1, 5, 2, 4):
        status = TrialStatus.COMPLETED if number % 2 else TrialStatus.IN_PROGRESS
        trial = TuningTrial(number, f"job-{number}", "", {"lr": "0.5"}, status)
        assert records.create(tuning.trial_draft(parent, trial), now=NOON).key == tuning.trial_key(parent, number)
    assert [tuning.trial_of(each).number for each in tuning.trials_of(records, parent.id)] == [1, 2, 3, 4, 5]
    running = tuning.trials_of(records, parent.id, status=TrialStatus.IN_PROGRESS)
    assert [tuning.trial_of(each).number for each in running] == [2, 4]


def test_trials_are_deleted_with_their_tuning_job(records: Records, parent: Resource) -> None:
    records.create(tuning.trial_draft(parent, TuningTrial(1, "job-1", "", {})), now=NOON)
    records.delete(parent, now=NOON)
    assert list(tuning.trials_of(records, parent.id)) == []
