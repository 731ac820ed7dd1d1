from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import NOON, seconds
from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.processing.job import MAX_EXIT_MESSAGE, ProcessingJob
from trainyard.foundation.jobs.processing.plan import ProcessingPlan
from trainyard.foundation.jobs.processing.statuses import LEGAL, MESSAGES
from trainyard.foundation.jobs.status import FINAL, PRIMARY, SecondaryStatus, Status
from trainyard.foundation.jobs.transitions import advance, ask_to_stop, first_transition

S = SecondaryStatus


def waiting() -> ProcessingJob:
    plan = ProcessingPlan("image", "ml.m5.large", 2, role="Role")
    history = (first_transition(MESSAGES, NOON),)
    return ProcessingJob("clean", "arn:clean", "111111111111", "us-east-1", plan, NOON, history)


def processing(*messages: str) -> ProcessingJob:
    instances = tuple(InstanceState(f"algo-{n}", message=text) for n, text in enumerate(messages or ("", ""), 1))
    job = replace(waiting(), attempts=(Attempt(1, NOON, "ASIAKEY", instances),))
    for number, status in enumerate((S.STARTING, S.DOWNLOADING, S.PROCESSING)):
        job = advance(job, status, at=seconds(number))
    return job


def test_the_tables_know_every_status_that_a_job_can_reach() -> None:
    reachable = {S.PENDING, *(status for ways in LEGAL.values() for status in ways)}
    assert LEGAL.keys() == MESSAGES.keys() == reachable
    assert all(not ways for status, ways in LEGAL.items() if PRIMARY[status] in FINAL)


@pytest.mark.parametrize("to", sorted(set(LEGAL) - LEGAL[S.PROCESSING]))
def test_an_illegal_transition_is_a_conflict_that_names_the_kind_of_job(to: SecondaryStatus) -> None:
    with pytest.raises(Conflict, match='Processing job "clean" is Processing and cannot become'):
        advance(processing(), to, at=NOON)


def test_a_running_job_that_is_asked_to_stop_ends_as_stopped_and_never_as_completed() -> None:
    stopping = ask_to_stop(processing(), "user", at=seconds(5))
    assert (stopping.status, stopping.stop_reason, stopping.started_at) == (Status.STOPPING, "user", seconds(1))
    assert advance(stopping, S.STOPPED, at=seconds(6)).ended_at == seconds(6)
    with pytest.raises(Conflict):
        advance(stopping, S.COMPLETED, at=seconds(6))
    assert ask_to_stop(waiting(), "user", at=NOON).status is Status.STOPPED


def test_the_messages_of_all_instances_are_joined_and_cut() -> None:
    assert processing("one, ", "two").exit_message == "one, two"
    assert len(processing("x" * MAX_EXIT_MESSAGE, "two").exit_message) == MAX_EXIT_MESSAGE
    assert waiting().exit_message == ""
