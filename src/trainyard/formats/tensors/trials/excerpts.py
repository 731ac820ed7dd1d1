"""Parts of one tensor that fit on a page: its distribution over the steps, and a rectangle of its elements."""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.recordings.contract import RowValues, WorkerRecording
from trainyard.formats.tensors.recordings.step_index import Numbers
from trainyard.formats.tensors.statistics import histograms

# Bins of a histogram that is computed from raw values.
BINS: Final = 64
# What is read of raw values for the histograms of a tensor; it bounds the number of steps.
MAX_RAW_BYTES: Final = 64 << 20
# Rows of a rectangle that are closer together than this are read at once.
_GAP_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Distributions:
    """Histograms over the same bins: steps x bins. `edges` are one more than the bins.

    If nothing is recorded, they are computed from the raw values of saved steps. `steps_left_out` says how many steps
    with a distribution are not among them.
    """

    steps: Numbers
    edges: NDArray[np.float64]
    counts: NDArray[np.uint32]
    is_recorded: bool
    steps_left_out: int


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Elements of a tensor in a step as a matrix: its last axis in columns, all others in rows."""

    shape: tuple[int, ...]
    dtype: str
    # Of the whole matrix.
    rows: int
    columns: int
    first_row: int
    first_column: int
    values: NDArray[np.float64]


def read_distributions(
    worker: WorkerRecording, name: str, rows: Numbers, labels: Numbers, *, max_steps: int
) -> Distributions:
    """Return the histograms of a tensor in some rows, which ascend; `labels` are the numbers of their steps."""
    recorded = worker.histograms(name)
    wanted = np.isin(recorded.rows, rows, assume_unique=True)
    if wanted.any():
        found = RowValues(recorded.rows[wanted], recorded.values[wanted])
        chosen = _space_evenly(len(found.rows), max_steps)
        counts, steps = found.values[chosen], labels[np.searchsorted(rows, found.rows[chosen])]
        return _trim_bins(steps, counts, left_out=len(found.rows) - len(chosen))
    return _compute_distributions(worker, name, rows, labels, max_steps=max_steps)


def read_rectangle(
    worker: WorkerRecording, name: str, row: int, *, first_row: int, first_column: int, rows: int, columns: int
) -> Rectangle | None:
    """Return a rectangle of a tensor in a row of the recording; None if its values were not saved there."""
    info = worker.info(name, row)
    scalar = worker.scalar(name, row)
    if info is None:
        return None
    if worker.raw_bytes(name, row) is None:
        if scalar is None:
            return None
        return Rectangle(info.shape, info.dtype, 1, 1, 0, 0, np.array([[scalar]], np.float64))
    width = info.shape[-1] if info.shape else 1
    height = prod(info.shape[:-1]) if info.shape else 1
    first_row, first_column = min(first_row, height), min(first_column, width)
    shown = (min(rows, height - first_row), min(columns, width - first_column))
    values = np.empty(shown, np.float64)
    # Whole rows are one piece of the file, unless they are too wide for that.
    is_wide = width * 8 > _GAP_BYTES
    for place in range(shown[0]) if is_wide else range(min(1, shown[0])):
        start = (first_row + place) * width + (first_column if is_wide else 0)
        part = worker.raw_part(name, row, start, shown[1] if is_wide else shown[0] * width)
        if part is None:
            return None
        flat = np.asarray(part.array(), np.float64)
        if is_wide:
            values[place] = flat
        else:
            values[:] = flat.reshape(shown[0], width)[:, first_column : first_column + shown[1]]
    return Rectangle(info.shape, info.dtype, height, width, first_row, first_column, values)


def _compute_distributions(
    worker: WorkerRecording, name: str, rows: Numbers, labels: Numbers, *, max_steps: int
) -> Distributions:
    saved = np.intersect1d(worker.saved_rows(name), rows, assume_unique=True)
    sizes = [worker.raw_bytes(name, int(row)) for row in saved[:1]]
    steps = min(max_steps, max(1, MAX_RAW_BYTES // max(1, sizes[0] or 1))) if sizes else 0
    chosen = saved[_space_evenly(len(saved), steps)]
    edges = _edges(worker, name, chosen)
    known: list[int] = []
    counts: list[NDArray[np.uint32]] = []
    for row in chosen.tolist():
        raw = worker.raw_part(name, row, 0, MAX_RAW_BYTES)
        if raw is not None:
            known.append(row)
            counts.append(_count(np.asarray(raw.array()), edges))
    stacked = np.stack(counts) if counts else np.empty((0, BINS), np.uint32)
    steps_known = labels[np.searchsorted(rows, np.array(known, np.int64))]
    return Distributions(steps_known, edges, stacked, is_recorded=False, steps_left_out=len(saved) - len(known))


def _edges(worker: WorkerRecording, name: str, rows: Numbers) -> NDArray[np.float64]:
    """Return even bins from the smallest to the largest finite element in some rows."""
    lows, highs = (worker.series(name, word) for word in ("min", "max"))
    bounds: list[float] = []
    for found in (lows, highs):
        values = np.asarray(found.values[np.isin(found.rows, rows)], np.float64)
        bounds += values[np.isfinite(values)].tolist()
    low, high = (min(bounds), max(bounds)) if bounds else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, BINS + 1)


def _count(values: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.uint32]:
    wide = np.asarray(values, np.float64).reshape(-1)
    # The bounds are 32-bit floats, so that the outermost elements may be just beyond them.
    inside = np.clip(wide[np.isfinite(wide)], edges[0], edges[-1])
    return np.histogram(inside, edges)[0].astype(np.uint32)


def _trim_bins(steps: Numbers, counts: NDArray[np.uint32], *, left_out: int) -> Distributions:
    """Return recorded histograms without the bins at both ends that are empty in all of them."""
    filled = np.flatnonzero(counts.any(axis=0))
    first, last = (int(filled[0]), int(filled[-1])) if filled.size else (histograms.ZERO, histograms.ZERO)
    edges = histograms.edges()[first : last + 2]
    return Distributions(steps, edges, counts[:, first : last + 1], is_recorded=True, steps_left_out=left_out)


def _space_evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return up to `most` evenly spaced places, with the first and the last."""
    if count <= most:
        return np.arange(count)
    if most < 2:
        return np.arange(count)[-most:] if most else np.empty(0, np.int64)
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(np.int64))
