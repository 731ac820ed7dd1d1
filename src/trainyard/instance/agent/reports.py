"""Writes report frames to the spool of the instance."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.contract import FrameKind
from trainyard.link.doorbell import ring
from trainyard.link.spool import SpoolWriter


def now_us() -> int:
    return time.time_ns() // 1000


# These may be lost when the disk is full: a job must not fail because a figure about it cannot be written.
_DISPENSABLE = frozenset(
    {
        FrameKind.DOWNLOAD,
        FrameKind.PHASE,
        FrameKind.NOTE,
        FrameKind.METRIC,
        FrameKind.RULE,
        FrameKind.HARDWARE,
        FrameKind.ENVIRONMENT,
    }
)
# Users wait for these, so they ring the yard's doorbell.
_AWAITED = frozenset({FrameKind.STATUS, FrameKind.RULE, FrameKind.ENDED})

log = logging.getLogger(__name__)


class Reports:
    """Reports what happens. Frames that decide the outcome of a job are durable when their method returns.

    Writing those raises OSError when the disk is full.
    """

    def __init__(self, spool: SpoolWriter) -> None:
        self._spool = spool
        self._doorbell: tuple[Path, str] | None = None

    def use_doorbell(self, doorbell: Path, job_id: str) -> None:
        """From now on, ring the yard's doorbell after frames that users wait for."""
        self._doorbell = doorbell, job_id

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the time that the block takes as a phase, also when it raises."""
        started = now_us()
        try:
            yield
        finally:
            self.report_phase(name, started, now_us())

    def report_phase(self, name: str, started_us: int, ended_us: int) -> None:
        """Report a phase that is over."""
        self._append(FrameKind.PHASE, {"name": name, "started_us": started_us, "ended_us": ended_us})

    def report_status(self, status: str, message: str) -> None:
        self._append(FrameKind.STATUS, {"status": status, "message": message})

    def report_download(self, done_bytes: int, total_bytes: int) -> None:
        """Report how much of its data the instance has."""
        self._append(FrameKind.DOWNLOAD, {"done_bytes": done_bytes, "total_bytes": total_bytes})

    def note(self, text: str) -> None:
        self._append(FrameKind.NOTE, {"text": text})

    def report_metric(
        self,
        name: str,
        value: float,
        *,
        at_us: int,
        count: int,
        extremes: tuple[float, float] | None = None,
        has_lapsed: bool = False,
    ) -> None:
        """Report the latest value of a metric, and the lowest and the highest so far."""
        payload: dict[str, Any] = {"name": name, "value": value, "at_us": at_us, "count": count}
        if extremes is not None:
            payload |= {"lowest": extremes[0], "highest": extremes[1]}
        self._append(FrameKind.METRIC, payload | ({"has_lapsed": True} if has_lapsed else {}))

    def report_rule(self, payload: Mapping[str, Any]) -> None:
        """Report the state of a rule; see FrameKind.RULE for the members."""
        self._append(FrameKind.RULE, payload)

    def report_hardware(self, metrics: Sequence[str]) -> None:
        """Report which CloudWatch metrics of the host have points."""
        self._append(FrameKind.HARDWARE, {"metrics": list(metrics)})

    def report_environment(self, packages: Sequence[str]) -> None:
        """Report the installed packages that the program sees."""
        self._append(FrameKind.ENVIRONMENT, {"packages": list(packages)})

    def report_exit(self, ended: ProgramExit) -> None:
        payload = {"code": ended.code, "signal": ended.signal, "is_oom": ended.is_oom}
        self._append(FrameKind.EXITED, payload, durable=True)

    def report_artifact(self, kind: str, uri: str, *, size: int) -> None:
        self._append(FrameKind.ARTIFACT, {"kind": kind, "uri": uri, "size": size}, durable=True)

    def report_end(
        self, outcome: str, reason: str, *, card: Mapping[str, Any] | None = None, message: str = ""
    ) -> None:
        """Report how the instance ended, and the message that the program left."""
        payload = {"outcome": outcome, "reason": reason, "card": card}
        self._append(FrameKind.ENDED, payload | ({"message": message} if message else {}), durable=True)

    def _append(self, kind: FrameKind, payload: Mapping[str, Any], *, durable: bool = False) -> None:
        try:
            self._spool.append(kind, payload, at_us=now_us(), durable=durable)
        except OSError as error:
            if kind not in _DISPENSABLE:
                raise
            log.warning("a report could not be written", extra={"kind": kind, "why": error.strerror})
        if kind in _AWAITED and self._doorbell is not None:
            ring(*self._doorbell)
