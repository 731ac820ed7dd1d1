"""Compares two runs of a training: finds the first step, and the first tensor in it, in which they differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.recordings.contract import WorkerRecording
from trainyard.formats.tensors.recordings.step_index import Numbers
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.trials.statistics_table import tabulate
from trainyard.formats.tensors.trials.trial import Trial

_CHUNK_STEPS = 256


@dataclass(frozen=True, slots=True)
class Divergence:
    """A statistic of a tensor that differs between two runs."""

    step: int
    mode: Mode
    mode_step: int
    worker: str
    tensor: str
    statistic: str
    left: float
    right: float

    def __str__(self) -> str:
        return (
            f"The runs differ first in step {self.step} ({self.mode} {self.mode_step}), {self.worker}: "
            f"{self.statistic} of {self.tensor} is {self.left:.9g} and {self.right:.9g}."
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison of two runs. `first` is None if nothing that both have differs."""

    first: Divergence | None
    # Steps and tensors that both have.
    steps: int
    tensors: int
    # All tensors that differ in the first step with a difference, in order of computation.
    differing: tuple[str, ...] = ()
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether there was anything to compare, and nothing differs."""
        return self.first is None and self.steps > 0


def compare(left: Trial, right: Trial, *, rtol: float = 0.0) -> Comparison:
    """Compare the statistics of all tensors that two runs have in common, step by step and worker by worker.

    Numbers are the same if they are equal, or differ by at most `rtol` times the larger magnitude; a NaN is the same as
    a NaN. The tensors are in the order in which a step computes them, so the first one that differs is at the cause or
    next to it.
    """
    ours, theirs = left.recordings(), right.recordings()
    found = [_compare_worker(ours[name], theirs[name], rtol=rtol) for name in ours if name in theirs]
    if not found:
        return Comparison(None, 0, 0)
    return min(found, key=lambda each: each.first.step if each.first else np.inf)


def _compare_worker(left: WorkerRecording, right: WorkerRecording, *, rtol: float) -> Comparison:
    names = [name for name in left.tensors() if name in right.tensors()]
    steps = np.intersect1d(left.index.numbers, right.index.numbers, assume_unique=True)
    only_left = tuple(name for name in left.tensors() if name not in right.tensors())
    only_right = tuple(name for name in right.tensors() if name not in left.tensors())
    for chunk in _chunks(steps):
        differing = _first_differences(left, right, chunk, names=names, rtol=rtol)
        if differing:
            tensors = tuple(dict.fromkeys(each.tensor for each in differing))
            return Comparison(differing[0], len(steps), len(names), tensors, only_left, only_right)
    return Comparison(None, len(steps), len(names), (), only_left, only_right)


def _chunks(steps: Numbers) -> Iterator[Numbers]:
    for first in range(0, len(steps), _CHUNK_STEPS):
        yield steps[first : first + _CHUNK_STEPS]


def _first_differences(
    left: WorkerRecording, right: WorkerRecording, steps: Numbers, *, names: Sequence[str], rtol: float
) -> list[Divergence]:
    """Return the differences in the first of these steps that has any."""
    rows = [np.searchsorted(worker.index.numbers, steps) for worker in (left, right)]
    ours, theirs = (
        tabulate(worker, each, names=names, statistics=reductions.COLUMNS)
        for worker, each in zip((left, right), rows, strict=True)
    )
    # A tensor that one run left out, to keep within its budget, says nothing about the other run.
    are_known = ours.is_known & theirs.is_known
    differs = are_known[..., None] & ~_is_same(ours.values, theirs.values, rtol=rtol)
    differing_steps = np.flatnonzero(differs.any(axis=(1, 2)))
    if not len(differing_steps):
        return []
    step = int(differing_steps[0])
    row = int(rows[0][step])
    return [
        Divergence(
            int(steps[step]),
            left.index.mode(row),
            int(left.index.mode_steps[row]),
            left.name,
            names[tensor],
            reductions.COLUMNS[statistic],
            float(ours.values[step, tensor, statistic]),
            float(theirs.values[step, tensor, statistic]),
        )
        for tensor, statistic in np.argwhere(differs[step])
    ]


def _is_same(left: NDArray[np.floating], right: NDArray[np.floating], *, rtol: float) -> NDArray[np.bool_]:
    same = np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))
    if rtol:
        with np.errstate(invalid="ignore", over="ignore"):
            same |= np.abs(left - right) <= rtol * np.maximum(np.abs(left), np.abs(right))
    return same
