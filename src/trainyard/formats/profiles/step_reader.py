"""Reads the step times of an instance, and the facts beside them, as numpy arrays.

A program may have written anything there. What cannot be steps is left out with a note, and nothing raises. Memory is
bounded: rows of long trainings are joined until there are few enough.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import (
    FACTS_SUFFIX,
    HEADER,
    MAX_BYTES,
    MAX_FACTS_BYTES,
    MODES,
    ROW_BYTES,
    SUFFIX,
)

MAX_ROWS = 50_000
_MAX_FILES = 1024
_MAX_NOTES = 20
_BATCH_ROWS = 16_384
# Years from 1970 to 2262; numbers beyond are no times.
_MAX_US = 2**63 // 1000
_MAX_NUMBER = 2**53
# Rounding to whole microseconds, by step, and what phases may exceed their step by.
_ROUNDING_US, _EXCESS = 2, 1.01
# Rows with steps this many times as long as usual are not joined with others, if they are few.
_LONG, _MAX_LONG_SHARE = 3.0, 0.05
_NAME = re.compile(r"worker_(0|[1-9][0-9]{0,6})(-[0-9]{1,10})?")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ROW = np.dtype(
    [
        *(("number", "<u8"), ("count", "<u4"), ("mode", "<u4"), ("start_us", "<i8"), ("end_us", "<i8")),
        ("phases_ns", "<u8", (len(StepPhase),)),
    ]
)
assert _ROW.itemsize == ROW_BYTES, "a row is read as it is written"

_Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class StepFileTable:
    """Rows of steps in order of time, as in a file of step times. `modes` are positions in `MODES`."""

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    modes: NDArray[np.int64]
    starts_us: NDArray[np.int64]
    ends_us: NDArray[np.int64]
    phases_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps that one process of a rank recorded, and its facts as it wrote them. `name` is that of the rank."""

    name: str
    rank: int
    steps: StepFileTable
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepFolder:
    """What a folder of step times holds. `notes` are sentences about what could not be read."""

    processes: Sequence[RankSteps]
    notes: Sequence[str]


def read_step_folder(folder: Path, *, max_rows: int = MAX_ROWS) -> StepFolder:
    """Return the steps of all processes that have any, by rank and time. The files may be written to meanwhile."""
    notes: list[str] = []
    processes = []
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - only the names count
    except OSError:
        return StepFolder((), ())
    found = [name for name in names if name.endswith(SUFFIX)]
    for name in found[:_MAX_FILES]:
        match = _NAME.fullmatch(name.removesuffix(SUFFIX))
        if match is None:
            notes.append(f"The file {_quote_name(name)} is not named after a worker, so it is not read as step times.")
            continue
        steps = _read_steps(folder / name, max_rows, notes)
        if len(steps):
            facts = _read_facts(folder / f"{match[0]}{FACTS_SUFFIX}", notes)
            processes.append(RankSteps(f"worker_{match[1]}", int(match[1]), steps, facts))
    if len(found) > _MAX_FILES:
        notes.append(f"The step times of {len(found) - _MAX_FILES} more processes are not read.")
    if len(notes) > _MAX_NOTES:
        notes = [*notes[:_MAX_NOTES], f"{len(notes) - _MAX_NOTES} more files of step times have faults."]
    processes.sort(key=lambda each: (each.rank, int(each.steps.starts_us[0])))
    return StepFolder(processes, notes)


def _read_steps(file: Path, max_rows: int, notes: list[str]) -> StepFileTable:
    rows = np.empty(0, _ROW)
    faulty = 0
    for batch in _batches(file, notes):
        good = batch[_are_steps(batch)]
        faulty += len(batch) - len(good)
        rows = _join_rows(np.concatenate([rows, good]), max_rows)
    if faulty:
        notes.append(f"{faulty} rows of {_quote_name(file.name)} are not step times, and are left out.")
    rows = rows[np.argsort(rows["start_us"], kind="stable")]
    return StepFileTable(
        numbers=rows["number"].astype(np.int64),
        counts=rows["count"].astype(np.int64),
        modes=rows["mode"].astype(np.int64),
        starts_us=rows["start_us"].astype(np.int64),
        ends_us=rows["end_us"].astype(np.int64),
        phases_s=_phases_s(rows),
    )


def _batches(file: Path, notes: list[str]) -> Iterator[_Rows]:
    """Yield the complete rows of a file. A row that is being written does not count."""
    opened = _open_file(file)
    if opened is None:
        notes.append(f"The step times {_quote_name(file.name)} cannot be read.")
        return
    with opened:
        size = os.fstat(opened.fileno()).st_size
        # The writer has not come to the first row yet.
        if not size:
            return
        if opened.read(len(HEADER)) != HEADER:
            notes.append(f"The file {_quote_name(file.name)} is not a file of step times of this version.")
            return
        if size > MAX_BYTES:
            notes.append(f"Only the first {MAX_BYTES // 1024**2} MiB of {_quote_name(file.name)} are read.")
        offset, end = len(HEADER), min(size, MAX_BYTES)
        while end - offset >= ROW_BYTES:
            data = os.pread(opened.fileno(), min(_BATCH_ROWS, (end - offset) // ROW_BYTES) * ROW_BYTES, offset)
            data = data[: len(data) // ROW_BYTES * ROW_BYTES]
            if not data:
                return
            offset += len(data)
            yield np.frombuffer(data, _ROW)


def _open_file(file: Path) -> FileIO | None:
    """Open a regular file, and nothing that a program may have put in its place."""
    try:
        descriptor = os.open(file, _READ)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return FileIO(descriptor)


def _are_steps(rows: _Rows) -> NDArray[np.bool_]:
    starts, ends = rows["start_us"], rows["end_us"]
    is_sound = (rows["count"] > 0) & (rows["mode"] < len(MODES)) & (rows["number"] < _MAX_NUMBER)
    is_sound &= (starts >= 0) & (starts <= ends) & (ends <= _MAX_US)
    spent_us = rows["phases_ns"].astype(np.float64).sum(axis=1) / 1000
    most_us = (ends - starts) * _EXCESS + _ROUNDING_US * rows["count"].astype(np.float64)
    found: NDArray[np.bool_] = is_sound & (spent_us <= most_us)
    return found


def _phases_s(rows: _Rows) -> NDArray[np.float64]:
    """Return the phases, with what none of them claims in OTHER, so that they add up to the rows."""
    phases = rows["phases_ns"].astype(np.float64) / 1e9
    unclaimed = (rows["end_us"] - rows["start_us"]) / 1e6 - phases.sum(axis=1)
    phases[:, StepPhase.OTHER] = np.maximum(phases[:, StepPhase.OTHER] + unclaimed, 0.0)
    return phases


def _join_rows(rows: _Rows, max_rows: int) -> _Rows:
    """Join neighbours of the same mode until there are few enough; rows that cannot be joined are dropped."""
    while len(rows) > max_rows:
        usual = np.median(_step_us(rows))
        is_long = _step_us(rows) > _LONG * usual
        if is_long.mean() > _MAX_LONG_SHARE:
            is_long[:] = False
        is_new = np.ones(len(rows), np.bool_)
        is_new[1:] = (rows["mode"][1:] != rows["mode"][:-1]) | is_long[1:] | is_long[:-1]
        run_start = np.maximum.accumulate(np.where(is_new, np.arange(len(rows)), 0))
        first = np.flatnonzero((np.arange(len(rows)) - run_start) % 2 == 0)
        if len(first) > 0.9 * len(rows):
            return rows[:max_rows]
        last = np.append(first[1:], len(rows)) - 1
        joined = rows[first].copy()
        joined["end_us"] = np.maximum(rows["end_us"][first], rows["end_us"][last])
        # Four bytes hold the count in a file.
        counts = np.add.reduceat(rows["count"].astype(np.uint64), first)
        joined["count"] = np.minimum(counts, 2**32 - 1)
        joined["phases_ns"] = np.add.reduceat(rows["phases_ns"], first, axis=0)
        rows = joined
    return rows


def _step_us(rows: _Rows) -> NDArray[np.float64]:
    duration: NDArray[np.float64] = (rows["end_us"] - rows["start_us"]) / rows["count"]
    return duration


def _read_facts(file: Path, notes: list[str]) -> Mapping[str, Any]:
    opened = _open_file(file)
    if opened is None:
        return {}
    with opened:
        data = opened.read(MAX_FACTS_BYTES + 1)
    try:
        facts = json.loads(data) if len(data) <= MAX_FACTS_BYTES else None
    except (ValueError, RecursionError):
        facts = None
    if isinstance(facts, dict):
        return facts
    notes.append(f"The facts about the program in {_quote_name(file.name)} cannot be read.")
    return {}


def _quote_name(name: str) -> str:
    """Return a file's name for a note: the program may have chosen it."""
    text = "".join(each if each.isprintable() else "?" for each in name)
    return f'"{text if len(text) <= 80 else text[:77] + "..."}"'
