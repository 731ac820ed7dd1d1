import pytest

from tests.unit.foundation.jobs import NOON, pending, placed, seconds
from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs import FINAL, PRIMARY, SecondaryStatus, Status
from trainyard.foundation.transitions import LEGAL, MESSAGES, advance, ask_to_stop, may_become

S = SecondaryStatus


def test_the_tables_know_every_status() -> None:
    assert LEGAL.keys() == MESSAGES.keys() == PRIMARY.keys() == set(SecondaryStatus)


def test_no_way_leads_out_of_a_final_status_and_every_other_leads_on() -> None:
    for status, ways in LEGAL.items():
        assert (PRIMARY[status] in FINAL) == (not ways)


def test_the_primary_status_never_goes_backwards() -> None:
    order = [Status.IN_PROGRESS, Status.STOPPING, *FINAL]
    for status, ways in LEGAL.items():
        for to in ways:
            assert order.index(PRIMARY[to]) >= order.index(PRIMARY[status])


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
    assert ask_to_stop(job, "again", at=seconds(2)) == job


def test_a_job_that_has_ended_cannot_be_stopped() -> None:
    with pytest.raises(Conflict):
        ask_to_stop(advance(pending(), S.FAILED, at=NOON), "user", at=NOON)
