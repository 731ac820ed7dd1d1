"""Splits the losses of a training into phases of training and evaluation.

A phase is a run of consecutive steps of one mode: the batches between two evaluations, or those of one evaluation. A
program that never evaluates has phases of `MAX_PHASE_STEPS` steps. The loss of a single batch says little. The means of
phases can be compared, and the scatter of the losses in a phase tells how far its mean can be trusted.

XGBoost reports the losses of all its data at each step, as `train-rmse` and `validation-rmse`. There each step is a
phase of both modes, and the loss is `rmse`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.readings import Reader

# AWS's own interval between two checks of a training.
MAX_PHASE_STEPS = 500
_ROUND_METRIC = re.compile(r"^(?P<data>[A-Za-z_]+)-(?P<loss>[A-Za-z0-9@.:-]+)$")
_TRAINING_DATA = ("train", "training")


@dataclass(frozen=True, slots=True)
class PhaseMean:
    """The mean of a loss over a phase. `noise` is the standard deviation of the loss of a batch around its trend."""

    value: float
    noise: float
    count: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.noise / math.sqrt(self.count)

    def combine(self, other: "PhaseMean") -> "PhaseMean":
        """Return the mean over both."""
        count = self.count + other.count
        value = (self.value * self.count + other.value * other.count) / count
        noise = math.sqrt((self.noise**2 * self.count + other.noise**2 * other.count) / count)
        return PhaseMean(value, noise, count)


@dataclass(frozen=True, slots=True)
class Phase:
    """A completed phase, up to `step`. Its mode is TRAIN for training data, and EVAL for everything else."""

    worker: str
    mode: Mode
    step: int
    losses: dict[str, PhaseMean]


@dataclass(slots=True)
class _OpenPhase:
    mode: Mode
    step: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)

    def add(self, step: int, losses: Iterable[tuple[str, float]]) -> None:
        self.step = step
        for name, value in losses:
            self.losses.setdefault(name, []).append(value)

    def close_as_phase(self, worker: str) -> Phase:
        return Phase(
            worker, self.mode, self.step, {name: summarise_losses(values) for name, values in self.losses.items()}
        )


class Phases:
    """Splits the steps of each worker into phases."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._open: dict[str, _OpenPhase] = {}
        # The workers that have ever evaluated.
        self._evaluating: set[str] = set()

    def add(self, step: Step) -> Iterator[Phase]:
        """Add a step and yield the phases that it completes."""
        losses = self._losses(step)
        if not losses:
            return
        together = [(match, value) for name, value in losses if (match := _ROUND_METRIC.match(name))]
        if len(together) == len(losses):
            yield from _phases_of_round(step, together)
            return
        mode = Mode.EVAL if step.mode in (Mode.EVAL, Mode.PREDICT) else Mode.TRAIN
        if mode is Mode.EVAL:
            self._evaluating.add(step.worker)
        current = self._open.get(step.worker)
        if current is not None and (current.mode is not mode or self._is_full(step.worker, current)):
            yield current.close_as_phase(step.worker)
            current = None
        if current is None:
            current = self._open[step.worker] = _OpenPhase(mode)
        current.add(step.number, losses)

    def close(self) -> Iterator[Phase]:
        """Yield the phases that are still open after the last step."""
        for worker, current in self._open.items():
            yield current.close_as_phase(worker)
        self._open.clear()

    def _losses(self, step: Step) -> list[tuple[str, float]]:
        reading = self._reader.read(step)
        return [
            (tensor.name, float(value))
            for tensor, value in zip(reading.tensors, reading.values(), strict=True)
            if math.isfinite(value)
        ]

    def _is_full(self, worker: str, current: _OpenPhase) -> bool:
        if worker in self._evaluating:
            return False
        return max(len(values) for values in current.losses.values()) >= MAX_PHASE_STEPS


def summarise_losses(values: Sequence[float]) -> PhaseMean:
    """Return the mean of consecutive losses.

    The noise is estimated from the differences of neighbours, which the trend of a falling loss hardly affects.
    """
    noise = math.sqrt(float(np.square(np.diff(values)).mean()) / 2) if len(values) > 1 else 0.0
    return PhaseMean(math.fsum(values) / len(values), noise, len(values))


def _phases_of_round(step: Step, losses: Iterable[tuple[re.Match[str], float]]) -> Iterator[Phase]:
    found: dict[Mode, dict[str, PhaseMean]] = {Mode.TRAIN: {}, Mode.EVAL: {}}
    for match, value in losses:
        mode = Mode.TRAIN if match["data"].lower() in _TRAINING_DATA else Mode.EVAL
        found[mode].setdefault(match["loss"], PhaseMean(value, 0.0, 1))
    for mode, means in found.items():
        if means:
            yield Phase(step.worker, mode, step.number, means)
