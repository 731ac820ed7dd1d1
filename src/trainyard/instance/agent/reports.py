"""The frames of an instance, written to its spool as things happen."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard.instance.sandbox.contract import Ended
from trainyard.link.contract import FrameKind
from trainyard.link.doorbell import ring
from trainyard.link.spool import SpoolWriter


def now_us() -> int:
    return time.time_ns() // 1000


# What a full disk may swallow: a job must not fail because a figure about it could not be noted.
_DISPENSABLE = frozenset({FrameKind.PHASE, FrameKind.NOTE, FrameKind.METRIC, FrameKind.RULE})
# What users wait for, so that the yard is told to look.
_AWAITED = frozenset({FrameKind.STATUS, FrameKind.RULE, FrameKind.ENDED})

log = logging.getLogger(__name__)


class Reports:
    """Says what happens. What decides the fate of a job is durable when its method returns, or raises OSError."""

    def __init__(self, spool: SpoolWriter) -> None:
        self._spool = spool
        self._doorbell: tuple[Path, str] | None = None

    def ring_at(self, doorbell: Path, job_id: str) -> None:
        """Let the yard know from now on when there is something that users wait for."""
        self._doorbell = doorbell, job_id

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A stretch of time for the waterfall; one that ends in an error is told too."""
        started = now_us()
        try:
            yield
        finally:
            self.passed(name, started, now_us())

    def passed(self, name: str, started_us: int, ended_us: int) -> None:
        """A stretch of time that is over."""
        self._append(FrameKind.PHASE, {"name": name, "started_us": started_us, "ended_us": ended_us})

    def status(self, status: str, message: str) -> None:
        self._append(FrameKind.STATUS, {"status": status, "message": message})

    def note(self, text: str) -> None:
        self._append(FrameKind.NOTE, {"text": text})

    def metric(self, name: str, value: float, *, at_us: int, count: int, has_lapsed: bool = False) -> None:
        lapse = {"has_lapsed": True} if has_lapsed else {}
        self._append(FrameKind.METRIC, {"name": name, "value": value, "at_us": at_us, "count": count, **lapse})

    def rule(self, payload: Mapping[str, Any]) -> None:
        """How a rule stands now; the members are those that FrameKind.RULE names."""
        self._append(FrameKind.RULE, payload)

    def exited(self, ended: Ended) -> None:
        payload = {"code": ended.code, "signal": ended.signal, "is_oom": ended.is_oom}
        self._append(FrameKind.EXITED, payload, durable=True)

    def artifact(self, kind: str, uri: str, *, size: int) -> None:
        self._append(FrameKind.ARTIFACT, {"kind": kind, "uri": uri, "size": size}, durable=True)

    def ended(self, outcome: str, reason: str, *, card: Mapping[str, Any] | None = None) -> None:
        self._append(FrameKind.ENDED, {"outcome": outcome, "reason": reason, "card": card}, durable=True)

    def _append(self, kind: FrameKind, payload: Mapping[str, Any], *, durable: bool = False) -> None:
        try:
            self._spool.append(kind, payload, at_us=now_us(), durable=durable)
        except OSError as error:
            if kind not in _DISPENSABLE:
                raise
            log.warning("a report could not be written", extra={"kind": kind, "why": error.strerror})
        if kind in _AWAITED and self._doorbell is not None:
            ring(*self._doorbell)
