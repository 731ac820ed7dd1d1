from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending, seconds
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import ProfilerPlan, RulePlan
from trainyard.server.jobs.profile_evaluations import (
    KIND,
    ensure_evaluation,
    evaluation_of,
    evaluations_of,
    is_evaluation_of,
    key_of_job,
    kind_at,
)
from trainyard.server.records.contract import Query, Records
from trainyard.server.records.sql import open_records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


def profiled(**changed: object) -> TrainingJob:
    job = pending()
    rules = (RulePlan("report", "ProfilerReport"),)
    plan = replace(job.plan, profiler=ProfilerPlan("s3://data/profiles", rules=rules))
    return replace(job, plan=plan, **changed)  # type: ignore[arg-type] # members of a job


def test_a_job_has_an_evaluation_only_with_rules() -> None:
    without = replace(pending(), plan=replace(pending().plan, profiler=ProfilerPlan("s3://data/profiles")))
    assert evaluations_of(pending()) == evaluations_of(without) == []
    (draft,) = evaluations_of(profiled())
    assert draft.key.kind == KIND
    assert draft.due_at is not None
    assert draft.due_at > NOON


def test_yards_that_share_a_database_evaluate_their_own_jobs() -> None:
    (draft,) = evaluations_of(profiled(site="gpu-box:/yard"))
    assert draft.key.kind == kind_at("gpu-box:/yard") != kind_at("")


def test_an_evaluation_belongs_to_one_job_of_its_name(records: Records) -> None:
    job = profiled()
    (draft,) = evaluations_of(job)
    resource = records.create(draft, now=NOON)
    assert key_of_job(resource).name == job.name
    assert is_evaluation_of(evaluation_of(resource), job)
    assert not is_evaluation_of(evaluation_of(resource), replace(job, created_at=seconds(1)))


def test_rules_that_come_later_have_one_evaluation_too(records: Records) -> None:
    for _ in range(2):
        ensure_evaluation(records, profiled(), now=seconds(60))
    assert len(records.find(Query(KIND)).resources) == 1
    assert records.first_due(KIND, now=seconds(60)) is None
    assert records.first_due(KIND, now=seconds(70)) is not None
