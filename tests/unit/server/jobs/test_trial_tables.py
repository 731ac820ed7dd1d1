from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
from trainyard.server.jobs.trial_tables import MAX_TUNING_JOBS, TrialTable, TrialTables
from trainyard.server.records.contract import Records, Resource
from trainyard.server.records.sql import open_records

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
RATE = HyperparameterRange("lr", RangeKind.CONTINUOUS, 0.1, 1.0)
PLAN = TuningPlan(
    StrategyKind.RANDOM,
    (TuningDefinition("", Objective("loss", Direction.MINIMIZE), (RATE,)),),
    max_parallel=2,
    max_trials=9000,
)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


def tuning_job(records: Records, name: str = "search") -> Resource:
    job = TuningJob(name, f"arn:{name}", "123456789012", "eu-west-3", PLAN, NOON)
    return records.create(tuning.draft_of(job, {}, tags={}), now=NOON)


def add_trial(records: Records, parent: Resource, number: int, *, at: datetime = NOON) -> Resource:
    trial = TuningTrial(number, f"t-{number}", "", {"lr": "0.5"}, TrialStatus.IN_PROGRESS, created_at=at)
    return records.create(tuning.trial_draft(parent, trial), now=at)


def end(records: Records, row: Resource, *, objective: float, at: datetime) -> None:
    after = replace(tuning.trial_of(row), status=TrialStatus.COMPLETED, objective=objective, ended_at=at)
    assert records.apply(row, tuning.trial_change(after), now=at) is not None


def objectives(table: TrialTable) -> dict[int, float | None]:
    return {each.trial.number: each.trial.objective for each in table.trials}


def test_a_later_look_has_the_same_trials_but_for_those_that_changed(records: Records) -> None:
    parent, tables = tuning_job(records), TrialTables()
    first = add_trial(records, parent, 1)
    add_trial(records, parent, 2)
    before = tables.read(records, parent)
    end(records, first, objective=0.25, at=NOON + timedelta(minutes=1))
    add_trial(records, parent, 3, at=NOON + timedelta(minutes=1))
    after = tables.read(records, parent)
    assert objectives(after) == {1: 0.25, 2: None, 3: None}
    assert after.trials[1] is before.trials[1], "what did not change is not read again"
    assert after.id == before.id
    newest = max(each.change for each in before.trials)
    assert {each.trial.number for each in after.trials if each.change > newest} == {1, 3}


def test_a_trial_that_is_written_late_is_still_seen(records: Records) -> None:
    """Another process may commit a change a moment after a newer one."""
    parent, tables = tuning_job(records), TrialTables()
    add_trial(records, parent, 2, at=NOON + timedelta(seconds=1))
    tables.read(records, parent)
    add_trial(records, parent, 1, at=NOON)
    assert list(objectives(tables.read(records, parent))) == [1, 2]


def test_more_trials_than_a_page_of_the_records_are_read(records: Records) -> None:
    parent = tuning_job(records)
    for number in range(1, 1203):
        add_trial(records, parent, number)
    assert len(TrialTables().read(records, parent).trials) == 1202


def test_a_trial_is_listed_once_it_has_started_and_forgotten_if_it_never_did(records: Records) -> None:
    parent, tables = tuning_job(records), TrialTables()
    add_trial(records, parent, 1)
    planned = [TuningTrial(number, f"t-{number}", "", {"lr": "0.5"}, created_at=NOON) for number in (2, 3)]
    row = records.create(tuning.trial_draft(parent, planned[0]), now=NOON)
    table = tables.read(records, parent)
    assert (list(objectives(table)), table.planned) == ([1], planned[0])
    started = replace(planned[0], status=TrialStatus.IN_PROGRESS)
    assert records.apply(row, tuning.trial_change(started), now=NOON + timedelta(seconds=1)) is not None
    table = tables.read(records, parent)
    assert (list(objectives(table)), table.planned) == ([1, 2], None)
    row = records.create(tuning.trial_draft(parent, planned[1]), now=NOON + timedelta(seconds=1))
    assert tables.read(records, parent).planned == planned[1]
    records.delete(row, now=NOON + timedelta(seconds=2))
    ended = replace(tuning.job_of(parent), planned=2, status=TuningStatus.STOPPED)
    over = records.apply(parent, tuning.change_to(parent, ended), now=NOON)
    assert over is not None
    assert tables.read(records, over).planned is None


def test_only_the_tuning_jobs_that_were_viewed_last_stay_in_memory(records: Records) -> None:
    tables, jobs = TrialTables(), [tuning_job(records, f"job-{number}") for number in range(MAX_TUNING_JOBS + 1)]
    for job in jobs:
        add_trial(records, job, 1)
    first = tables.read(records, jobs[0])
    for job in jobs[1:]:
        tables.read(records, job)
    again = tables.read(records, jobs[0])
    assert objectives(again) == objectives(first)
    assert again.id != first.id
