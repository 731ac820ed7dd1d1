"""The search of an output for metrics, as the agent sees it: pieces go to a process, and values come back."""

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

from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.scanner import AFTER_GAP, END, HEADER, PIECE
from trainyard.instance.agent.series import MetricSeries
from trainyard.instance.sandbox.processes import cpu_ticks
from trainyard.link.contract import MetricSpec

BACKLOG_BYTES = 16 << 20
FINAL_CPU_S = 5.0  # of the process, for what waits when a program has ended by itself
STOPPED_CPU_S = 1.0  # the same after a stop
PAUSE_S = 0.01

_PIECE_BYTES = 64 * 1024
_PIECES_AT_ONCE = 32
_READ_BYTES = 16 * 1024  # of answers at once: some thousand values, which take milliseconds to keep
_LONGEST_ANSWER = 1 << 20
_LONGEST_NOTE = 2000
_PIPE_BYTES = 1 << 20
_FINAL_S = 60.0  # however little of the processors it gets
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BOOT = (
    "import sys; sys.path[:] = sys.argv[1].split(':'); "
    "from trainyard.instance.agent.scanner import main; main(sys.argv[2:])"
)

log = logging.getLogger(__name__)


class OutputScan:
    """Has an output searched, and hands the values to their series; used by one thread, which it never holds up.

    What comes faster than it can be searched waits, up to `BACKLOG_BYTES`. Beyond that the oldest is left out and
    counted, so that the last values are found. Only `finish` waits.
    """

    def __init__(
        self, definitions: Sequence[MetricSpec], series: MetricSeries, *, reports: Reports, uid: int | None = None
    ) -> None:
        self._names = {each.name for each in definitions}
        self._series = series
        self._reports = reports
        self._notes_left = 3 * len(definitions)
        self._backlog: deque[tuple[bytes, int]] = deque()  # pieces, and when they came
        self._backlog_bytes = 0
        self._searching: deque[tuple[int, int]] = deque()  # sizes of the pieces that the process has, and their times
        self._unsearched = 0
        self._has_gap = False
        self._is_ending = False  # whether the process shall be told that nothing follows what waits
        self._has_ended = False
        self._answers = b""
        self._process: subprocess.Popen[bytes] | None = self._spawn(uid)
        words = [(each.name, each.regex) for each in definitions]
        self._outgoing = memoryview(json.dumps(words).encode() + b"\n")

    @property
    def is_busy(self) -> bool:
        """Whether there is something to send to the process, or to hear of it."""
        return self._process is not None and bool(self._backlog or self._searching or self._outgoing)

    @property
    def unsearched_bytes(self) -> int:
        """Of the output so far: what was left out, and what waits."""
        return self._unsearched + self._backlog_bytes + sum(size for size, _ in self._searching)

    def write(self, data: bytes, at_us: int) -> None:
        """Have what the program wrote just now searched in its turn."""
        if self._process is None:
            self._unsearched += len(data)
            return
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._backlog.append((piece, at_us))
            self._backlog_bytes += len(piece)
        while self._backlog_bytes > BACKLOG_BYTES:
            self._leave_out_oldest()

    def step(self) -> None:
        """Send and hear what can be without waiting, and tell the yard what is due."""
        self._send()
        self._hear()
        self._series.tell()

    def finish(self, cpu_s: float, *, is_over: Callable[[], bool]) -> None:
        """Nothing more will come: search what waits for so long at most, and report all that was not told yet."""
        self._is_ending = True
        deadline, used_s = time.monotonic() + _FINAL_S, self._used_s()
        while self._process is not None and not self._has_ended:
            if self._used_s() - used_s > cpu_s or time.monotonic() > deadline or is_over():
                break
            self.step()
            self._wait()
        self.close()
        self._series.finish()
        if self.unsearched_bytes:
            self._reports.note(
                f"{self.unsearched_bytes} bytes of the output were not searched for metrics, so values may be missing: "
                "the program wrote faster than its metric definitions can be matched. Write less, or use fewer or "
                "simpler expressions."
            )

    def close(self) -> None:
        """End the process, whatever it is doing."""
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
        """Start it with nothing of this process but where its code lies."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, ":".join(sys.path), str(os.getpid()), "" if uid is None else str(uid)],
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
            with suppress(OSError):  # a user may have used up what all pipes together may hold
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return process

    def _used_s(self) -> float:
        return cpu_ticks(self._process.pid) / _TICKS_PER_S if self._process is not None else 0.0

    def _wait(self) -> None:
        """Until there is an answer, or for a moment."""
        if self._process is not None:
            assert self._process.stdout is not None, "it is a pipe"
            select.select([self._process.stdout.fileno()], [], [], PAUSE_S)

    def _leave_out_oldest(self) -> None:
        piece, _ = self._backlog.popleft()
        self._backlog_bytes -= len(piece)
        self._unsearched += len(piece)
        self._has_gap = True

    def _send(self) -> None:
        for _ in range(_PIECES_AT_ONCE):
            if self._process is None or not (self._outgoing or self._take_next()):
                return
            assert self._process.stdin is not None, "it is a pipe"
            try:
                sent = os.write(self._process.stdin.fileno(), self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                self._give_up("it ended before its time")
                return
            self._outgoing = self._outgoing[sent:]

    def _take_next(self) -> bool:
        """Make the oldest piece the one that is being sent, or the word that none follows; False when neither waits."""
        if not self._backlog:
            self._outgoing = memoryview(HEADER.pack(0, END) if self._is_ending else b"")
            self._is_ending = False
            return bool(self._outgoing)
        piece, at_us = self._backlog.popleft()
        self._backlog_bytes -= len(piece)
        self._searching.append((len(piece), at_us))
        self._outgoing = memoryview(HEADER.pack(len(piece), AFTER_GAP if self._has_gap else PIECE) + piece)
        self._has_gap = False
        return True

    def _hear(self) -> None:
        """Take one reading of answers; those that come in the middle of a line wait for its end."""
        if self._process is None:
            return
        assert self._process.stdout is not None, "it is a pipe"
        try:
            data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data and not self._has_ended:
            self._give_up("it ended before its time")
            return
        *lines, self._answers = (self._answers + data).split(b"\n")
        try:
            if len(self._answers) > _LONGEST_ANSWER:
                raise ValueError("an answer without an end")
            for line in lines:
                self._heed(json.loads(line))
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            log.error("the search for metrics answered nonsense", extra={"why": str(error)})
            self._give_up("it gave an answer that makes no sense")

    def _heed(self, answer: Mapping[str, Any]) -> None:
        """The process has less rights than this one, so what it says is taken for no more than it may be."""
        if "values" in answer:
            self._series.add(self._known(answer["metric"]), _finite(answer["values"]), self._time())
        elif "searched" in answer:
            self._searching.popleft()
        elif "lapsed" in answer:
            for name in answer["lapsed"]:
                self._series.lapse(self._known(name))
        elif "note" in answer and self._notes_left:
            self._notes_left -= 1
            self._reports.note(str(answer["note"])[:_LONGEST_NOTE])
        self._has_ended = self._has_ended or "end" in answer

    def _known(self, name: str) -> str:
        if name not in self._names:
            raise ValueError("a metric that was not defined")
        return name

    def _time(self) -> int:
        """When what is being searched was written; a line without an end is found when all is searched."""
        return self._searching[0][1] if self._searching else now_us()

    def _give_up(self, why: str) -> None:
        self._reports.note(f"Metrics are extracted no further, because the search for them failed: {why}.")
        self.close()


def _finite(values: Sequence[float]) -> list[float]:
    numbers = [float(value) for value in values]
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("values that are not finite numbers")
    return numbers
