"""Training jobs as the records store them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.sagemaker.rules import rule
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.server.jobs.instance_jobs import priority_of, queue_state, release_of
from trainyard.server.jobs.training import change_to, draft_of, events_of, job_of, outline_of
from trainyard.server.records.contract import Priority, QueueState


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


def test_an_outline_has_everything_that_lists_show_and_no_attempts(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().end("failed", reason="The program ended with exit code 1.")
    assert bench.turn(claim, times=2) is None
    whole, outline = job_of(bench.resource()), outline_of(bench.resource())

    for member in ("name", "arn", "created_at", "status", "secondary", "ended_at", "plan"):
        assert getattr(outline, member) == getattr(whole, member)
    assert whole.ended_at is not None
    assert whole.attempts
    assert not outline.attempts


def test_the_outline_of_a_job_that_keeps_a_warm_pool_is_the_whole_job(bench: Bench) -> None:
    bench.start()
    job = bench.job()
    kept = replace(job, plan=replace(job.plan, keep_alive_s=60))
    resource = bench.resource()
    changed = replace(resource, body=change_to(resource, kept).body or {})

    assert outline_of(changed) == kept


@pytest.mark.parametrize(("is_spot", "priority"), [(False, Priority.ON_DEMAND), (True, Priority.SPOT)])
@pytest.mark.parametrize("year", [2026, 2040])
def test_a_new_job_waits_since_its_creation_with_the_priority_of_its_capacity(
    bench: Bench, is_spot: bool, priority: Priority, year: int
) -> None:
    created = job_of(bench.create())
    plan = replace(created.plan, is_spot=is_spot, engine="ray")
    job = replace(created, plan=plan, site="here", created_at=created.created_at.replace(year=year))
    draft = draft_of(job, {}, tags={})
    assert (draft.state, draft.priority, draft.due_at) == (QueueState.WAITING, priority, job.created_at)
    assert draft.queue == "here/ray"
    assert priority_of(job) == priority


def test_a_job_is_placed_while_it_has_an_attempt_and_is_unqueued_when_it_has_ended(bench: Bench) -> None:
    claim = bench.start()
    placed = bench.job()
    waiting = replace(placed, attempts=())
    bench.agent().end("failed", reason="The program ended with exit code 1.")
    assert bench.turn(claim, times=2) is None
    ended = bench.job()

    states = (QueueState.WAITING, QueueState.PLACED, QueueState.UNQUEUED)
    for job, state in zip((waiting, placed, ended), states, strict=True):
        change, release = change_to(bench.resource(), job), release_of(job)
        assert queue_state(job) == change.state == release.state == state
        assert change.due_at == release.due_at == job.created_at
        assert change.is_settling == release.is_settling == (job is ended)
        assert release.is_quiet


def test_those_who_follow_a_job_are_told_what_its_profiler_rules_find(bench: Bench) -> None:
    bench.start(ProfilerRuleConfigurations=[rule("ProfilerReport"), rule("BatchSize")])
    before, at = bench.job(), bench.watch()
    found = RuleState("BatchSize", RuleStatus.ISSUES_FOUND, at, details="Small.", findings=({"message": "Small."},))
    after = replace(before, profiler_rules=(found,))

    (event,) = events_of(before, after)

    assert (event.kind, event.body["rule"], event.body["status"]) == ("training-job.rule", "BatchSize", "IssuesFound")
    assert event.body["findings"] == [{"message": "Small."}]
    assert events_of(after, after) == []


def test_a_job_of_an_earlier_version_can_be_read(bench: Bench) -> None:
    bench.start()
    resource = bench.resource()
    plain = resource.body["job"]
    plan = {name: value for name, value in plain["plan"].items() if name != "profiler"}
    job = job_of(replace(resource, body={**resource.body, "job": {**plain, "plan": plan}}))

    assert job.plan.profiler is None
    assert job == replace(bench.job(), plan=replace(bench.job().plan, profiler=None))
