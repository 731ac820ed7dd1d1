import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.stream import (
    MAX_WAIT_S,
    RECONNECT_LIMIT_S,
    Event,
    JobEnded,
    NoteAdded,
    StatusChanged,
    follow_job,
)
from trainyard.foundation.errors import Unavailable
from trainyard.wire.client import CallFailed

STATUS = {"kind": "status", "status": "InProgress", "secondary": "Training", "message": "is on", "at_ms": 1000}
NOTE = {"kind": "note", "text": "The volume size is not enforced."}
BEAT = {"kind": "beat"}
ENDED = {"kind": "ended", "status": "Completed", "secondary": "Completed"}


def line(text: str) -> dict[str, Any]:
    return {"kind": "log", "instance": "algo-1", "attempt": 1, "at_ms": 1000, "text": text}


class Time:
    """A clock that advances only while someone waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.waits_s.append(seconds)


class Yard:
    """Sends the events of a job from a cursor on. Each stream breaks as the next entry of `breaks` says."""

    def __init__(self, history: list[dict[str, Any]], *breaks: int | Exception) -> None:
        self.history, self.breaks = history, iter(breaks)
        self.asked: list[dict[str, Any]] = []
        self.hung_up = 0

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        raise AssertionError("following asks nothing else")

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        assert (service, operation) == ("trainyard", "FollowJob")
        self.asked.append(params)
        how = next(self.breaks, None)
        if isinstance(how, Exception):
            raise how
        start = int(params.get("Cursor", 0))
        try:
            yield self._lines(start, len(self.history) if how is None else start + how, is_cut=how is not None)
        finally:
            self.hung_up += 1

    def _lines(self, start: int, stop: int, *, is_cut: bool) -> Iterator[bytes]:
        for number in range(start, stop):
            yield json.dumps(self.history[number] | {"cursor": str(number + 1)}).encode()
        if is_cut:
            yield b'{"kind": "log", "inst'


def followed(yard: Yard, time: Time, **asked: Any) -> list[Event]:
    return list(follow_job(yard, "job", pause=time.pause, clock=time.clock, **asked))


def test_statuses_notes_and_lines_arrive_in_order_until_the_end() -> None:
    yard, time = Yard([STATUS, NOTE, line("one"), BEAT, line("two"), ENDED]), Time()

    events = followed(yard, time)

    assert events == [
        StatusChanged("Training", "is on", datetime.fromtimestamp(1, UTC)),
        NoteAdded("The volume size is not enforced."),
        LogLine("algo-1", 1000, "one", attempt=1),
        LogLine("algo-1", 1000, "two", attempt=1),
        JobEnded("Completed"),
    ]
    assert (time.waits_s, len(yard.asked), yard.hung_up) == ([], 1, 1)


def test_a_stream_that_breaks_off_is_taken_up_where_it_broke() -> None:
    texts = [str(number) for number in range(10)]
    yard = Yard([*map(line, texts), ENDED], 3, Unavailable("gone"), 0, 4, CallFailed("Busy", "restarting", status=503))

    events = followed(yard, Time())

    assert [event.text for event in events if isinstance(event, LogLine)] == texts
    assert [asked.get("Cursor") for asked in yard.asked] == [None, "3", "3", "3", "7", "7"]
    assert events[-1] == JobEnded("Completed")


def test_whether_lines_are_wanted_and_how_many_of_those_before_is_asked_once() -> None:
    yard = Yard([STATUS, ENDED], 1)
    followed(yard, Time(), logs=False, tail=5)
    assert yard.asked == [
        {"TrainingJobName": "job", "Logs": False, "Tail": 5},
        {"TrainingJobName": "job", "Logs": False, "Cursor": "1"},
    ]


def test_unknown_events_of_a_later_yard_are_ignored() -> None:
    assert followed(Yard([{"kind": "weather", "sky": "blue"}, ENDED]), Time()) == [JobEnded("Completed")]


def test_a_refused_request_is_not_repeated() -> None:
    yard = Yard([], CallFailed("ResourceNotFound", "There is no such job.", status=404))
    with pytest.raises(CallFailed, match="no such job"):
        followed(yard, Time())
    assert len(yard.asked) == 1


def test_the_wait_for_an_absent_yard_grows_and_is_reset_when_it_returns() -> None:
    gone = Unavailable("gone")
    yard, time = Yard([line("one"), line("two"), ENDED], *[gone] * 8, 1, gone), Time()

    followed(yard, time)

    first, again = time.waits_s[:8], time.waits_s[8:]
    assert first == sorted(first)
    assert (first[0], first[-1]) == (again[0], MAX_WAIT_S)
    assert first[0] < 0.1


def test_a_yard_that_stays_away_is_not_waited_for_without_end() -> None:
    yard, time = Yard([line("one")], 1, *[Unavailable("Nothing listens there.")] * 1000), Time()
    events = follow_job(yard, "job", pause=time.pause, clock=time.clock)
    assert next(events) == LogLine("algo-1", 1000, "one", attempt=1)

    with pytest.raises(Unavailable, match="continues without it") as raised:
        next(events)

    assert "trainyard up --detach" in str(raised.value)
    assert "trainyard logs -f job" in str(raised.value)
    assert str(raised.value.__cause__) == "Nothing listens there."
    assert RECONNECT_LIMIT_S <= time.now_s <= RECONNECT_LIMIT_S + 2


def test_the_time_that_the_follower_takes_is_no_absence_of_the_yard() -> None:
    yard, time = Yard([line("one"), line("two"), ENDED], 1, Unavailable("gone")), Time()
    events = follow_job(yard, "job", pause=time.pause, clock=time.clock)
    next(events)
    time.now_s += 10 * RECONNECT_LIMIT_S

    assert list(events) == [LogLine("algo-1", 1000, "two", attempt=1), JobEnded("Completed")]


def test_a_reader_that_stops_closes_its_connection() -> None:
    yard = Yard([line("one"), line("two"), ENDED])
    events = follow_job(yard, "job")
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert yard.hung_up == 1
