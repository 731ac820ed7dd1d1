"""Writes the steps of this rank to a file, which grows slowly however fast the steps are.

Short steps share rows, except for steps that take much longer than those before. How much time a row covers grows with
the length of the training, so that weeks of it fit in a few megabytes.
"""

import json
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.step_times import (
    FACTS_SUFFIX,
    HEADER,
    MAX_BYTES,
    SUFFIX,
    StepRow,
    encode_row,
)

# These many steps have rows of their own, however short they are.
_FIRST_ROWS = 500
_MIN_ROW_US = 100_000
# Rows cover this share of the training so far.
_ROW_SHARE = 1 / 20_000
# A step this many times as long as the mean has a row of its own.
_LONG = 2.0
_FLUSH_S = 1.0
_FACTS_S = 5.0


class StepFile:
    """The file of one rank. `facts` returns what else is known about the program, as JSON values.

    A file that cannot be written ends the recording, and nothing else.
    """

    def __init__(
        self, folder: Path, name: str, facts: Callable[[], Mapping[str, Any]], *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._path, self._facts_path = folder / f"{name}{SUFFIX}", folder / f"{name}{FACTS_SUFFIX}"
        self._facts = facts
        self._max_bytes = max_bytes
        self._written: Mapping[str, Any] | None = None
        self._file: int | None = None
        self._size = 0
        self._buffer = bytearray()
        self._row: _OpenRow | None = None
        self._rows = 0
        self._first_us = 0
        self._mean_us = 0.0
        self._flush_at = self._facts_at = 0.0
        self.is_off = False

    def add(self, steps: Sequence[StepRow]) -> None:
        """Add the steps that followed the ones before. Many at once cost little each."""
        for step in steps:
            self._add(step)
        now = time.monotonic()
        if now >= self._flush_at:
            self.flush(now)

    def _add(self, step: StepRow) -> None:
        _, _, mode, started_us, ended_us, _ = step
        took_us = ended_us - started_us
        if self._rows < _FIRST_ROWS:
            self._first_us = self._first_us or started_us
            self._mean_us += (took_us - self._mean_us) / (self._rows + 1)
            is_long = False
        else:
            is_long = took_us > _LONG * self._mean_us
            self._mean_us += (took_us - self._mean_us) * 0.05
        row = self._row
        if row is not None and not is_long and row.mode == mode and not self._is_full(row):
            row.add(step)
            return
        if row is not None:
            self._write_row(row)
        self._row = _OpenRow(step)
        if is_long:
            self._write_row(self._row)
            self._row = None

    def flush(self, now: float) -> None:
        """Write the rows that are full."""
        self._flush_at = now + _FLUSH_S
        if self.is_off:
            return
        try:
            self._append()
            if now >= self._facts_at:
                self._facts_at = now + _FACTS_S
                self._write_facts()
        except (OSError, ValueError):
            self.is_off = True

    def close(self) -> None:
        """Write the last row as well."""
        if self._row is not None:
            self._write_row(self._row)
            self._row = None
        self._facts_at = 0.0
        self.flush(time.monotonic())
        self.forget()

    def forget(self) -> None:
        """Close the file without writing."""
        self.is_off = True
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_full(self, row: "_OpenRow") -> bool:
        took_us = row.ended_us - row.started_us
        if took_us < _MIN_ROW_US and self._rows >= _FIRST_ROWS:
            return False
        return self._rows < _FIRST_ROWS or took_us >= (row.ended_us - self._first_us) * _ROW_SHARE

    def _write_row(self, row: "_OpenRow") -> None:
        self._rows += 1
        self._buffer += encode_row(row.closed())

    def _append(self) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._create()
            self._size = os.write(self._file, HEADER)
        if self._size + len(self._buffer) > self._max_bytes:
            raise OSError("the file of step times is full")
        self._size += os.write(self._file, self._buffer)
        self._buffer.clear()

    def _create(self) -> int:
        """Create the file. Another process may have the same rank: a program may run trainings of its own."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags | os.O_EXCL, 0o644)
        except FileExistsError:
            name = f"{self._path.stem}-{os.getpid()}"
            self._path, self._facts_path = self._path.with_stem(name), self._facts_path.with_stem(name)
            return os.open(self._path, flags | os.O_TRUNC, 0o644)

    def _write_facts(self) -> None:
        facts = self._facts()
        if facts == self._written:
            return
        temporary = self._facts_path.with_suffix(".part")
        temporary.write_text(json.dumps(facts))
        temporary.replace(self._facts_path)
        self._written = facts


class _OpenRow:
    """A row to which steps are added until it is written."""

    __slots__ = ("_number", "_phases_ns", "_steps", "ended_us", "mode", "started_us")

    def __init__(self, step: StepRow) -> None:
        self._number, self._steps, self.mode, self.started_us, self.ended_us, self._phases_ns = step

    def add(self, step: StepRow) -> None:
        self._steps += step.steps
        self.ended_us = step.ended_us
        self._phases_ns = list(map(operator.add, self._phases_ns, step.phases_ns))

    def closed(self) -> StepRow:
        return StepRow(self._number, self._steps, self.mode, self.started_us, self.ended_us, self._phases_ns)
