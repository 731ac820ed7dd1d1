"""Following a training job: its statuses and the lines it writes, pushed as they come, until it has ended."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from trainyard.connection import Api
from trainyard.foundation.errors import Unavailable
from trainyard.job_logs import LogLine
from trainyard.wire.client import CallFailed

FINAL = frozenset({"Completed", "Failed", "Stopped"})

SHORTEST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0
PATIENCE_S = 60.0  # with a yard that does not answer; a restart takes a second or two

Description = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The job came to a secondary status, or to another message in it."""

    status: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Noted:
    """The yard does something otherwise than asked, or does not enforce it."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of all: all lines have come, and nothing of the job runs any more."""

    status: str


Event = StatusChanged | Noted | LogLine | Ended


def follow(
    api: Api,
    job_name: str,
    *,
    logs: bool = True,
    tail: int | None = None,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Everything that happens to a job from its beginning to its end; with `tail`, only its last lines so far.

    The yard pushes; where the stream breaks off, it is taken up from the last event, so that none is lost or comes
    twice. Jobs go on without their yard, so one that restarts is waited for; Unavailable when it stays away for over a
    minute.
    """
    patience = Patience(f'Training job "{job_name}"', f"trainyard logs -f {job_name}", pause=pause, clock=clock)
    begin: dict[str, Any] = {} if tail is None else {"Tail": tail}
    while True:
        try:
            for told in _told(api, TrainingJobName=job_name, Logs=logs, **begin):
                patience.renew()
                begin = {"Cursor": told["cursor"]}
                event = _event(told)
                if event is not None:
                    yield event
                    patience.renew()  # who is told may take long, and that is no absence of the yard
                if isinstance(event, Ended):
                    return
        except Unavailable as error:
            patience.wait(error)
        else:
            patience.wait(None)


def _told(api: Api, **asked: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of one stream up to where it breaks off; one that was cut short counts as not sent.

    Unavailable when the yard cannot answer now.
    """
    try:
        with api.stream("trainyard", "FollowJob", **asked) as lines:
            for line in lines:
                yield json.loads(line)
    except json.JSONDecodeError:
        return
    except CallFailed as error:
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        raise Unavailable(error.message) from error


def _event(told: Mapping[str, Any]) -> Event | None:
    kind = told["kind"]
    if kind == "log":
        return LogLine(told["instance"], told["at_ms"], told["text"], attempt=told.get("attempt", 0))
    if kind == "status":
        at = datetime.fromtimestamp(told["at_ms"] / 1000, UTC)
        return StatusChanged(told["secondary"], told.get("message", ""), at)
    if kind == "note":
        return Noted(told["text"])
    if kind == "ended":
        return Ended(told["status"])
    return None  # a beat, or what a later yard may tell


class Patience:
    """Waits for a yard that is away, longer each time, and for over a minute in all at most.

    `what` goes on meanwhile, and `command` comes back to it.
    """

    def __init__(
        self,
        what: str,
        command: str,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._command = what, command
        self._pause, self._clock = pause, clock
        self.renew()

    def renew(self) -> None:
        """It answers."""
        self._answered_at, self._wait_s = self._clock(), SHORTEST_WAIT_S

    def wait(self, error: Exception | None) -> None:
        away_s = self._clock() - self._answered_at
        if away_s > PATIENCE_S:
            raise Unavailable(
                f"The yard has not answered for {away_s:.0f} s. {self._what} goes on without it: `trainyard up "
                f"--detach` starts the yard again, and `{self._command}` comes back to the job."
            ) from error
        self._pause(self._wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
