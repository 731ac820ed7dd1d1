"""The client side of the event socket: sends events to the agent of the instance; see `link/event_protocol.py`."""

import dataclasses
import math
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainyard.link.event_protocol import MAX_EVENT_BYTES, SOCKET, AgentEvent, AgentEventKind, encode_event

if TYPE_CHECKING:
    from trainyard.insight.rules.contract import Evaluation, Finding

# While the agent does not read.
_MAX_BUFFERED_LINES = 256
# Per series.
_MAX_EVIDENCE_POINTS = 500


class EventClient:
    """Sends events without ever blocking or raising; safe to share between threads.

    Events that cannot be sent are buffered up to a limit. A forked process opens its own connection.
    """

    def __init__(self, ml: str) -> None:
        self._ml = ml
        self._socket: socket.socket | None = None
        self._pid = 0
        self._buffer: list[bytes] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def send(self, word: str, payload: Mapping[str, Any]) -> None:
        """Send an event; `word` is a value of AgentEventKind."""
        line = encode_event(AgentEvent(AgentEventKind(word), to_finite_json(payload)))
        if len(line) > MAX_EVENT_BYTES:
            return
        with self._lock:
            if len(self._buffer) < _MAX_BUFFERED_LINES:
                self._buffer.append(line)
            with suppress(OSError):
                self._send()

    def send_rule(self, evaluation: "Evaluation", finding: "Finding | None", *, worker: str) -> None:
        """Send the state of a rule, and the finding that caused it."""
        payload = {
            "rule": evaluation.rule,
            "status": evaluation.status.value,
            "details": evaluation.details,
            "finding": None if finding is None else finding_payload(finding),
            "judged": evaluation.steps_judged,
            "dropped": evaluation.steps_dropped,
            "worker": worker,
        }
        self.send(AgentEventKind.RULE, payload)

    def flush(self, timeout_s: float) -> None:
        """Wait until the buffer is sent; for a process that is about to exit."""
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.settimeout(timeout_s)
            self._send()

    def _send(self) -> None:
        if self._socket is None or self._pid != os.getpid():
            self._connect()
        assert self._socket is not None, "it was just connected"
        while self._buffer:
            try:
                sent = self._socket.send(self._buffer[0])
            except BlockingIOError:
                return
            except OSError:
                self._socket = None
                raise
            self._buffer[0] = self._buffer[0][sent:]
            if not self._buffer[0]:
                del self._buffer[0]

    def _connect(self) -> None:
        """Connect through the folder's descriptor, because the path of a socket must be short."""
        parent, _, name = SOCKET.rpartition("/")
        folder = os.open(f"{self._ml}/{parent}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(f"/proc/self/fd/{folder}/{name}")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(folder)
        self._socket, self._pid = connection, os.getpid()

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._socket, self._buffer = None, []


def finding_payload(finding: "Finding") -> Mapping[str, Any]:
    """Return the payload of a finding, with no more points per series than a chart can show."""
    payload = dataclasses.asdict(finding)
    for series in payload["evidence"]:
        series["steps"], series["values"] = (list(series[name][-_MAX_EVIDENCE_POINTS:]) for name in ("steps", "values"))
    return payload


def to_finite_json(value: Any) -> Any:
    """Return the value as plain JSON: a non-finite number becomes `nan`, `inf` or `-inf`."""
    if isinstance(value, Mapping):
        return {str(name): to_finite_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_finite_json(each) for each in value]
    if isinstance(value, (str, int)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)
