from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import placed, seconds
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, OutcomeKind
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import MAX_WAIT, advance, ask_to_stop, interrupt
from trainyard.server.control.instances.attempt_end import (
    awaits_cause,
    can_retry,
    finish_job,
    has_ended,
    has_failed,
    mark_lost,
    requeue_interrupted,
    retry_job,
    was_interrupted,
)

S = SecondaryStatus


def ended(job: TrainingJob, *outcomes: OutcomeKind, reason: str = "") -> TrainingJob:
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
        ((OutcomeKind.COMPLETED, OutcomeKind.COMPLETED), S.COMPLETED),
        ((OutcomeKind.COMPLETED, OutcomeKind.FAILED), S.FAILED),
        ((OutcomeKind.LOST, OutcomeKind.STOPPED), S.FAILED),
        ((OutcomeKind.STOPPED, OutcomeKind.COMPLETED), S.STOPPED),
    ],
)
def test_the_outcomes_of_the_instances_decide(outcomes: tuple[OutcomeKind, ...], final: SecondaryStatus) -> None:
    assert finish_job(ended(training(instances=2), *outcomes), now=seconds(99)).secondary is final


def test_a_job_that_was_asked_to_stop_is_stopped_also_when_it_was_done() -> None:
    stopping = ask_to_stop(training(), "user", at=seconds(2))
    assert finish_job(ended(stopping, OutcomeKind.COMPLETED), now=seconds(99)).secondary is S.STOPPED


def test_an_instance_that_fails_because_the_others_were_stopped_does_not_fail_the_job() -> None:
    stopping = replace(ask_to_stop(training(instances=2), "user", at=seconds(2)), failure="closed", card={"kind": "x"})
    job = finish_job(ended(stopping, OutcomeKind.STOPPED, OutcomeKind.FAILED), now=seconds(99))
    assert (job.secondary, job.failure, job.card) == (S.STOPPED, "", {})


@pytest.mark.parametrize(("outcome", "asked_at"), [(OutcomeKind.FAILED, 12), (OutcomeKind.LOST, 2)])
def test_an_instance_that_had_failed_before_the_stop_or_was_lost_fails_the_job(
    outcome: OutcomeKind, asked_at: int
) -> None:
    stopping = replace(ask_to_stop(training(instances=2), "user", at=seconds(asked_at)), failure="no such file")
    job = finish_job(ended(stopping, OutcomeKind.STOPPED, outcome), now=seconds(99))
    assert (job.secondary, job.failure) == (S.FAILED, "no such file")


def test_an_instance_alone_that_fails_after_the_stop_fails_the_job() -> None:
    stopping = ask_to_stop(training(), "user", at=seconds(2))
    assert finish_job(ended(stopping, OutcomeKind.FAILED), now=seconds(99)).secondary is S.FAILED


@pytest.mark.parametrize(("card", "final"), [({"is_consequence": True}, S.MAX_RUNTIME_EXCEEDED), ({}, S.FAILED)])
def test_time_that_ran_out_first_on_another_instance_explains_a_lost_connection_only(
    card: dict[str, object], final: SecondaryStatus
) -> None:
    job = replace(
        ended(training(instances=2), OutcomeKind.STOPPED, OutcomeKind.FAILED, reason="max_runtime"), card=card
    )
    assert finish_job(job, now=seconds(99)).secondary is final


def test_time_that_ran_out_is_a_stop_of_its_own() -> None:
    assert (
        finish_job(ended(training(), OutcomeKind.STOPPED, reason="max_runtime"), now=seconds(9)).secondary
        is S.MAX_RUNTIME_EXCEEDED
    )


def test_the_job_ends_with_its_last_instance() -> None:
    job = finish_job(ended(training(instances=2), OutcomeKind.COMPLETED, OutcomeKind.COMPLETED), now=seconds(99))
    assert job.ended_at == job.attempts[0].ended_at == seconds(11)


def test_a_lost_instance_has_ended_and_failed() -> None:
    job = mark_lost(training(), "algo-1", at=seconds(5))
    assert has_ended(job.attempts[0])
    assert has_failed(job.attempts[0])
    assert job.failure.startswith("InternalServerError: The agent of algo-1 died")


def test_a_failure_before_the_stop_stays_the_reason() -> None:
    job = replace(training(instances=2), failure="out of memory", card={"kind": "out of memory"})
    told = job.with_attempt(replace(job.attempts[0], told="kill"))
    after = mark_lost(told, "algo-2", at=seconds(5))
    assert (after.failure, after.card["kind"]) == ("out of memory", "out of memory")


def test_a_failure_together_with_a_loss_is_caused_by_the_loss() -> None:
    job = replace(training(instances=2), failure="connection reset by algo-2", card={"kind": "user error"})
    after = mark_lost(job, "algo-2", at=seconds(5))
    assert after.failure.startswith("InternalServerError: The agent of algo-2 died")
    assert after.card["kind"] == "lost instance"


def test_of_two_losses_the_first_is_the_reason() -> None:
    job = mark_lost(mark_lost(training(instances=2), "algo-1", at=seconds(5)), "algo-2", at=seconds(5))
    assert "algo-1" in job.failure


def with_retries(job: TrainingJob, count: int, *, max_runtime_s: int = 86400) -> TrainingJob:
    return replace(job, plan=replace(job.plan, retries=count, max_runtime_s=max_runtime_s))


def another(job: TrainingJob, at: float) -> Attempt:
    return Attempt(len(job.attempts) + 1, seconds(at), "ASIANEXT", (InstanceState("algo-1"),))


def test_a_lost_job_is_tried_again_as_often_as_it_may_be() -> None:
    job = mark_lost(with_retries(training(), 1), "algo-1", at=seconds(5))
    assert can_retry(job, now=seconds(6))
    again = retry_job(job, another(job, 6))
    assert (again.secondary, again.failure, again.card) == (S.RESTARTING, "", {})
    assert again.retries_used == 1
    first = again.attempts[0]
    assert first.ended_at == seconds(5)
    assert first.failure.startswith("InternalServerError")
    assert first.card["kind"] == "lost instance"
    step = again.transitions[-1]
    assert step.message == "Attempt 1 was lost. Retry 1 of 1 starts the job again."
    assert again.notes == (f"{step.message} {first.failure}",)
    lost_again = mark_lost(advance(again, S.STARTING, at=seconds(8)), "algo-1", at=seconds(9))
    assert not can_retry(lost_again, now=seconds(10))


def test_a_job_without_retries_is_not_tried_again() -> None:
    assert not can_retry(mark_lost(training(), "algo-1", at=seconds(5)), now=seconds(6))


@pytest.mark.parametrize("kind", ["user error", "out of memory", "disk full", "bad input data", ""])
def test_a_failure_of_the_program_is_never_tried_again(kind: str) -> None:
    job = ended(with_retries(training(), 30), OutcomeKind.FAILED)
    assert not can_retry(replace(job, failure="boom", card={"kind": kind}), now=seconds(20))


def test_a_failure_of_the_agent_is_tried_again() -> None:
    job = ended(with_retries(training(), 30), OutcomeKind.FAILED)
    assert can_retry(replace(job, failure="boom", card={"kind": "internal error"}), now=seconds(20))


def test_a_job_that_was_asked_to_stop_is_not_tried_again() -> None:
    stopping = ask_to_stop(with_retries(training(), 3), "user", at=seconds(2))
    assert not can_retry(mark_lost(stopping, "algo-1", at=seconds(5)), now=seconds(6))


def test_the_time_limit_is_for_all_attempts_together() -> None:
    job = mark_lost(with_retries(training(), 3, max_runtime_s=10), "algo-1", at=seconds(11))
    assert not can_retry(job, now=seconds(12))
    assert can_retry(with_retries(job, 3, max_runtime_s=11), now=seconds(12))


@pytest.mark.parametrize(
    ("outcomes", "reason", "gives_way"),
    [
        ((OutcomeKind.STOPPED, OutcomeKind.STOPPED), "interrupted", True),
        ((OutcomeKind.STOPPED, OutcomeKind.COMPLETED), "interrupted", True),
        ((OutcomeKind.COMPLETED, OutcomeKind.COMPLETED), "", False),
        ((OutcomeKind.STOPPED, OutcomeKind.FAILED), "interrupted", True),
        ((OutcomeKind.COMPLETED, OutcomeKind.FAILED), "", False),
        ((OutcomeKind.LOST, OutcomeKind.STOPPED), "interrupted", True),
        ((OutcomeKind.STOPPED, OutcomeKind.STOPPED), "max_runtime", False),
        ((), "", True),
    ],
)
def test_instances_that_gave_way_are_distinguished_from_those_that_ended(
    outcomes: tuple[OutcomeKind, ...], reason: str, gives_way: bool
) -> None:
    job = ended(training(instances=2), *outcomes, reason=reason)
    assert not was_interrupted(job)
    assert was_interrupted(interrupt(job, "because")) is gives_way


def test_a_job_that_is_asked_to_stop_does_not_give_way() -> None:
    stopping = ask_to_stop(interrupt(training(), "because"), "user", at=seconds(2))
    assert not was_interrupted(ended(stopping, OutcomeKind.STOPPED, reason="interrupted"))


def test_nothing_is_left_of_an_interrupted_attempt_but_its_place_in_history() -> None:
    job = mark_lost(interrupt(training(), "because"), "algo-1", at=seconds(5))
    after = requeue_interrupted(job, now=seconds(6))
    assert (after.secondary, after.failure, after.card, after.attempt) == (S.INTERRUPTED, "", {}, None)
    assert (after.attempts[0].ended_at, after.attempts[0].interruption) == (seconds(5), "because")
    assert after.notes == ("Attempt 1 was interrupted: because",)
    assert after.time_used.total_seconds() == 4


def test_a_job_that_waited_and_ran_too_long_says_so_at_its_end() -> None:
    stopping = ask_to_stop(training(), MAX_WAIT, at=seconds(2))
    job = finish_job(ended(stopping, OutcomeKind.STOPPED, reason=MAX_WAIT), now=seconds(20))
    assert job.secondary is S.MAX_WAIT_TIME_EXCEEDED


def test_one_that_lost_its_connection_is_not_the_cause_until_the_others_had_time_to_tell() -> None:
    job = ended(training(instances=2), OutcomeKind.FAILED)
    assert not awaits_cause(job, now=seconds(11))
    job = replace(job, failure="reset", card={"is_consequence": True})
    assert awaits_cause(job, now=seconds(12))
    assert not awaits_cause(job, now=seconds(14))
