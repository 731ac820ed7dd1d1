from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.following import LONGEST_WAIT_S, PATIENCE_S, Ended, JobLogs, LogLine, StatusChanged, follow, instance_of
from trainyard.foundation.errors import Unavailable
from trainyard.wire.client import CallFailed

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Time:
    """A clock that goes on only when someone waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.waits_s.append(seconds)


def description(status: str, *transitions: str) -> dict[str, Any]:
    told = [{"Status": name, "StatusMessage": f"is {name}", "StartTime": NOON} for name in transitions]
    return {"TrainingJobName": "job", "TrainingJobStatus": status, "SecondaryStatusTransitions": told}


def one_by_one(answers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from answers
    while True:
        yield answers[-1]


class Streams:
    """Log streams whose lines come in pages; a token is how many lines were read."""

    def __init__(self, **lines: list[str]) -> None:
        self.lines = {f"job/{name.replace('_', '-')}-17": texts for name, texts in lines.items()}

    def describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"logStreams": [{"logStreamName": name} for name in self.lines]}

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = self.lines[asked["logStreamName"]]
        start = int(asked.get("nextToken", 0)) if asked["startFromHead"] else max(len(lines) - asked["limit"], 0)
        page = lines[start : start + 2]
        events = [{"timestamp": 1000, "message": text} for text in page]
        return {"events": events, "nextForwardToken": str(start + len(page))}

    def api(self, *descriptions: dict[str, Any]) -> RecordingApi:
        told = one_by_one(list(descriptions))
        return RecordingApi(
            DescribeTrainingJob=lambda asked: next(told), DescribeLogStreams=self.describe, GetLogEvents=self.read
        )


def test_statuses_lines_and_the_end_come_in_the_order_of_a_life() -> None:
    streams, time = Streams(algo_1=["one", "two", "three"]), Time()
    api = streams.api(
        description("InProgress", "Starting"),
        description("InProgress", "Starting", "Training"),
        description("Completed", "Starting", "Training", "Completed"),
    )

    events = list(follow(api, "job", logs=JobLogs(api, "job"), pause=time.pause, clock=time.clock))

    kinds = [event.status if isinstance(event, StatusChanged) else type(event).__name__ for event in events]
    assert kinds == ["Starting", "LogLine", "LogLine", "LogLine", "Training", "Completed", "Ended"]
    assert [event.text for event in events if isinstance(event, LogLine)] == ["one", "two", "three"]
    last = events[-1]
    assert isinstance(last, Ended)
    assert last.description["TrainingJobStatus"] == "Completed"


def test_the_last_lines_come_before_the_end() -> None:
    streams, time = Streams(algo_1=[]), Time()
    api = streams.api(description("InProgress", "Training"), description("Failed", "Training", "Failed"))
    following = follow(api, "job", logs=JobLogs(api, "job"), pause=time.pause, clock=time.clock)
    next(following)
    streams.lines["job/algo-1-17"].append("dying words")

    assert [type(event) for event in following] == [LogLine, StatusChanged, Ended]


def test_a_line_is_read_once_however_often_one_asks() -> None:
    streams = Streams(algo_1=["a"], algo_2=["b"])
    logs = JobLogs(streams.api(), "job")

    assert [(line.instance, line.text) for line in logs.read()] == [("algo-1", "a"), ("algo-2", "b")]
    assert list(logs.read()) == []
    streams.lines["job/algo-2-17"].append("c")
    assert [line.text for line in logs.read()] == ["c"]


def test_one_may_begin_with_the_last_lines() -> None:
    streams = Streams(algo_1=["a", "b", "c"])
    logs = JobLogs(streams.api(), "job")

    assert [line.text for line in logs.read_last(2)] == ["b", "c"]
    streams.lines["job/algo-1-17"].append("d")
    assert [line.text for line in logs.read()] == ["d"]


def test_one_may_begin_at_the_end() -> None:
    streams = Streams(algo_1=["a"])
    logs = JobLogs(streams.api(), "job")

    assert list(logs.read_last(0)) == []
    assert list(logs.read()) == []


def test_a_flood_of_one_instance_lets_the_others_speak() -> None:
    streams = Streams(algo_1=["line"] * 100, algo_2=["b"])
    logs = JobLogs(streams.api(), "job")

    assert [line.instance for line in logs.read(pages=1)] == ["algo-1", "algo-1", "algo-2"]
    assert len(list(logs.read())) == 98


def test_a_job_without_logs_yet_has_no_lines() -> None:
    def missing(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("ResourceNotFoundException", "no group", status=400)

    assert list(JobLogs(RecordingApi(DescribeLogStreams=missing), "job").read()) == []


def test_the_wait_grows_in_silence_and_shrinks_with_news() -> None:
    time = Time()
    silent = [description("InProgress", "Training")] * 20
    api = Streams().api(*silent, description("Completed", "Training", "Completed"))

    list(follow(api, "job", logs=JobLogs(api, "job"), pause=time.pause, clock=time.clock))

    assert time.waits_s == sorted(time.waits_s)
    assert time.waits_s[0] < 0.1
    assert time.waits_s[-1] == LONGEST_WAIT_S
    assert all(wait <= 0.1 + 0.6 * sum(time.waits_s[:index]) for index, wait in enumerate(time.waits_s))


def test_a_yard_that_restarts_is_waited_for() -> None:
    time = Time()
    answers = iter([Unavailable("gone")] * 3)

    def describe(asked: dict[str, Any]) -> dict[str, Any]:
        for error in answers:
            raise error
        return description("Completed", "Completed")

    api = RecordingApi(DescribeTrainingJob=describe)
    events = list(follow(api, "job", logs=None, pause=time.pause, clock=time.clock))

    assert isinstance(events[-1], Ended)


def test_a_yard_that_never_comes_back_is_not_waited_for_without_end() -> None:
    time = Time()

    def describe(asked: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable("gone")

    with pytest.raises(Unavailable, match="gone"):
        list(follow(RecordingApi(DescribeTrainingJob=describe), "job", logs=None, pause=time.pause, clock=time.clock))
    assert PATIENCE_S <= time.now_s <= PATIENCE_S + 2


def test_an_instance_is_named_in_its_stream() -> None:
    assert instance_of("my-job/algo-12-1700000000") == "algo-12"
