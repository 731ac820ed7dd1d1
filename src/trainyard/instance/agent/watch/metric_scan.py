"""Extracts metrics from a program's output: sends the output to a scanner process, which returns the values."""

import fcntl
import json
import logging
import math
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.watch.metric_scanner import AFTER_GAP, END, HEADER, PIECE
from trainyard.instance.agent.watch.metric_series import MetricSeries
from trainyard.instance.sandbox.processes import cpu_ticks
from trainyard.link.contract import MetricSpec

BACKLOG_BYTES = 16 << 20
# CPU time of the scanner for the backlog after a program has ended by itself, or was stopped.
FINAL_CPU_S = 5.0
STOPPED_CPU_S = 1.0
PAUSE_S = 0.01

_PIECE_BYTES = 64 * 1024
_PIECES_PER_STEP = 32
# Some thousand values, which take milliseconds to store.
_READ_BYTES = 16 * 1024
_MAX_ANSWER_BYTES = 1 << 20
_MAX_NOTE_CHARACTERS = 2000
_PIPE_BYTES = 1 << 20
# Wall time for the backlog, however little CPU time the scanner gets.
_FINAL_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BOOT = boot_code("trainyard.instance.agent.watch.metric_scanner", setup="sys.path[:] = sys.argv[2].split(':')")

log = logging.getLogger(__name__)


class MetricScan:
    """Sends an output to the scanner process and adds the values to their series. Used by one thread.

    Only `finish` blocks. Output that comes faster than it is scanned waits, up to `BACKLOG_BYTES`. Beyond that the
    oldest is skipped and counted, so that the last values are found.
    """

    def __init__(
        self, definitions: Sequence[MetricSpec], series: MetricSeries, *, reports: Reports, uid: int | None = None
    ) -> None:
        self._names = {each.name for each in definitions}
        self._series = series
        self._reports = reports
        self._notes_left = 3 * len(definitions)
        # Pieces and their times.
        self._backlog: deque[tuple[bytes, int]] = deque()
        self._backlog_bytes = 0
        # Sizes and times of the pieces that the process has not finished.
        self._in_process: deque[tuple[int, int]] = deque()
        self._skipped_bytes = 0
        self._has_gap = False
        # Whether END is still to be sent after the backlog.
        self._is_ending = False
        self._has_ended = False
        self._partial_answer = b""
        self._process: subprocess.Popen[bytes] | None = self._spawn(uid)
        patterns = [(each.name, each.regex) for each in definitions]
        self._outgoing = memoryview(json.dumps(patterns).encode() + b"\n")

    @property
    def is_busy(self) -> bool:
        """Whether there is something to send to the process, or answers are pending."""
        return self._process is not None and bool(self._backlog or self._in_process or self._outgoing)

    @property
    def unscanned_bytes(self) -> int:
        """How much of the output so far was skipped or still waits."""
        return self._skipped_bytes + self._backlog_bytes + sum(size for size, _ in self._in_process)

    def write(self, data: bytes, at_us: int) -> None:
        """Queue what the program has just written."""
        if self._process is None:
            self._skipped_bytes += len(data)
            return
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._backlog.append((piece, at_us))
            self._backlog_bytes += len(piece)
        while self._backlog_bytes > BACKLOG_BYTES:
            self._skip_oldest()

    def step(self) -> None:
        """Send output and read answers as far as possible without waiting, and report what is due."""
        self._send()
        self._read_answers()
        self._series.report()

    def finish(self, cpu_s: float, *, is_over: Callable[[], bool]) -> None:
        """End the scan: scan the backlog for at most `cpu_s` of CPU time, and report everything that is new."""
        self._is_ending = True
        deadline, used_s = time.monotonic() + _FINAL_S, self._used_s()
        while self._process is not None and not self._has_ended:
            if self._used_s() - used_s > cpu_s or time.monotonic() > deadline or is_over():
                break
            self.step()
            self._wait()
        self.close()
        self._series.finish()
        if self.unscanned_bytes:
            self._reports.note(
                f"{self.unscanned_bytes} bytes of the output were not searched for metrics, so values may be missing: "
                "the program wrote faster than its metric definitions can be matched. Write less, or use fewer or "
                "simpler expressions."
            )

    def close(self) -> None:
        """Kill the process, whatever it is doing."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None, "both are pipes"
            with suppress(BrokenPipeError):
                pipe.close()

    def _spawn(self, uid: int | None) -> "subprocess.Popen[bytes]":
        """Start the scanner process. It inherits nothing but the paths of its code."""
        user = "" if uid is None else str(uid)
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, PACKAGE, ":".join(sys.path), str(os.getpid()), user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={},
            cwd="/",
            start_new_session=True,
        )
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None, "both are pipes"
            os.set_blocking(pipe.fileno(), False)
            # Fails when a user has used up the kernel's limit for all pipes together.
            with suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return process

    def _used_s(self) -> float:
        return cpu_ticks(self._process.pid) / _TICKS_PER_S if self._process is not None else 0.0

    def _wait(self) -> None:
        """Wait for an answer, for a moment at most."""
        if self._process is not None:
            assert self._process.stdout is not None, "it is a pipe"
            select.select([self._process.stdout.fileno()], [], [], PAUSE_S)

    def _skip_oldest(self) -> None:
        piece, _ = self._backlog.popleft()
        self._backlog_bytes -= len(piece)
        self._skipped_bytes += len(piece)
        self._has_gap = True

    def _send(self) -> None:
        for _ in range(_PIECES_PER_STEP):
            if self._process is None or not (self._outgoing or self._next_outgoing()):
                return
            assert self._process.stdin is not None, "it is a pipe"
            try:
                sent = os.write(self._process.stdin.fileno(), self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                self._give_up("its process ended early")
                return
            self._outgoing = self._outgoing[sent:]

    def _next_outgoing(self) -> bool:
        """Prepare the oldest piece or the end mark to be sent; False when there is neither."""
        if not self._backlog:
            self._outgoing = memoryview(HEADER.pack(0, END) if self._is_ending else b"")
            self._is_ending = False
            return bool(self._outgoing)
        piece, at_us = self._backlog.popleft()
        self._backlog_bytes -= len(piece)
        self._in_process.append((len(piece), at_us))
        self._outgoing = memoryview(HEADER.pack(len(piece), AFTER_GAP if self._has_gap else PIECE) + piece)
        self._has_gap = False
        return True

    def _read_answers(self) -> None:
        """Read answers once. An incomplete line waits for its end."""
        if self._process is None:
            return
        assert self._process.stdout is not None, "it is a pipe"
        try:
            data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data and not self._has_ended:
            self._give_up("its process ended early")
            return
        *lines, self._partial_answer = (self._partial_answer + data).split(b"\n")
        try:
            if len(self._partial_answer) > _MAX_ANSWER_BYTES:
                raise ValueError("an answer without an end")
            for line in lines:
                self._handle_answer(json.loads(line))
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            log.error("the metric scanner sent an invalid answer", extra={"why": str(error)})
            self._give_up("its process sent an invalid answer")

    def _handle_answer(self, answer: Mapping[str, Any]) -> None:
        """Handle an answer. The process has fewer rights than the agent, so its answers are validated."""
        if "values" in answer:
            self._series.add(self._check_name(answer["metric"]), _check_finite(answer["values"]), self._time_us())
        elif "searched" in answer:
            self._in_process.popleft()
        elif "lapsed" in answer:
            for name in answer["lapsed"]:
                self._series.lapse(self._check_name(name))
        elif "note" in answer and self._notes_left:
            self._notes_left -= 1
            self._reports.note(str(answer["note"])[:_MAX_NOTE_CHARACTERS])
        self._has_ended = self._has_ended or "end" in answer

    def _check_name(self, name: str) -> str:
        if name not in self._names:
            raise ValueError("a metric that was not defined")
        return name

    def _time_us(self) -> int:
        """When the piece that is being scanned was written; now for a last line without an end."""
        return self._in_process[0][1] if self._in_process else now_us()

    def _give_up(self, why: str) -> None:
        self._reports.note(f"No more metrics are extracted, because the search for them failed: {why}.")
        self.close()


def _check_finite(values: Sequence[float]) -> list[float]:
    numbers = [float(value) for value in values]
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("values that are not finite numbers")
    return numbers
