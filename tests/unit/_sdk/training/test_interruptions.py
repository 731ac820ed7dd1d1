from datetime import timedelta
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.interruptions import POLL_S, interrupt, interruptions
from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule
from trainyard.wire.client import CallFailed


class Story:
    """A job that trains for a while in each attempt and waits for a moment after each interruption."""

    def __init__(self, *, needs_s: float, away_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.needs_s, self.away_s = needs_s, away_s
        self.steps = ["Training"]
        self.away_until_s: float | None = None
        self.interrupted_at: list[float] = []

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        if self.away_until_s is None:
            self.needs_s -= seconds
        elif self.now_s >= self.away_until_s:
            self.steps += ["Restarting", "Training"]
            self.away_until_s = None

    def describe(self, _: Any) -> dict[str, Any]:
        is_over = self.needs_s <= 0
        return {
            "TrainingJobStatus": "Completed" if is_over else "InProgress",
            "SecondaryStatus": "Completed" if is_over else self.steps[-1],
            "SecondaryStatusTransitions": [{"Status": step} for step in self.steps],
        }

    def interrupt(self, _: Any) -> dict[str, Any]:
        self.interrupted_at.append(self.now_s)
        self.steps.append("Interrupted")
        self.away_until_s = self.now_s + self.away_s
        return {}

    def play(self, schedule: InterruptionSchedule) -> list[int]:
        api = RecordingApi(DescribeTrainingJob=self.describe, InterruptJob=self.interrupt)
        found = interruptions(api, "mnist", schedule, pause=self.pause, clock=lambda: self.now_s)
        return [each.attempt for each in found]


def test_each_attempt_trains_as_long_as_the_schedule_says() -> None:
    schedule, story = InterruptionSchedule(3, timedelta(seconds=5), most=3), Story(needs_s=60)
    assert story.play(schedule) == [1, 2, 3]
    times = [schedule.after(attempt) for attempt in (1, 2, 3)]
    expected = 0.0
    for at, time in zip(story.interrupted_at, times, strict=True):
        assert time is not None
        expected += time.total_seconds()
        assert at == pytest.approx(expected, abs=2 * POLL_S)
        expected = at + story.away_s
    assert story.needs_s <= 0, "it is left alone afterwards, until it has ended"


def test_a_job_that_ends_first_is_not_interrupted() -> None:
    assert Story(needs_s=0.1).play(InterruptionSchedule(3, timedelta(hours=9))) == []


def refuse(code: str) -> RecordingApi:
    def answer(_: Any) -> dict[str, Any]:
        raise CallFailed(code, "no", status=409)

    return RecordingApi(InterruptJob=answer)


def test_a_job_that_is_leaving_by_itself_is_let_go() -> None:
    assert not interrupt(refuse("ConflictException"), "mnist")
    with pytest.raises(CallFailed):
        interrupt(refuse("ValidationException"), "mnist")
