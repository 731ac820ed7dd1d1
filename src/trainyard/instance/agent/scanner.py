"""The process that searches the output of a program for metrics, beside the agent.

Regular expressions of users may take any time and much memory, and the libraries that run them are written in C. So
they run in a process of their own, with the rights of the job's user and a limit on its memory, which the agent never
waits for. The agent writes to its standard input: the definitions as a line of JSON, and then pieces of output, each
behind a `HEADER`. It answers in JSON, one object a line:

    {"metric": NAME, "values": [...]}   values in the piece that is being searched
    {"note": TEXT}                      something that the job's user should know
    {"searched": BYTES}                 the piece is done
    {"lapsed": [NAME, ...]}             the metrics that last captured a number that is not finite
    {"end": true}                       all is done; nothing follows
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

from trainyard.formats.extraction import MetricScanner, Value
from trainyard.formats.patterns import LinePattern
from trainyard.instance.sandbox import system_calls
from trainyard.link.contract import MetricSpec

HEADER = struct.Struct("<IB")  # how many bytes follow, and what they are
PIECE, AFTER_GAP, END = range(3)

_STEP_BYTES = 16 * 1024  # searched at once, because 40 metrics in lines of two bytes are 20 values a byte
_MOST_VALUES = 1024  # of a line of JSON
_MEMORY_BYTES = 1 << 30  # of address space; what is resident is a tenth of it or less
_POLITE_AFTER_S = 1.0
_POLITENESS = 10


def main(arguments: Sequence[str]) -> None:
    """Arguments: the pid of the agent, and the uid of the job, or nothing where that is the agent's own."""
    agent, uid = arguments
    LinePattern("")  # imports what runs expressions, whose files the job's user may not be able to read
    _give_up_rights(int(uid) if uid else None)
    if os.getppid() != int(agent):
        return  # it ended before the kernel could be asked to tell
    definitions = [MetricSpec(name, regex) for name, regex in json.loads(sys.stdin.buffer.readline())]
    _Scanner(definitions, sys.stdin.buffer, sys.stdout.buffer).run()


def _give_up_rights(uid: int | None) -> None:
    if uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    system_calls.forbid_new_privileges()
    system_calls.set_dumpable(0)
    system_calls.die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Scanner:
    def __init__(self, definitions: Sequence[MetricSpec], source: BinaryIO, answers: BinaryIO) -> None:
        self._source = source
        self._answers = answers
        self._is_polite = False
        self._scanner = MetricScanner(definitions, note=lambda text: self._say(note=text))

    def run(self) -> None:
        while header := self._source.read(HEADER.size):
            size, kind = HEADER.unpack(header)
            if kind == END:
                self._finish()
                return
            if kind == AFTER_GAP:
                self._scanner.skip()
            self._search(self._source.read(size))
            self._be_polite()

    def _search(self, data: bytes) -> None:
        for start in range(0, len(data), _STEP_BYTES):
            self._tell(self._scanner.scan(data[start : start + _STEP_BYTES]))
        self._say(searched=len(data))

    def _finish(self) -> None:
        self._tell(self._scanner.finish())
        self._say(lapsed=self._scanner.lapsed())
        for sentence in self._scanner.misses():
            self._say(note=sentence)
        self._say(end=True)

    def _tell(self, values: Iterable[Value]) -> None:
        for name, found in groupby(values, key=lambda each: each.metric):
            numbers = [each.value for each in found]
            for start in range(0, len(numbers), _MOST_VALUES):
                self._say(metric=name, values=numbers[start : start + _MOST_VALUES])

    def _say(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer).encode() + b"\n")
        self._answers.flush()

    def _be_polite(self) -> None:
        """Leave the processors to programs once it takes long; a short job waits for its metrics, and is not slowed."""
        if not self._is_polite and time.process_time() > _POLITE_AFTER_S:
            os.nice(_POLITENESS)
            self._is_polite = True
