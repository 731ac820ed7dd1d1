from tests.profiles import job
from trainyard.insight.rules.profiler.patience import Patience

RUNNING, ENDED = job(100, is_running=True), job(100)


def test_a_running_job_is_judged_after_some_seconds() -> None:
    patience = Patience(0, 60.0)
    assert "trained for 59 s" in patience.missing(RUNNING, 590, seconds=59)
    assert patience.missing(RUNNING, 600, seconds=60) == ""


def test_a_job_that_has_ended_is_judged_by_what_there_is() -> None:
    patience = Patience(0, 60.0)
    assert patience.missing(ENDED, 10, seconds=5) == ""
    assert "There are 9 samples" in patience.missing(ENDED, 9, seconds=4)


def test_steps_make_up_for_few_samples() -> None:
    assert Patience(0, 60.0).missing(ENDED, 2, seconds=2, steps=200) == ""
    assert Patience(0, 60.0).missing(ENDED, 2, seconds=2, steps=5) != ""


def test_datapoints_that_a_user_asks_for_must_be_exceeded() -> None:
    patience = Patience(50, 0.0)
    assert "judges from 51 on" in patience.missing(ENDED, 50, seconds=500, steps=1000)
    assert patience.missing(ENDED, 51, seconds=1) == ""
