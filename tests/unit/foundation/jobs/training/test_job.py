from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.unit.foundation.sample_jobs import pending, placed, seconds
from trainyard.foundation.jobs.attempts import MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import Bill, TrainingJob, bill_of
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.foundation.plain import from_plain, to_plain

S = SecondaryStatus


def test_a_job_survives_being_remembered() -> None:
    job = advance(placed(instances=3), S.TRAINING, at=seconds(4)).with_notes("a note")
    assert from_plain(TrainingJob, to_plain(job)) == job


def test_training_time_is_from_the_download_to_the_end() -> None:
    job = advance(placed(), S.DOWNLOADING, at=seconds(2))
    assert (job.started_at, job.training_time) == (seconds(2), None)
    job = advance(advance(job, S.TRAINING, at=seconds(3)), S.COMPLETED, at=seconds(9))
    assert job.training_time == timedelta(seconds=7)


def test_a_job_that_never_reached_an_instance_has_no_training_time() -> None:
    job = advance(pending(), S.FAILED, at=seconds(9))
    assert (job.started_at, job.training_time) == (None, None)


def test_an_ended_attempt_does_not_continue() -> None:
    job = placed()
    assert pending().attempt is None
    assert job.attempt == job.attempts[0]
    assert job.with_attempt(replace(job.attempts[0], ended_at=seconds(1))).attempt is None


def test_the_newest_value_of_all_instances_is_the_metric_of_the_job() -> None:
    job = placed(instances=2)
    first, second = job.attempts[0].instances
    early = MetricSummary(1.0, seconds(1), 3, lowest=0.4, highest=1.0)
    late = MetricSummary(0.5, seconds(2), 4, lowest=0.5, highest=2.0)
    attempt = job.attempts[0].with_instance(replace(first, metrics={"loss": late}))
    attempt = attempt.with_instance(replace(second, metrics={"loss": early}))
    merged = MetricSummary(0.5, seconds(2), 7, lowest=0.4, highest=2.0)
    assert job.with_attempt(attempt).metrics == {"loss": merged}


def test_a_note_is_kept_once() -> None:
    assert pending().with_notes("a").with_notes("b", "a").notes == ("a", "b")


def test_training_time_is_that_of_all_attempts_and_not_of_the_time_between() -> None:
    job = advance(placed(), S.TRAINING, at=seconds(2))
    first = replace(job.attempts[0], ended_at=seconds(10), failure="lost")
    second = replace(job.attempts[0], number=2, placed_at=seconds(20))
    job = advance(replace(job, attempts=(first, second)), S.RESTARTING, at=seconds(20))
    assert (job.time_used, job.training_time, job.retries_used) == (timedelta(seconds=8), None, 1)
    job = advance(advance(job, S.STARTING, at=seconds(21)), S.DOWNLOADING, at=seconds(25))
    job = advance(job.with_attempt(replace(second, ended_at=seconds(30))), S.COMPLETED, at=seconds(30))
    assert job.training_time == timedelta(seconds=13)
    assert job.started_at == seconds(2)


def test_an_attempt_that_never_got_to_work_takes_no_time() -> None:
    job = placed()
    first = replace(job.attempts[0], ended_at=seconds(5), failure="lost")
    second = replace(job.attempts[0], number=2, placed_at=seconds(6))
    job = advance(replace(job, attempts=(first, second)), S.RESTARTING, at=seconds(6))
    job = advance(advance(job, S.STARTING, at=seconds(7)), S.TRAINING, at=seconds(8))
    job = advance(job.with_attempt(replace(second, ended_at=seconds(9))), S.COMPLETED, at=seconds(9))
    assert job.training_time == timedelta(seconds=1)


def test_metrics_continue_across_attempts() -> None:
    job = placed()
    state = job.attempts[0].instances[0]
    early, late = MetricSummary(1.0, seconds(1), 3), MetricSummary(0.5, seconds(2), 4)
    first = job.attempts[0].with_instance(replace(state, metrics={"loss": early, "rate": early}))
    second = replace(job.attempts[0].with_instance(replace(state, metrics={"loss": late})), number=2)
    job = replace(job, attempts=(first, second))
    assert job.metrics == {"loss": MetricSummary(0.5, seconds(2), 7), "rate": early}


def ended(at: datetime, *, billed_share: float = 1.0) -> TrainingJob:
    job = advance(placed(), SecondaryStatus.TRAINING, at=seconds(1))
    job = replace(job, plan=replace(job.plan, billed_share=billed_share))
    job = job.with_attempt(replace(job.attempts[-1], ended_at=at))
    return advance(job, SecondaryStatus.COMPLETED, at=at)


@pytest.mark.parametrize(
    ("share", "bill"), [(1.0, Bill(100, 100)), (0.3, Bill(100, 30)), (0.0, Bill(100, 0)), (0.001, Bill(100, 1))]
)
def test_spot_seconds_are_billed_by_their_price(share: float, bill: Bill) -> None:
    assert bill_of(ended(seconds(101), billed_share=share)) == bill


def test_a_begun_second_is_a_second() -> None:
    assert bill_of(ended(seconds(1.2))) == Bill(1, 1)
    assert bill_of(ended(seconds(2.2))) == Bill(2, 2)


def test_a_job_that_still_runs_or_never_started_has_no_billable_time() -> None:
    assert bill_of(placed()) is None
    assert bill_of(advance(pending(), SecondaryStatus.FAILED, at=seconds(1))) is None
