import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import TrainingPlan
from trainyard.foundation.jobs.training.transitions import advance, ask_to_stop, first_transition
from trainyard.foundation.jobs.tuning import StopCause, TrialStatus, TuningTrial
from trainyard.server.control.tuning.outcomes import (
    STOPPED_EARLY,
    TUNING_OVER,
    end_trial,
    fail_deleted_trial,
    is_fruitless,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
TRIAL = TuningTrial(1, "job-1", "", {"lr": "0.1"}, job_id="id", created_at=NOON)
PLAN = TrainingPlan("image", "ml.m5.large", 1, "role", "s3://data/out")


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def training_job(*statuses: SecondaryStatus, loss: MetricSummary | None = None) -> TrainingJob:
    job = TrainingJob("job-1", "arn", "1", "eu-west-3", PLAN, NOON, (first_transition(NOON),))
    metrics = {"loss": loss} if loss else {}
    job = replace(job, attempts=(Attempt(1, NOON, "KEY", (InstanceState("algo-1", metrics=metrics),)),))
    for number, status in enumerate(statuses, 1):
        job = advance(job, status, at=later(number))
    return job


S = SecondaryStatus
LOSS = MetricSummary(0.5, NOON, 3)


def test_a_completed_trial_has_the_last_value_and_the_times_of_its_training() -> None:
    job = training_job(S.STARTING, S.DOWNLOADING, S.TRAINING, S.COMPLETED, loss=LOSS)
    trial = end_trial(TRIAL, job, metric="loss")
    assert (trial.status, trial.objective, trial.cause, trial.why) == (TrialStatus.COMPLETED, 0.5, None, "")
    assert (trial.started_at, trial.ended_at) == (later(2), later(4))


def test_a_failed_trial_says_why_and_keeps_what_it_reported() -> None:
    job = replace(training_job(S.STARTING, S.FAILED, loss=LOSS), failure="Out of memory.")
    trial = end_trial(TRIAL, job, metric="loss")
    assert (trial.status, trial.objective, trial.why) == (TrialStatus.FAILED, 0.5, "Out of memory.")
    assert is_fruitless(trial, metric="loss")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (STOPPED_EARLY, StopCause.EARLY),
        (TUNING_OVER, StopCause.STUDY),
        ("user", StopCause.USER),
        ("rule", StopCause.RULE),
    ],
)
def test_the_stored_reason_of_a_job_says_who_stopped_its_trial(reason: str, cause: StopCause) -> None:
    job = ask_to_stop(training_job(S.STARTING, S.TRAINING, loss=LOSS), reason, at=later(3), message="For this.")
    trial = end_trial(TRIAL, advance(job, S.STOPPED, at=later(4)), metric="loss")
    assert (trial.status, trial.cause, trial.why, trial.objective) == (TrialStatus.STOPPED, cause, "For this.", 0.5)
    assert not is_fruitless(trial, metric="loss")


def test_a_trial_whose_own_time_was_over_was_stopped_by_nobody() -> None:
    job = training_job(S.STARTING, S.TRAINING, S.MAX_RUNTIME_EXCEEDED, loss=LOSS)
    trial = end_trial(TRIAL, job, metric="loss")
    assert (trial.status, trial.cause, trial.objective) == (TrialStatus.STOPPED, None, 0.5)
    assert trial.why == "Training job runtime exceeded MaxRuntimeInSeconds provided"


def test_a_trial_that_diverged_is_distinguished_from_one_that_never_reported() -> None:
    diverged = end_trial(
        TRIAL, training_job(S.STARTING, S.COMPLETED, loss=replace(LOSS, has_lapsed=True)), metric="loss"
    )
    silent = end_trial(TRIAL, training_job(S.STARTING, S.COMPLETED), metric="loss")
    assert diverged.objective is not None
    assert math.isnan(diverged.objective)
    assert silent.objective is None
    assert (is_fruitless(diverged, metric="loss"), is_fruitless(silent, metric="loss")) == (False, True)


def test_a_trial_whose_job_is_gone_has_failed() -> None:
    assert fail_deleted_trial(TRIAL, at=later(9)).status is TrialStatus.FAILED
    assert fail_deleted_trial(TRIAL, at=later(9)).ended_at == later(9)
