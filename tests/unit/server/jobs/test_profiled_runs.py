from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import give_up
from trainyard.server.jobs.profiled_runs import MAX_RUNS, base_name, find_earlier_runs, store_run
from trainyard.server.jobs.training import draft_of
from trainyard.server.records.contract import Records, ResourceId
from trainyard.server.records.sql import open_records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("mnist", "mnist"),
        ("mnist-7", "mnist"),
        ("pytorch-tb-profiling-12-2026-07-01-12-00-00-123", "pytorch-tb-profiling"),
        ("pytorch-training-260701-1200", "pytorch-training"),
        ("search-007-0a1b2c3d", "search"),
        ("2026", "2026"),
        ("resnet-50x", "resnet-50x"),
    ],
)
def test_the_base_name_is_what_runs_of_the_same_job_share(name: str, base: str) -> None:
    assert base_name(name) == base


def ran(records: Records, name: str, minute: int, **plan: Any) -> tuple[TrainingJob, ResourceId]:
    """Store a job that was created at a minute, and the run that ended with it a minute later."""
    at = NOON + timedelta(minutes=minute)
    job = replace(pending(), name=name, arn=f"arn:{name}", created_at=at)
    job = replace(job, plan=replace(job.plan, **plan))
    job_id = records.create(draft_of(job, {}, tags={}), now=at).id
    last = replace(job.transitions[-1], started_at=at + timedelta(minutes=1))
    ended = give_up(replace(job, stop_reason="user", transitions=(*job.transitions[:-1], last)), at=last.started_at)
    store_run(records, ended, job_id, {"job": name}, now=at + timedelta(minutes=1))
    return job, job_id


def earlier(records: Records, job: TrainingJob, job_id: ResourceId) -> list[str]:
    return [run["job"] for run in find_earlier_runs(records, job, job_id)]


def test_the_last_runs_of_the_same_job_are_found_newest_first(records: Records) -> None:
    for number in range(MAX_RUNS + 2):
        last = ran(records, f"net-{number}", 10 * number)
    assert earlier(records, *last) == [f"net-{number}" for number in range(MAX_RUNS, 0, -1)]


def test_jobs_with_another_name_script_or_instance_type_are_others(records: Records) -> None:
    ran(records, "other-1", 0)
    ran(records, "net-1", 10, entry_point="other.py")
    ran(records, "net-2", 20, instance_type="ml.g5.xlarge")
    ran(records, "net-3", 30)
    assert earlier(records, *ran(records, "net-4", 40)) == ["net-3"]


def test_trials_are_not_compared_with(records: Records) -> None:
    ran(records, "net-1", 0, environment={CHANGES_VARIABLE: "{}"})
    ran(records, "net-2", 10, environment={STEPS_VARIABLE: "50"})
    assert earlier(records, *ran(records, "net-3", 20)) == []


def test_runs_that_ended_later_are_not_earlier(records: Records) -> None:
    first = ran(records, "net-1", 0)
    ran(records, "net-2", 10)
    assert earlier(records, *first) == []


def test_a_run_is_stored_once_and_deleted_with_its_job(records: Records) -> None:
    job, job_id = ran(records, "net-1", 0)
    store_run(records, job, job_id, {"job": "net-1"}, now=NOON + timedelta(minutes=1))
    second = ran(records, "net-2", 10)
    assert earlier(records, *second).count("net-1") >= 1
    records.delete(records.load_by_id(job_id), now=NOON)
    assert earlier(records, *second) == []
    store_run(records, job, job_id, {"job": "net-1"}, now=NOON)
    assert earlier(records, *second) == []
