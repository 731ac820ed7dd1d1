"""Follow a training or processing job: the yard streams its status changes and log lines until it has ended."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.training.cloudwatch import LogLine
from trainyard.foundation.errors import Unavailable
from trainyard.wire.client import CallFailed

# Kinds of jobs, as the yard's own API calls them.
TRAINING, PROCESSING = "training", "processing"

FINAL = frozenset({"Completed", "Failed", "Stopped"})

MIN_WAIT_S = 0.05
MAX_WAIT_S = 1.0
# How long a yard may be unreachable. A restart takes a second or two.
RECONNECT_LIMIT_S = 60.0

Description = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The job has a new secondary status, or a new message for the same one."""

    status: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NoteAdded:
    """The yard deviates from the request, or does not enforce a part of it."""

    text: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last event: all lines have been sent, and no process of the job is running."""

    status: str


Event = StatusChanged | NoteAdded | LogLine | JobEnded


def follow_job(
    api: Api,
    job_name: str,
    *,
    logs: bool = True,
    tail: int | None = None,
    kind: str = TRAINING,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Yield the events of a job until it has ended; with `tail`, start at its last lines.

    A broken stream is resumed after the last event, so no event is lost or repeated. Jobs continue while the yard
    restarts, so this waits for the yard. Raises Unavailable if it does not answer for over a minute.
    """
    what = f'{kind.capitalize()} job "{job_name}"'
    backoff = ReconnectBackoff(what, f"trainyard logs -f {job_name}", pause=pause, clock=clock)
    start: dict[str, Any] = {} if tail is None else {"Tail": tail}
    # Yards of earlier versions know no other kind.
    of_kind = {} if kind == TRAINING else {"Kind": kind}
    while True:
        try:
            for message in _read_stream(api, TrainingJobName=job_name, Logs=logs, **of_kind, **start):
                backoff.reset()
                start = {"Cursor": message["cursor"]}
                event = _parse_event(message)
                if event is not None:
                    yield event
                    # The caller may have been slow; that does not count as an absence of the yard.
                    backoff.reset()
                if isinstance(event, JobEnded):
                    return
        except Unavailable as error:
            backoff.wait(error)
        else:
            backoff.wait(None)


def _read_stream(api: Api, **request: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of one stream until it ends or breaks. An incomplete message is dropped.

    Raises Unavailable if the yard does not answer.
    """
    try:
        with api.stream("trainyard", "FollowJob", **request) as lines:
            for line in lines:
                yield json.loads(line)
    except json.JSONDecodeError:
        return
    except CallFailed as error:
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        raise Unavailable(error.message) from error


def _parse_event(message: Mapping[str, Any]) -> Event | None:
    kind = message["kind"]
    if kind == "log":
        return LogLine(message["instance"], message["at_ms"], message["text"], attempt=message.get("attempt", 0))
    if kind == "status":
        at = datetime.fromtimestamp(message["at_ms"] / 1000, UTC)
        return StatusChanged(message["secondary"], message.get("message", ""), at)
    if kind == "note":
        return NoteAdded(message["text"])
    if kind == "ended":
        return JobEnded(message["status"])
    # A heartbeat, or an event that only newer clients know.
    return None


class ReconnectBackoff:
    """Waits for a yard that does not answer, longer each time, and gives up after a minute.

    The error says that `what` continues, and names the command that follows it again.
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
        self.reset()

    def reset(self) -> None:
        """Note that the yard has answered."""
        self._answered_at, self._wait_s = self._clock(), MIN_WAIT_S

    def wait(self, error: Exception | None) -> None:
        """Wait before the next attempt, or raise Unavailable if the yard has been unreachable for too long."""
        away_s = self._clock() - self._answered_at
        if away_s > RECONNECT_LIMIT_S:
            raise Unavailable(
                f"The yard has not answered for {away_s:.0f} s. {self._what} continues without it: `trainyard up "
                f"--detach` starts the yard again, and `{self._command}` follows the job again."
            ) from error
        self._pause(self._wait_s)
        self._wait_s = min(2 * self._wait_s, MAX_WAIT_S)
