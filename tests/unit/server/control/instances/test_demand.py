"""What training jobs ask of the scheduler."""

from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import pending, placed, seconds
from tests.unit.server.control.bench import Bench
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import advance, ask_to_stop, interrupt
from trainyard.server.control.instances.demand import PREEMPTED, allocation_of, demand_of, is_leaving
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceId


@pytest.mark.parametrize(
    ("job", "leaves"),
    [
        (placed(), False),
        (pending(), True),
        (interrupt(placed(), "because"), True),
        (ask_to_stop(placed(), "user", at=seconds(1)), True),
        (advance(placed(), SecondaryStatus.TRAINING, at=seconds(1)), False),
        (advance(placed(), SecondaryStatus.UPLOADING, at=seconds(1)), True),
    ],
    ids=["placed", "waiting", "interrupted", "stopping", "training", "uploading"],
)
def test_a_job_is_leaving_when_its_allocation_will_soon_be_free_anyway(job: TrainingJob, leaves: bool) -> None:
    assert is_leaving(job) is leaves


def test_a_job_is_interrupted_once_and_not_while_it_ends() -> None:
    once = interrupt(placed(), "first")
    assert once.attempts[-1].interruption == "first"
    assert interrupt(once, "second") == once
    stopping = ask_to_stop(placed(), "user", at=seconds(1))
    assert interrupt(stopping, "late") == stopping
    ended = replace(placed(), attempts=(replace(placed().attempts[0], ended_at=seconds(1)),))
    assert interrupt(ended, "late") == ended


def test_the_request_of_a_job_has_its_engine_and_types(bench: Bench) -> None:
    resource = bench.create()
    request = bench.work.scheduler.jobs[KIND].request_of(resource)
    assert (request.id, request.kind, request.engine) == (resource.id, KIND, bench.job().plan.engine)
    assert [each.name for each in request.demand.types] == list(bench.job().plan.instance_types)


def test_a_type_that_the_catalog_does_not_have_is_an_invalid_request(bench: Bench) -> None:
    job = pending()
    with pytest.raises(InvalidRequest, match=r"ml\.unknown\.large"):
        demand_of(replace(job, plan=replace(job.plan, instance_type="ml.unknown.large")), bench.work.catalog)


def test_only_a_job_that_stays_has_a_lasting_allocation(bench: Bench) -> None:
    bench.start()
    jobs = bench.work.scheduler.jobs[KIND]
    assert jobs.lasting_allocation(bench.resource()) == allocation_of(bench.job())
    jobs.preempt(bench.resource().id)
    assert bench.job().attempts[-1].interruption == PREEMPTED
    assert jobs.lasting_allocation(bench.resource()) is None


def test_preempting_a_job_that_is_gone_does_nothing(bench: Bench) -> None:
    bench.work.scheduler.jobs[KIND].preempt(ResourceId("gone"))
