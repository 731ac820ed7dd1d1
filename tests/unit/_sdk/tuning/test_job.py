from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import NOON, TRIALS, description, trial
from trainyard._sdk.training.stream import RECONNECT_LIMIT_S
from trainyard._sdk.tuning.job import TuningJobHandle, detached_message
from trainyard.exceptions import UnexpectedStatusException
from trainyard.foundation.errors import Unavailable
from trainyard.session import Session
from trainyard.wire.client import CallFailed


class Yard:
    """A yard with a new state of the tuning job and its training jobs at each poll."""

    def __init__(self, *looks: tuple[str, list[dict[str, Any]]] | Exception) -> None:
        self._looks = list(looks)
        self.listings = 0
        self.api = RecordingApi(
            DescribeHyperParameterTuningJob=self._describe, ListTrainingJobsForHyperParameterTuningJob=self._list
        )

    def _describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Exception):
            raise look
        status, self._trials = look
        ended = sum(each["TrainingJobStatus"] != "InProgress" for each in self._trials)
        counters = {"Completed": ended, "InProgress": len(self._trials) - ended}
        return description(status, TrainingJobStatusCounters=counters)

    def _list(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.listings += 1
        assert asked["SortBy"] == "CreationTime"
        found = self._trials[::-1] if asked["SortOrder"] == "Descending" else self._trials
        begin = int(asked.get("NextToken", 0))
        page = {"TrainingJobSummaries": found[begin : begin + 2]}
        return page | ({"NextToken": str(begin + 2)} if len(found) > begin + 2 else {})


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


def ended(yard: Yard) -> list[str]:
    time = Time()
    found = TuningJobHandle(yard.api, "study").ended_trials(pause=time.pause, clock=time.clock)
    return [each["TrainingJobName"][6:9] for each in found]


def test_each_training_job_is_reported_once_when_it_has_ended() -> None:
    running = trial(2, None, "InProgress")
    yard = Yard(
        ("InProgress", [trial(1, None, "InProgress")]),
        ("InProgress", [trial(1, 0.5), running]),
        ("InProgress", [trial(1, 0.5), running, trial(3, 0.1)]),
        ("Completed", [trial(1, 0.5), trial(2, 0.2), trial(3, 0.1)]),
    )
    assert ended(yard) == ["001", "003", "002"]


def test_nothing_is_listed_while_nothing_has_ended() -> None:
    running = [trial(1, None, "InProgress")]
    yard = Yard(("InProgress", running), ("InProgress", running), ("Stopped", running))
    assert ended(yard) == []
    assert yard.listings == 0


def test_training_jobs_beyond_the_first_page_are_found() -> None:
    yard = Yard(("Completed", [trial(number, 0.5) for number in range(1, 6)]))
    assert ended(yard) == ["001", "002", "003", "004", "005"]
    assert yard.listings == 3


def test_all_training_jobs_come_in_the_order_in_which_they_were_made() -> None:
    at_once = [trial(number, 0.5, CreationTime=NOON) for number in (6, 5)]
    yard = Yard(("Completed", [*TRIALS[::-1], *at_once]))
    job = TuningJobHandle(yard.api, "study")
    job.describe()
    assert [each["TrainingJobName"][6:9] for each in job.trials()] == ["005", "006", "001", "002", "003", "004"]


def test_a_yard_that_restarts_is_waited_for() -> None:
    away = [Unavailable("Nothing listens there."), CallFailed("InternalFailure", "Not now.", status=503)]
    assert ended(Yard(*away, ("Completed", [trial(1, 0.5)]))) == ["001"]


def test_a_yard_that_stays_away_is_not_waited_for_without_end() -> None:
    time = Time()
    job = TuningJobHandle(Yard(Unavailable("Nothing listens there.")).api, "study")
    with pytest.raises(Unavailable, match="`trainyard tune watch study` follows the job again"):
        list(job.ended_trials(pause=time.pause, clock=time.clock))
    assert RECONNECT_LIMIT_S <= time.now_s <= RECONNECT_LIMIT_S + 2


def test_waiting_shows_each_training_job_and_the_best_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    api = RecordingApi(
        DescribeHyperParameterTuningJob=description(BestTrainingJob=TRIALS[1]),
        ListTrainingJobsForHyperParameterTuningJob={"TrainingJobSummaries": list(TRIALS)},
    )

    TuningJobHandle(api, "study").wait()

    assert capsys.readouterr().out.splitlines() == [
        "1/4  Completed  acc 0.5  layers=1 lr=0.01235 opt=adam  1.0 s  new best",
        "2/4  Completed  acc 0.9  layers=2 lr=0.01235 opt=adam  2.0 s  new best",
        "3/4  Stopped  acc 0.7  layers=3 lr=0.01235 opt=adam  3.0 s  best 0.9",
        "4/4  Failed  AlgorithmError: no memory  layers=4 lr=0.01235 opt=adam  4.0 s  best 0.9",
        'Tuning job "study" is Completed; training jobs: 2 completed, 1 stopped, 1 failed.',
        "best: study-002-0123abcd with acc 0.9",
        "  layers  2",
        "  lr      0.012345",
        "  opt     adam",
    ]


def test_a_tuning_job_that_failed_raises_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    told = description("Failed", FailureReason="All training jobs failed: no memory", TrainingJobStatusCounters={})
    api = RecordingApi(DescribeHyperParameterTuningJob=told)
    with pytest.raises(UnexpectedStatusException, match='"study" is Failed') as raised:
        TuningJobHandle(api, "study").wait(logs=False)
    assert "All training jobs failed: no memory" in str(raised.value)
    assert raised.value.actual_status == "Failed"
    assert capsys.readouterr().out == ""


def test_stopping_one_that_has_ended_is_no_error() -> None:
    def refuse(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("ValidationException", "It is Completed.", status=400)

    api = RecordingApi(StopHyperParameterTuningJob=refuse, DescribeHyperParameterTuningJob=description())
    TuningJobHandle(api, "study").stop()
    api.answers["DescribeHyperParameterTuningJob"] = description("InProgress")
    with pytest.raises(CallFailed, match="It is Completed"):
        TuningJobHandle(api, "study").stop()


def test_a_user_who_leaves_learns_how_to_come_back() -> None:
    assert "`trainyard tune watch study` follows it, `trainyard tune stop study`" in detached_message("study")


def test_a_session_has_tuning_jobs_by_their_names() -> None:
    api = RecordingApi(DescribeHyperParameterTuningJob=description(TrainingJobStatusCounters={}))
    session = Session(api=api)
    session.stop_tuning_job("study")
    assert api.only("StopHyperParameterTuningJob") == {"HyperParameterTuningJobName": "study"}
    assert session.wait_for_tuning_job("study") == session.describe_tuning_job("study")
