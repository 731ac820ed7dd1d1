"""Tells the agent of the instance what happens, by the socket that `link/told.py` describes."""

import dataclasses
import math
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainyard.link.told import MOST_BYTES, SOCKET, Told, ToldKind, encode

if TYPE_CHECKING:
    from trainyard.insight.rules.contract import Evaluation, Finding

_MOST_WAITING = 256  # lines that are kept for an agent that does not read
_MOST_EVIDENCE = 500  # points of a series


class Teller:
    """Tells without ever waiting or raising; safe to share between threads. What cannot be told is kept for a while.

    A process that was forked has a connection of its own.
    """

    def __init__(self, ml: str) -> None:
        self._ml = ml
        self._socket: socket.socket | None = None
        self._pid = 0
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def tell(self, word: str, payload: Mapping[str, Any]) -> None:
        """Tell something of a ToldKind."""
        line = encode(Told(ToldKind(word), finite(payload)))
        if len(line) > MOST_BYTES:
            return
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(line)
            with suppress(OSError):
                self._send()

    def tell_rule(self, evaluation: "Evaluation", finding: "Finding | None", *, worker: str) -> None:
        """Tell how a rule stands, and what it found that made it so."""
        payload = {
            "rule": evaluation.rule,
            "status": evaluation.status.value,
            "details": evaluation.details,
            "finding": None if finding is None else shown_finding(finding),
            "judged": evaluation.steps_judged,
            "dropped": evaluation.steps_dropped,
            "worker": worker,
        }
        self.tell(ToldKind.RULE, payload)

    def flush(self, timeout_s: float) -> None:
        """Wait for what is still to be told; for a process that is about to end."""
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.settimeout(timeout_s)
            self._send()

    def _send(self) -> None:
        if self._socket is None or self._pid != os.getpid():
            self._connect()
        assert self._socket is not None, "it was just connected"
        while self._waiting:
            try:
                sent = self._socket.send(self._waiting[0])
            except BlockingIOError:
                return
            except OSError:
                self._socket = None
                raise
            self._waiting[0] = self._waiting[0][sent:]
            if not self._waiting[0]:
                del self._waiting[0]

    def _connect(self) -> None:
        """The path of a socket must be short, however deep the folder is."""
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

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._socket, self._waiting = None, []


def shown_finding(finding: "Finding") -> Mapping[str, Any]:
    """As it is told and shown, with no more of a series than can be drawn."""
    shown = dataclasses.asdict(finding)
    for series in shown["evidence"]:
        series["steps"], series["values"] = (list(series[name][-_MOST_EVIDENCE:]) for name in ("steps", "values"))
    return shown


def finite(value: Any) -> Any:
    """The same in plain JSON: a number that it does not have becomes `nan`, `inf` or `-inf`."""
    if isinstance(value, Mapping):
        return {str(name): finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    if isinstance(value, (str, int)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)
