"""Following a training job: its statuses and the lines it writes, as they come, until it has ended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.connection import Api
from trainyard.foundation.errors import Unavailable
from trainyard.wire.client import CallFailed

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
FINAL = frozenset({"Completed", "Failed", "Stopped"})

SHORTEST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0
PAGES_AT_ONCE = 8  # of one instance, so that neither the statuses nor the other instances wait for a flood of lines
PATIENCE_S = 60.0  # with a yard that does not answer; a restart takes a second or two

Description = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The job came to a secondary status, or to another message in it."""

    status: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LogLine:
    instance: str  # algo-1 …
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of all; `description` is what DescribeTrainingJob says of the job now."""

    description: Description


Event = StatusChanged | LogLine | Ended


def follow(
    api: Api,
    job_name: str,
    *,
    logs: "JobLogs | None",
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Everything that happens to a job, ending with its end: statuses from its beginning, lines from where `logs` is.

    The yard is asked again after a wait that grows while nothing happens and is never much longer than the silence
    before it. A yard that stops answering is waited for, as its jobs go on without it.
    """
    statuses = _Statuses()
    wait_s, answered_at = SHORTEST_WAIT_S, clock()
    while True:
        began, has_news = clock(), False
        try:
            description = api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=job_name)
            has_ended = description["TrainingJobStatus"] in FINAL
            for event in _news(description, statuses, logs):
                has_news = True
                yield event
            answered_at = clock()
        except Unavailable:
            if clock() - answered_at > PATIENCE_S:
                raise
            pause(LONGEST_WAIT_S)
            continue
        if has_ended:
            yield from statuses.last(description)
            yield Ended(description)
            return
        wait_s = SHORTEST_WAIT_S if has_news else min(wait_s * 1.5, LONGEST_WAIT_S)
        pause(max(wait_s, 2 * (clock() - began)))


def _news(description: Description, statuses: "_Statuses", logs: "JobLogs | None") -> Iterator[StatusChanged | LogLine]:
    """What is new, less the last status: that is told when the last line is."""
    yield from statuses.news(description)
    if logs is not None:
        has_ended = description["TrainingJobStatus"] in FINAL
        yield from logs.read(pages=None if has_ended else PAGES_AT_ONCE)


class JobLogs:
    """The log streams of a job's instances, each read on from where it was left."""

    def __init__(self, api: Api, job_name: str) -> None:
        self._api, self._job_name = api, job_name
        self._tokens: dict[str, str | None] = {}  # by stream

    def read(self, *, pages: int | None = None) -> Iterator[LogLine]:
        """The lines that were not read before, instance by instance; of each, so many pages at most."""
        for stream in self._streams():
            yield from self._read_on(stream, pages)

    def read_last(self, count: int) -> Iterator[LogLine]:
        """The last lines of each instance, at most 10,000; what came before them counts as read."""
        for stream in self._streams():
            lines = self._page(stream, startFromHead=False, limit=max(count, 1))
            yield from lines if count else ()

    def _streams(self) -> Sequence[str]:
        for name in _stream_names(self._api, self._job_name):
            self._tokens.setdefault(name, None)
        return sorted(self._tokens)

    def _read_on(self, stream: str, pages: int | None) -> Iterator[LogLine]:
        count = 0
        while pages is None or count < pages:
            token = self._tokens[stream]
            lines = self._page(stream, startFromHead=True, **({"nextToken": token} if token else {}))
            if not lines:  # a page with lines may be followed by another at once
                return
            yield from lines
            count += 1

    def _page(self, stream: str, **asked: Any) -> list[LogLine]:
        page = self._api.call("logs", "GetLogEvents", logGroupName=LOG_GROUP, logStreamName=stream, **asked)
        self._tokens[stream] = page["nextForwardToken"]
        return [LogLine(instance_of(stream), event["timestamp"], event["message"]) for event in page["events"]]


def instance_of(stream: str) -> str:
    """`algo-1` of `my-job/algo-1-1700000000`."""
    return "-".join(stream.rpartition("/")[2].split("-")[:2])


def _stream_names(api: Api, job_name: str) -> Iterator[str]:
    asked = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": f"{job_name}/", "orderBy": "LogStreamName"}
    try:
        page = api.call("logs", "DescribeLogStreams", **asked)
        yield from (stream["logStreamName"] for stream in page["logStreams"])
        while token := page.get("nextToken"):
            page = api.call("logs", "DescribeLogStreams", **asked, nextToken=token)
            yield from (stream["logStreamName"] for stream in page["logStreams"])
    except CallFailed as error:
        if error.code != "ResourceNotFoundException":  # the group comes with the first line of the first job
            raise


class _Statuses:
    """Tells which of the transitions in a description were not told before."""

    def __init__(self) -> None:
        self._told: set[tuple[int, str, str]] = set()

    def news(self, description: Description) -> list[StatusChanged]:
        return self._changes(description, lambda status: status not in _LAST)

    def last(self, description: Description) -> list[StatusChanged]:
        return self._changes(description, lambda status: status in _LAST)

    def _changes(self, description: Description, is_meant: Callable[[str], bool]) -> list[StatusChanged]:
        found = []
        for index, transition in enumerate(description.get("SecondaryStatusTransitions", ())):
            key = (index, transition["Status"], transition.get("StatusMessage", ""))
            if is_meant(key[1]) and key not in self._told:
                self._told.add(key)
                found.append(StatusChanged(key[1], key[2], transition["StartTime"]))
        return found


_LAST = FINAL | {"MaxRuntimeExceeded", "MaxWaitTimeExceeded"}
