"""A statistic of many tensors over a long run, reduced to a grid that fits a chart.

The steps are divided into groups of about the same size. A cell stands for one tensor in one group of steps, and keeps
the extremes, so that a spike in a single step is visible at any resolution.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Statistic, Statistics, TensorInfo
from trainyard.formats.tensors.recordings.contract import WorkerRecording
from trainyard.formats.tensors.recordings.step_index import Numbers
from trainyard.formats.tensors.statistics import reductions

# What a cell is known to hold, the worst of its steps.
NOTHING: Final = 0
FINITE: Final = 1
INFINITE: Final = 2
NOT_A_NUMBER: Final = 3

# Rows that are computed at once, so that memory depends on the number of tensors alone.
_ROWS = 256

Grid = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StatisticsGrid:
    """Cells by tensor and group of steps.

    `means`, `minima` and `maxima` are of the finite values in a cell, NaN if there is none. `contents` says whether the
    tensor was captured there, and whether one of its elements was infinite or not a number.
    """

    tensors: tuple[str, ...]
    first_steps: Numbers
    last_steps: Numbers
    means: Grid
    minima: Grid
    maxima: Grid
    contents: NDArray[np.uint8]


def reduce_to_grid(
    worker: WorkerRecording, rows: Numbers, labels: Numbers, *, names: Sequence[str], statistic: str, max_groups: int
) -> StatisticsGrid:
    """Return the grid of some tensors in some rows, which ascend; `labels` are the numbers of their steps."""
    count = min(max_groups, len(rows))
    bounds = np.linspace(0, len(rows), count + 1).astype(np.int64)
    cells = _Cells(len(names), count)
    groups = np.repeat(np.arange(count), np.diff(bounds))
    if statistic in reductions.STATISTICS:
        for part in _parts(worker, rows, names):
            cells.add_statistics(part, groups[part.rows], statistic)
    else:
        for place, name in enumerate(names):
            found = worker.series(name, statistic)
            wanted = np.isin(found.rows, rows, assume_unique=True)
            where = np.searchsorted(rows, found.rows[wanted])
            cells.add_series(place, groups[where], found.values[wanted])
    firsts, lasts = labels[bounds[:-1]], labels[bounds[1:] - 1]
    return cells.grid(tuple(names), firsts, lasts)


@dataclass(frozen=True, slots=True)
class _GridPart:
    """The statistics of consecutive rows: rows x tensors x columns, with the places of the tensors in the grid."""

    rows: slice
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    statistics: Statistics


def _parts(worker: WorkerRecording, rows: Numbers, names: Sequence[str]) -> Iterator[_GridPart]:
    wanted = {name: place for place, name in enumerate(names)}
    tensors: Sequence[TensorInfo] | None = None
    places, indices, sizes = (np.empty(0, np.int64) for _ in range(3))
    for block in worker.statistics_blocks(slice(int(rows[0]), int(rows[-1]) + 1)) if len(rows) else ():
        if block.tensors is not tensors:
            tensors = block.tensors
            found = [(wanted[each.name], index) for index, each in enumerate(tensors) if each.name in wanted]
            places, indices = (
                (np.array(column, np.int64) for column in zip(*found, strict=True))
                if found
                else (
                    np.empty(0, np.int64),
                    np.empty(0, np.int64),
                )
            )
            sizes = np.array([tensors[index].size for index in indices.tolist()], np.int64)
        first, end = (int(each) for each in np.searchsorted(rows, [block.rows.start, block.rows.stop]))
        for start in range(first, end if len(places) else first, _ROWS):
            some = slice(start, min(start + _ROWS, end))
            yield _GridPart(some, places, sizes, block.statistics[rows[some] - block.rows.start][:, indices])


class _Cells:
    """The sums and extremes of the cells while values are added."""

    def __init__(self, tensors: int, groups: int) -> None:
        shape = (groups, tensors)
        self._sums, self._counts = np.zeros(shape), np.zeros(shape, np.int64)
        self._minima, self._maxima = np.full(shape, np.inf, np.float32), np.full(shape, -np.inf, np.float32)
        self._contents = np.zeros(shape, np.uint8)

    def add_statistics(self, part: _GridPart, groups: NDArray[np.int64], statistic: str) -> None:
        values = reductions.derive(part.statistics, statistic, size=part.sizes)
        nans, infs = part.statistics[..., Statistic.NANS], part.statistics[..., Statistic.INFS]
        contents = np.full(values.shape, FINITE, np.uint8)
        contents[infs > 0] = INFINITE
        contents[nans > 0] = NOT_A_NUMBER
        contents[nans == ABSENT] = NOTHING
        self._add(part.places, groups, values, contents)

    def add_series(self, place: int, groups: NDArray[np.int64], values: NDArray[np.generic]) -> None:
        wide = np.asarray(values, np.float64)[:, None]
        contents = np.where(np.isnan(wide), NOT_A_NUMBER, np.where(np.isinf(wide), INFINITE, FINITE)).astype(np.uint8)
        self._add(np.array([place]), groups, wide, contents)

    def grid(self, tensors: tuple[str, ...], first_steps: Numbers, last_steps: Numbers) -> StatisticsGrid:
        is_empty = self._counts == 0
        means = np.full(self._sums.shape, np.nan, np.float32)
        with np.errstate(over="ignore"):
            np.divide(self._sums, self._counts, out=means, where=~is_empty, casting="same_kind")
        self._minima[is_empty] = self._maxima[is_empty] = np.nan
        return StatisticsGrid(
            tensors,
            first_steps,
            last_steps,
            np.ascontiguousarray(means.T),
            np.ascontiguousarray(self._minima.T),
            np.ascontiguousarray(self._maxima.T),
            np.ascontiguousarray(self._contents.T),
        )

    def _add(
        self,
        places: NDArray[np.int64],
        groups: NDArray[np.int64],
        values: NDArray[np.float64],
        contents: NDArray[np.uint8],
    ) -> None:
        """Add values, rows x tensors, whose rows belong to groups in ascending order."""
        if not len(groups):
            return
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        # Beyond 32 bits a value is as good as infinite.
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        is_finite = np.isfinite(narrow)
        cells = np.ix_(groups[starts], places)
        self._sums[cells] += np.add.reduceat(np.where(is_finite, values, 0.0), starts)
        self._counts[cells] += np.add.reduceat(is_finite, starts, dtype=np.int64)
        lows, highs = (np.where(is_finite, narrow, edge).astype(np.float32) for edge in (np.inf, -np.inf))
        self._minima[cells] = np.minimum(self._minima[cells], np.minimum.reduceat(lows, starts))
        self._maxima[cells] = np.maximum(self._maxima[cells], np.maximum.reduceat(highs, starts))
        self._contents[cells] = np.maximum(self._contents[cells], np.maximum.reduceat(contents, starts))
