"""Where two runs of a training come apart: the first step, and in it the first tensor in the order of computation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors import reductions
from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.recording import WorkerRecording
from trainyard.formats.tensors.step_index import Numbers
from trainyard.formats.tensors.tabulation import tabulate
from trainyard.formats.tensors.trial import Trial

_AT_ONCE = 256  # steps


@dataclass(frozen=True, slots=True)
class Divergence:
    """A number of a tensor that is not the same in both runs."""

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
    """What the comparison of two runs showed. `first` is None where nothing that both have differs."""

    first: Divergence | None
    steps: int  # that both have
    tensors: int  # that both have
    differing: tuple[str, ...] = ()  # all tensors that differ in the first step in which one does, in their order
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether there was anything to compare, and none of it differs."""
        return self.first is None and self.steps > 0


def compare(left: Trial, right: Trial, *, rtol: float = 0.0) -> Comparison:
    """Compare the statistics of all tensors that two runs have in common, step by step and worker by worker.

    Numbers are the same when they are equal, or differ by no more than `rtol` times the larger magnitude; a NaN is the
    same as a NaN. The tensors stand in the order in which a step makes them, so that the first one that differs is
    where the cause is, or next to it.
    """
    ours, theirs = left.recordings(), right.recordings()
    found = [_compared(ours[name], theirs[name], rtol=rtol) for name in ours if name in theirs]
    if not found:
        return Comparison(None, 0, 0)
    return min(found, key=lambda each: each.first.step if each.first else np.inf)


def _compared(left: WorkerRecording, right: WorkerRecording, *, rtol: float) -> Comparison:
    names = [name for name in left.tensors() if name in right.tensors()]
    steps = np.intersect1d(left.index.numbers, right.index.numbers, assume_unique=True)
    only_left = tuple(name for name in left.tensors() if name not in right.tensors())
    only_right = tuple(name for name in right.tensors() if name not in left.tensors())
    for some in _portions(steps):
        differing = _differing(left, right, some, names=names, rtol=rtol)
        if differing:
            tensors = tuple(dict.fromkeys(each.tensor for each in differing))
            return Comparison(differing[0], len(steps), len(names), tensors, only_left, only_right)
    return Comparison(None, len(steps), len(names), (), only_left, only_right)


def _portions(steps: Numbers) -> Iterator[Numbers]:
    for first in range(0, len(steps), _AT_ONCE):
        yield steps[first : first + _AT_ONCE]


def _differing(
    left: WorkerRecording, right: WorkerRecording, steps: Numbers, *, names: Sequence[str], rtol: float
) -> list[Divergence]:
    """What differs in the first of some steps in which anything does."""
    rows = [np.searchsorted(worker.index.numbers, steps) for worker in (left, right)]
    ours, theirs = (
        tabulate(worker, each, names=names, statistics=reductions.COLUMNS)
        for worker, each in zip((left, right), rows, strict=True)
    )
    # A tensor that one run left out, to keep within its budget, tells nothing about the other.
    are_known = ours.is_known & theirs.is_known
    differs = are_known[..., None] & ~_is_same(ours.values, theirs.values, rtol=rtol)
    apart = np.flatnonzero(differs.any(axis=(1, 2)))
    if not len(apart):
        return []
    step = int(apart[0])
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
