"""The size of updates relative to the weights, which shows whether a learning rate is right."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import UPDATE_NORM_RATIO
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need
from trainyard.insight.rules.readings import Numbers, Reader, Track, is_matrix, trains

MOVED = Probe(UPDATE_NORM_RATIO)
GRADIENTS = Need(collections=("gradients",))
UPDATES = Need(collections=("weights",), probes=(MOVED,), also=(GRADIENTS,))


@dataclass(frozen=True, slots=True)
class UpdateSize:
    """The size of updates: a summary over all weights, the weight with the largest, and for how long it was wrong."""

    share: float
    fastest: str
    steps: int


class UpdateSizeRule(DebuggerRule):
    """Checks the size of updates of the weights that layers multiply by.

    Biases and the scales of normalisations move at other rates, and frozen weights do not move. A subclass defines the
    summary over all weights, when it is wrong, and what that means. `label` names the summary.
    """

    label: ClassVar[str]

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
        moved = np.where(reading.chosen.is_trained, reading.measure(MOVED), np.nan)
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
            self.describe(UpdateSize(share, fastest.name, self._steps[worker])),
            value=share,
            threshold=self.threshold,
            evidence=(self._tracks[worker].evidence(self.label),),
        )

    @abstractmethod
    def sum_up(self, moved: Numbers) -> float:
        """Summarise the relative updates of all weights in one number."""

    @abstractmethod
    def is_wrong(self, share: float) -> bool:
        """Return whether a healthy training does not have such updates."""

    @abstractmethod
    def describe(self, pace: UpdateSize) -> str:
        """Return the message of the finding."""
