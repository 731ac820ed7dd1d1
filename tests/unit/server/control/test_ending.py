from dataclasses import replace

import pytest

from tests.unit.foundation.jobs import placed, seconds
from trainyard.foundation.jobs import Outcome, SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance, ask_to_stop
from trainyard.server.control.ending import conclude, has_ended, has_failed, lost

S = SecondaryStatus


def ended(job: TrainingJob, *outcomes: Outcome, reason: str = "") -> TrainingJob:
    attempt = job.attempts[0]
    for number, outcome in enumerate(outcomes):
        state = replace(attempt.instances[number], outcome=outcome, reason=reason, ended_at=seconds(10 + number))
        attempt = attempt.with_instance(state)
    return job.with_attempt(attempt)


def training(*, instances: int = 1) -> TrainingJob:
    return advance(placed(instances=instances), S.TRAINING, at=seconds(1))


@pytest.mark.parametrize(
    ("outcomes", "final"),
    [
        ((Outcome.COMPLETED, Outcome.COMPLETED), S.COMPLETED),
        ((Outcome.COMPLETED, Outcome.FAILED), S.FAILED),
        ((Outcome.LOST, Outcome.STOPPED), S.FAILED),
        ((Outcome.STOPPED, Outcome.COMPLETED), S.STOPPED),
    ],
)
def test_the_outcomes_of_the_instances_decide(outcomes: tuple[Outcome, ...], final: SecondaryStatus) -> None:
    assert conclude(ended(training(instances=2), *outcomes), now=seconds(99)).secondary is final


def test_a_job_that_was_asked_to_stop_is_stopped_also_when_it_was_done() -> None:
    stopping = ask_to_stop(training(), "user", at=seconds(2))
    assert conclude(ended(stopping, Outcome.COMPLETED), now=seconds(99)).secondary is S.STOPPED


def test_time_that_ran_out_is_a_stop_of_its_own() -> None:
    assert (
        conclude(ended(training(), Outcome.STOPPED, reason="max_runtime"), now=seconds(9)).secondary
        is S.MAX_RUNTIME_EXCEEDED
    )


def test_the_job_ends_with_its_last_instance() -> None:
    job = conclude(ended(training(instances=2), Outcome.COMPLETED, Outcome.COMPLETED), now=seconds(99))
    assert job.ended_at == job.attempts[0].ended_at == seconds(11)


def test_a_lost_instance_has_ended_and_failed() -> None:
    job = lost(training(), "algo-1", at=seconds(5))
    assert has_ended(job.attempts[0])
    assert has_failed(job.attempts[0])
    assert job.failure.startswith("InternalServerError: The agent of algo-1 died")


def test_the_reason_of_the_first_failure_stays() -> None:
    job = replace(training(instances=2), failure="out of memory")
    assert lost(job, "algo-2", at=seconds(5)).failure == "out of memory"
