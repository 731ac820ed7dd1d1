from dataclasses import replace
from datetime import timedelta

from tests.unit.foundation.jobs import pending, placed, seconds
from trainyard.foundation.jobs import MetricSummary, SecondaryStatus, TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.foundation.transitions import advance

S = SecondaryStatus


def test_a_job_survives_being_remembered() -> None:
    job = advance(placed(instances=3), S.TRAINING, at=seconds(4)).noted("a note")
    assert from_plain(TrainingJob, to_plain(job)) == job


def test_training_time_is_from_the_download_to_the_end() -> None:
    job = advance(placed(), S.DOWNLOADING, at=seconds(2))
    assert (job.training_started_at, job.training_time) == (seconds(2), None)
    job = advance(advance(job, S.TRAINING, at=seconds(3)), S.COMPLETED, at=seconds(9))
    assert job.training_time == timedelta(seconds=7)


def test_a_job_that_never_reached_an_instance_has_no_training_time() -> None:
    job = advance(pending(), S.FAILED, at=seconds(9))
    assert (job.training_started_at, job.training_time) == (None, None)


def test_an_attempt_that_has_ended_does_not_go_on() -> None:
    job = placed()
    assert pending().attempt is None
    assert job.attempt == job.attempts[0]
    assert job.with_attempt(replace(job.attempts[0], ended_at=seconds(1))).attempt is None


def test_the_newest_value_of_all_instances_is_the_metric_of_the_job() -> None:
    job = placed(instances=2)
    first, second = job.attempts[0].instances
    early, late = MetricSummary(1.0, seconds(1), 3), MetricSummary(0.5, seconds(2), 4)
    attempt = job.attempts[0].with_instance(replace(first, metrics={"loss": late}))
    attempt = attempt.with_instance(replace(second, metrics={"loss": early}))
    assert job.with_attempt(attempt).metrics == {"loss": MetricSummary(0.5, seconds(2), 7)}


def test_a_note_is_told_once() -> None:
    assert pending().noted("a").noted("b", "a").notes == ("a", "b")
