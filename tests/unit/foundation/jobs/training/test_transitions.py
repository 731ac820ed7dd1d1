from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending, placed, seconds
from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs.status import FINAL, PRIMARY, SecondaryStatus, Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import (
    LEGAL,
    MAX_WAIT,
    MESSAGES,
    advance,
    ask_to_stop,
    give_up,
    interrupt,
    may_become,
)

S = SecondaryStatus
ON_THE_WAY = (S.STARTING, S.DOWNLOADING, S.TRAINING, S.UPLOADING)
ENDS = {status for status, primary in PRIMARY.items() if primary in FINAL}


def test_the_tables_know_every_status() -> None:
    assert LEGAL.keys() == MESSAGES.keys() == PRIMARY.keys() - {S.PROCESSING} == set(SecondaryStatus) - {S.PROCESSING}


def test_no_way_leads_out_of_a_final_status_and_every_other_leads_on() -> None:
    for status, ways in LEGAL.items():
        assert (PRIMARY[status] in FINAL) == (not ways)


def test_the_primary_status_never_goes_backwards() -> None:
    order = [Status.IN_PROGRESS, Status.STOPPING, *FINAL]
    for status, ways in LEGAL.items():
        for to in ways:
            assert order.index(PRIMARY[to]) >= order.index(PRIMARY[status])


@pytest.mark.parametrize(("place", "status"), list(enumerate(ON_THE_WAY)))
def test_a_job_with_a_place_may_skip_what_lies_ahead_lose_its_place_be_stopped_or_end(
    place: int, status: SecondaryStatus
) -> None:
    assert LEGAL[status] == {*ON_THE_WAY[place + 1 :], S.INTERRUPTED, S.RESTARTING, S.STOPPING} | ENDS


@pytest.mark.parametrize("status", [S.PENDING, S.INTERRUPTED, S.RESTARTING])
def test_a_job_without_a_place_may_get_one_or_be_stopped_or_fail_and_ends_in_no_other_way(
    status: SecondaryStatus,
) -> None:
    towards_a_place = {
        S.PENDING: {S.STARTING},
        S.INTERRUPTED: {S.RESTARTING},
        S.RESTARTING: {S.STARTING, S.INTERRUPTED},
    }
    assert LEGAL[status] == towards_a_place[status] | {S.STOPPING, S.FAILED}


def test_a_job_that_was_asked_to_stop_ends_in_any_way_but_completed() -> None:
    assert LEGAL[S.STOPPING] == ENDS - {S.COMPLETED}


def test_every_job_begins_by_waiting_for_capacity() -> None:
    [first] = pending().transitions
    assert (first.status, first.started_at, first.ended_at) == (S.PENDING, NOON, None)
    assert first.message == "Waiting for capacity"


def test_a_step_closes_the_one_before_it() -> None:
    job = advance(pending(), S.STARTING, at=seconds(3))
    before, last = job.transitions
    assert before.ended_at == last.started_at == seconds(3)
    assert last.ended_at is None
    assert last.message == "Preparing the instances for training"


def test_a_final_step_ends_as_it_begins() -> None:
    job = advance(pending(), S.FAILED, at=seconds(3))
    assert job.transitions[-1].ended_at == seconds(3)
    assert job.ended_at == seconds(3)


def test_a_way_that_the_table_does_not_know_is_a_conflict() -> None:
    assert not may_become(pending(), S.UPLOADING)
    with pytest.raises(Conflict, match='Training job "mnist" is Pending and cannot become Uploading'):
        advance(pending(), S.UPLOADING, at=NOON)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    job = advance(placed(), S.TRAINING, at=seconds(5))
    job = advance(job, S.UPLOADING, at=seconds(2))
    assert job.transitions[-1].started_at == seconds(5)


def test_a_job_that_was_never_placed_is_stopped_at_once() -> None:
    job = ask_to_stop(pending(), "user", at=seconds(1))
    assert [step.status for step in job.transitions] == [S.PENDING, S.STOPPING, S.STOPPED]


def test_a_job_that_was_placed_is_on_its_way_to_its_end() -> None:
    job = ask_to_stop(placed(), "user", at=seconds(1))
    assert (job.status, job.stop_reason) == (Status.STOPPING, "user")
    assert job.transitions[-1].message == "Stopping the training job"
    assert ask_to_stop(job, "again", at=seconds(2)) == job


def test_a_job_that_has_ended_cannot_be_stopped() -> None:
    with pytest.raises(Conflict):
        ask_to_stop(advance(pending(), S.FAILED, at=NOON), "user", at=NOON)


def test_the_only_way_back_is_a_restart() -> None:
    order = [S.PENDING, S.STARTING, S.DOWNLOADING, S.TRAINING, S.UPLOADING, S.INTERRUPTED, S.RESTARTING, S.STOPPING]
    back = {
        (status, to)
        for status in order
        for to in LEGAL[status]
        if to in order and order.index(to) < order.index(status)
    }
    assert back == {(S.RESTARTING, S.STARTING), (S.RESTARTING, S.INTERRUPTED)}


def test_a_job_that_is_being_restarted_can_be_stopped() -> None:
    job = ask_to_stop(advance(placed(), S.RESTARTING, at=seconds(1)), "user", at=seconds(2))
    assert (job.status, job.secondary) == (Status.STOPPING, S.STOPPING)


def test_a_job_gives_up_waiting_when_its_time_is_over_and_not_before() -> None:
    waiting = pending()
    waiting = replace(waiting, plan=replace(waiting.plan, max_pending_s=1800))
    assert give_up(waiting, at=seconds(1799)) == waiting
    job = give_up(waiting, at=seconds(1800))
    assert [step.status for step in job.transitions] == [S.PENDING, S.STOPPING, S.STOPPED]
    assert job.stop_reason == "max_pending"
    for step in job.transitions[1:]:
        assert step.started_at == seconds(1800)
        assert step.message == "Training job pending time exceeded MaxPendingTimeInSeconds provided"
    assert give_up(job, at=seconds(9999)) == job


def test_a_job_without_a_limit_or_with_a_place_waits_no_more() -> None:
    assert give_up(pending(), at=seconds(10**6)) == pending()
    running = placed()
    running = replace(running, plan=replace(running.plan, max_pending_s=1800))
    assert give_up(running, at=seconds(10**6)) == running


def waiting_for_a_place() -> TrainingJob:
    job = placed()
    job = replace(job, plan=replace(job.plan, is_spot=True, max_wait_s=100))
    job = job.with_attempt(replace(job.attempts[0], ended_at=seconds(10)))
    return advance(job, S.INTERRUPTED, at=seconds(10))


def test_an_interrupted_job_starts_again_through_restarting() -> None:
    job = waiting_for_a_place()
    assert job.status is Status.IN_PROGRESS
    assert not may_become(job, S.STARTING)
    job = advance(advance(job, S.RESTARTING, at=seconds(20)), S.STARTING, at=seconds(21))
    assert job.status is Status.IN_PROGRESS


def test_an_interrupted_job_is_stopped_at_once() -> None:
    job = ask_to_stop(waiting_for_a_place(), "user", at=seconds(20))
    assert [step.status for step in job.transitions][-3:] == [S.INTERRUPTED, S.STOPPING, S.STOPPED]


def test_a_spot_job_gives_up_when_it_took_too_long_waiting_or_running() -> None:
    waits = waiting_for_a_place()
    assert give_up(waits, at=seconds(99.9)) == waits
    over = give_up(waits, at=seconds(100))
    assert (over.status, over.secondary) == (Status.STOPPED, S.MAX_WAIT_TIME_EXCEEDED)
    assert over.ended_at == seconds(100)
    assert over.stop_reason == "max_wait"
    runs = replace(placed(), plan=waits.plan)
    stopping = give_up(runs, at=seconds(100))
    assert (stopping.secondary, stopping.stop_reason) == (S.STOPPING, MAX_WAIT)
    assert give_up(stopping, at=seconds(101)) == stopping
    assert give_up(over, at=seconds(101)) == over


def test_an_interruption_is_for_jobs_with_a_place_and_the_first_reason_stays() -> None:
    job = interrupt(placed(), "first")
    assert job.attempts[-1].interruption == "first"
    assert interrupt(job, "second") == job
    assert interrupt(pending(), "why") == pending()
    stopping = ask_to_stop(placed(), "user", at=seconds(1))
    assert interrupt(stopping, "why") == stopping
