"""The learning curves of the trials of recently viewed tuning jobs, in memory. A later look reads only what is new."""

import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.formats.downsampling import find_extremes
from trainyard.foundation.jobs.tuning import TuningTrial
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.records.contract import ResourceId

MAX_TUNING_JOBS = 16
# Of the curve of a trial that has ended. A chart of many trials has no room for more.
MAX_POINTS = 500


@dataclass(frozen=True, slots=True)
class ReducedCurve:
    """The curve of one trial with fewer points. `reports` are the numbers of the points, from 1; `total` counts all.

    `change` is the number of its last change among those of all curves of the tuning job.
    """

    number: int
    total: int
    reports: tuple[int, ...]
    values: tuple[float, ...]
    change: int = 0


@dataclass(frozen=True, slots=True)
class CurveTable:
    """The curves of a tuning job, by number. The numbers of changes mean something only together with the id."""

    id: str
    curves: Sequence[ReducedCurve]


@dataclass(slots=True)
class _CurveTable:
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    ended: dict[int, ReducedCurve] = field(default_factory=dict)
    running: dict[int, LiveCurve] = field(default_factory=dict)
    changes_of: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class TrialCurves:
    """Reads the curves of trials. Safe to share between threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, _CurveTable] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, jobs: Path, study: str, trials: Iterable[tuple[TuningTrial, str]]) -> CurveTable:
        """Return the curves of trials of a tuning job; each trial comes with the name of its objective metric."""
        table = self._table(study)
        with table.lock:
            found = [_read_curve(table, jobs, trial, metric=metric) for trial, metric in trials]
            return CurveTable(table.id, [curve for curve in found if curve.total])

    def _table(self, study: str) -> _CurveTable:
        with self._lock:
            table = self._tables.setdefault(study, _CurveTable())
            self._tables.move_to_end(study)
            while len(self._tables) > MAX_TUNING_JOBS:
                self._tables.popitem(last=False)
            return table


def reduce_curve(curve: ReducedCurve, most: int) -> ReducedCurve:
    """Return a curve with at most so many points: the first, the last, and the extremes of equal parts."""
    count = len(curve.values)
    if count <= most:
        return curve
    part = -(-2 * count // max(2, most - 2))
    kept = sorted({0, *find_extremes(curve.values, part), count - 1})
    return ReducedCurve(
        curve.number,
        curve.total,
        tuple(curve.reports[index] for index in kept),
        tuple(curve.values[index] for index in kept),
        curve.change,
    )


def _read_curve(table: _CurveTable, jobs: Path, trial: TuningTrial, *, metric: str) -> ReducedCurve:
    known = table.ended.get(trial.number)
    if known is not None:
        return known
    live = table.running.setdefault(trial.number, LiveCurve(jobs, ResourceId(trial.job_id), metric))
    # A tuning job stores the curves that it decides by; files of jobs may be gone after some time.
    values = list(trial.curve)
    if not values:
        if live.read():
            table.changes += 1
            table.changes_of[trial.number] = table.changes
        values = live.values
    elif trial.number not in table.changes_of:
        table.changes += 1
        table.changes_of[trial.number] = table.changes
    change = table.changes_of.get(trial.number, 0)
    # What is no number cannot be drawn, and JSON has no word for it.
    finite = [(report, value) for report, value in enumerate(values, 1) if math.isfinite(value)]
    reports, numbers = tuple(report for report, _ in finite), tuple(value for _, value in finite)
    whole = ReducedCurve(trial.number, len(values), reports, numbers, change)
    curve = reduce_curve(whole, MAX_POINTS)
    if trial.has_ended:
        del table.running[trial.number]
        table.ended[trial.number] = curve
    return curve
