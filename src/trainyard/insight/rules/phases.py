"""The losses of a training phase by phase: what it learned by, then what it was evaluated by.

A phase is the steps of one mode on end: the batches between two evaluations, or those of one evaluation. A program that
never evaluates has phases of `LONGEST` steps. Single losses of batches tell little; the means of phases can be
compared, and how far each can be trusted is known from how the losses within it differ.

XGBoost tells the losses of all its data at each step, as `train-rmse` and `validation-rmse`: there each step is a phase
of both, and the loss is `rmse`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.readings import Reader

LONGEST = 500  # steps, AWS's own interval between two looks at a training
_TOLD_TOGETHER = re.compile(r"^(?P<data>[A-Za-z_]+)-(?P<loss>[A-Za-z0-9@.:-]+)$")
_LEARNED_FROM = ("train", "training")


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a loss over a phase. `noise` is how far the loss of a batch is from what could be expected of it."""

    value: float
    noise: float
    count: int

    @property
    def error(self) -> float:
        """How far the mean itself may be off: its standard error."""
        return self.noise / math.sqrt(self.count)

    def joined(self, other: "Mean") -> "Mean":
        """The mean over both."""
        count = self.count + other.count
        value = (self.value * self.count + other.value * other.count) / count
        noise = math.sqrt((self.noise**2 * self.count + other.noise**2 * other.count) / count)
        return Mean(value, noise, count)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that is over. Its mode is TRAIN for what is learned from, and EVAL for everything else."""

    worker: str
    mode: Mode
    step: int  # its last
    losses: dict[str, Mean]


@dataclass(slots=True)
class _Open:
    mode: Mode
    step: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)

    def add(self, step: int, losses: Iterable[tuple[str, float]]) -> None:
        self.step = step
        for name, value in losses:
            self.losses.setdefault(name, []).append(value)

    def closed(self, worker: str) -> Phase:
        return Phase(worker, self.mode, self.step, {name: summarised(values) for name, values in self.losses.items()})


class Phases:
    """Cuts the steps of each worker into phases."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._open: dict[str, _Open] = {}
        self._evaluating: set[str] = set()  # the workers that have been seen to

    def add(self, step: Step) -> Iterator[Phase]:
        """The phases that this step shows to be over."""
        losses = self._losses(step)
        if not losses:
            return
        together = [(match, value) for name, value in losses if (match := _TOLD_TOGETHER.match(name))]
        if len(together) == len(losses):
            yield from _told_together(step, together)
            return
        mode = Mode.EVAL if step.mode in (Mode.EVAL, Mode.PREDICT) else Mode.TRAIN
        if mode is Mode.EVAL:
            self._evaluating.add(step.worker)
        current = self._open.get(step.worker)
        if current is not None and (current.mode is not mode or self._is_full(step.worker, current)):
            yield current.closed(step.worker)
            current = None
        if current is None:
            current = self._open[step.worker] = _Open(mode)
        current.add(step.number, losses)

    def close(self) -> Iterator[Phase]:
        """The phases that are open when no step comes any more."""
        for worker, current in self._open.items():
            yield current.closed(worker)
        self._open.clear()

    def _losses(self, step: Step) -> list[tuple[str, float]]:
        reading = self._reader.read(step)
        return [
            (tensor.name, float(value))
            for tensor, value in zip(reading.tensors, reading.values(), strict=True)
            if math.isfinite(value)
        ]

    def _is_full(self, worker: str, current: _Open) -> bool:
        if worker in self._evaluating:
            return False
        return max(len(values) for values in current.losses.values()) >= LONGEST


def summarised(values: Sequence[float]) -> Mean:
    """The mean of losses that came one after the other.

    Their noise is taken from the differences of neighbours, in which the trend of a loss that falls hardly shows.
    """
    noise = math.sqrt(float(np.square(np.diff(values)).mean()) / 2) if len(values) > 1 else 0.0
    return Mean(math.fsum(values) / len(values), noise, len(values))


def _told_together(step: Step, losses: Iterable[tuple[re.Match[str], float]]) -> Iterator[Phase]:
    found: dict[Mode, dict[str, Mean]] = {Mode.TRAIN: {}, Mode.EVAL: {}}
    for match, value in losses:
        mode = Mode.TRAIN if match["data"].lower() in _LEARNED_FROM else Mode.EVAL
        found[mode].setdefault(match["loss"], Mean(value, 0.0, 1))
    for mode, means in found.items():
        if means:
            yield Phase(step.worker, mode, step.number, means)
