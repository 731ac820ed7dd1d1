"""The process beside the agent that searches the output of a program for metrics.

Regular expressions of users may take any time and much memory, and the libraries that run them are written in C. So
they run in a process of their own, as the job's user and with a memory limit, and the agent never waits for it. The
agent writes to its standard input: the definitions as a line of JSON, then pieces of output, each after a `HEADER`. It
answers in JSON, one object per line:

    {"metric": NAME, "values": [...]}   values in the current piece
    {"note": TEXT}                      a note for the user
    {"searched": BYTES}                 the piece is done
    {"lapsed": [NAME, ...]}             metrics whose last value was not finite
    {"end": true}                       everything is done; nothing follows
"""

import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, BinaryIO

from trainyard.formats.extraction import MetricScanner, MetricValue
from trainyard.formats.patterns import LinePattern
from trainyard.instance.sandbox import system_calls
from trainyard.link.contract import MetricSpec

# The number of bytes that follow, and their kind.
HEADER = struct.Struct("<IB")
PIECE, AFTER_GAP, END = range(3)

# Small steps, because 40 metrics in lines of two bytes are 20 values per byte.
_STEP_BYTES = 16 * 1024
_VALUES_PER_ANSWER = 1024
# Address space; at most a tenth of it is resident.
_MEMORY_BYTES = 1 << 30
_NICE_AFTER_CPU_S = 1.0
_NICENESS = 10


def main() -> None:
    """Run the scanner. The last arguments are the agent's pid and the job's uid, empty if that is the agent's own."""
    *_, agent, uid = sys.argv
    # Imports the engine for expressions while its files can be read: the job's user may not be allowed to.
    LinePattern("")
    _drop_privileges(int(uid) if uid else None)
    if os.getppid() != int(agent):
        # The agent ended before the kernel was asked to kill this process with it.
        return
    definitions = [MetricSpec(name, regex) for name, regex in json.loads(sys.stdin.buffer.readline())]
    _ScannerProcess(definitions, sys.stdin.buffer, sys.stdout.buffer).run()


def _drop_privileges(uid: int | None) -> None:
    if uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    system_calls.forbid_new_privileges()
    system_calls.set_dumpable(0)
    system_calls.die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _ScannerProcess:
    def __init__(self, definitions: Sequence[MetricSpec], source: BinaryIO, answers: BinaryIO) -> None:
        self._source = source
        self._answers = answers
        self._is_nice = False
        self._scanner = MetricScanner(definitions, note=lambda text: self._answer(note=text))

    def run(self) -> None:
        while header := self._source.read(HEADER.size):
            size, kind = HEADER.unpack(header)
            if kind == END:
                self._finish()
                return
            if kind == AFTER_GAP:
                self._scanner.skip()
            self._scan(self._source.read(size))
            self._lower_priority()

    def _scan(self, data: bytes) -> None:
        for start in range(0, len(data), _STEP_BYTES):
            self._answer_values(self._scanner.scan(data[start : start + _STEP_BYTES]))
        self._answer(searched=len(data))

    def _finish(self) -> None:
        self._answer_values(self._scanner.finish())
        self._answer(lapsed=self._scanner.diverged_metrics())
        for sentence in self._scanner.misses():
            self._answer(note=sentence)
        self._answer(end=True)

    def _answer_values(self, values: Iterable[MetricValue]) -> None:
        for name, found in groupby(values, key=lambda each: each.metric):
            numbers = [each.value for each in found]
            for start in range(0, len(numbers), _VALUES_PER_ANSWER):
                self._answer(metric=name, values=numbers[start : start + _VALUES_PER_ANSWER])

    def _answer(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer).encode() + b"\n")
        self._answers.flush()

    def _lower_priority(self) -> None:
        """Leave the processors to programs once this takes long. Short jobs wait for their metrics, so not at once."""
        if not self._is_nice and time.process_time() > _NICE_AFTER_CPU_S:
            os.nice(_NICENESS)
            self._is_nice = True
