"""How far the optimizer moves the weights in a step, in shares of what they are: what tells a learning rate."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.probes import UPDATE_NORM_RATIO
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need
from trainyard.insight.rules.readings import Numbers, Reader, Track, is_matrix, trains

MOVED = Probe(UPDATE_NORM_RATIO)
GRADIENTS = Need(collections=("gradients",))
UPDATES = Need(collections=("weights",), probes=(MOVED,), also=(GRADIENTS,))


@dataclass(frozen=True, slots=True)
class Pace:
    """How far the updates of a training go."""

    share: float  # of the weights, as it is summed up
    fastest: str  # the weight that moved furthest
    steps: int  # for how many on end it has been wrong


class PaceRule(DebuggerRule):
    """Judges how far updates move the weights that layers multiply by.

    Scales of normalisations and biases move by other measures, and what is not trained does not move. A rule on it says
    how the weights are summed up, when that is wrong, and what it means.
    """

    label: ClassVar[str]  # of what it sums up

    def __init__(self, *, threshold: float, patience: int) -> None:
        self.threshold = threshold
        self._patience = patience
        self._reader = Reader(UPDATES, is_matrix)
        self._tracks: defaultdict[str, Track] = defaultdict(Track)
        self._steps: defaultdict[str, int] = defaultdict(int)

    @property
    def needs(self) -> Need:
        return UPDATES

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading, worker = self._reader.read(step), step.worker
        moved = np.where(reading.chosen.is_trained, reading.measured(MOVED), np.nan)
        if not np.isfinite(moved).any():
            return
        share = self.sum_up(moved[~np.isnan(moved)])
        self._tracks[worker].add(step.number, share)
        self._steps[worker] = self._steps[worker] + 1 if self.is_wrong(share) else 0
        if self._steps[worker] < self._patience:
            return
        fastest = reading.tensors[int(np.nanargmax(moved))]
        yield Finding.at(
            step,
            fastest,
            self.describe(Pace(share, fastest.name, self._steps[worker])),
            value=share,
            threshold=self.threshold,
            evidence=(self._tracks[worker].evidence(self.label),),
        )

    @abstractmethod
    def sum_up(self, moved: Numbers) -> float:
        """One number for the shares by which the weights moved."""

    @abstractmethod
    def is_wrong(self, share: float) -> bool:
        """Whether no good training moves so far."""

    @abstractmethod
    def describe(self, pace: Pace) -> str:
        """The sentence that tells it."""
