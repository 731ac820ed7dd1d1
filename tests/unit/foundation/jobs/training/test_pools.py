from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.foundation.sample_jobs import pending, placed, seconds
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import PoolEnd, TrainingJob
from trainyard.foundation.jobs.training.pools import Pool, PoolStatus, pool_of
from trainyard.foundation.jobs.training.transitions import advance

S = SecondaryStatus


def kept(job: TrainingJob, keep_s: int = 60) -> TrainingJob:
    return replace(job, plan=replace(job.plan, keep_alive_s=keep_s))


def ended(status: SecondaryStatus = S.COMPLETED, *, keep_s: int = 60, kind: str = "user error") -> TrainingJob:
    """A job that ended ten seconds after noon."""
    job = advance(kept(placed(), keep_s), S.TRAINING, at=seconds(1))
    return advance(replace(job, card={"kind": kind}), status, at=seconds(10))


def test_a_job_that_asked_for_none_or_never_started_has_no_pool() -> None:
    assert pool_of(ended(keep_s=0), now=seconds(11)) is None
    assert pool_of(kept(pending()), now=seconds(11)) is None


def test_a_pool_is_in_use_while_its_job_runs() -> None:
    assert pool_of(kept(placed()), now=seconds(11)) == Pool(PoolStatus.IN_USE)


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED, S.STOPPED, S.MAX_RUNTIME_EXCEEDED])
def test_a_pool_is_available_for_its_time_however_the_program_ended(status: SecondaryStatus) -> None:
    job = ended(status)
    assert pool_of(job, now=seconds(10)) == Pool(PoolStatus.AVAILABLE, timedelta())
    assert pool_of(job, now=seconds(69)) == Pool(PoolStatus.AVAILABLE, timedelta(seconds=59))
    assert pool_of(job, now=seconds(70)) == Pool(PoolStatus.TERMINATED, timedelta(seconds=60))
    assert pool_of(job, now=seconds(7000)) == Pool(PoolStatus.TERMINATED, timedelta(seconds=60))


@pytest.mark.parametrize("kind", ["lost instance", "internal error"])
def test_a_machine_that_failed_leaves_no_pool(kind: str) -> None:
    assert pool_of(ended(S.FAILED, kind=kind), now=seconds(11)) == Pool(PoolStatus.TERMINATED, timedelta())


def test_a_job_of_which_nothing_was_started_leaves_no_pool() -> None:
    job = ended(S.STOPPED)
    unstarted = replace(job, attempts=tuple(replace(attempt, is_started=False) for attempt in job.attempts))
    assert pool_of(unstarted, now=seconds(11)) == Pool(PoolStatus.TERMINATED, timedelta())


def test_a_pool_ends_when_another_job_takes_it_over_or_its_user_says_so() -> None:
    taken = replace(ended(), pool_end=PoolEnd(seconds(30), "next"))
    assert pool_of(taken, now=seconds(31)) == Pool(PoolStatus.REUSED, timedelta(seconds=20), "next")
    given_up = replace(ended(keep_s=0), pool_end=PoolEnd(seconds(15)))
    assert pool_of(given_up, now=seconds(99)) == Pool(PoolStatus.TERMINATED, timedelta(seconds=5))


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert pool_of(ended(), now=seconds(5)) == Pool(PoolStatus.AVAILABLE, timedelta())
