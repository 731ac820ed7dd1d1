"""Gradients that are too small for their layers to learn."""

from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import (
    Flags,
    History,
    Numbers,
    Reader,
    Reading,
    Streaks,
    duration_text,
    others_text,
    trains,
    worst,
)


class VanishingGradient(DebuggerRule):
    """Finds gradients whose mean magnitude is under a threshold."""

    name = "VanishingGradient"
    parameters = (
        Parameter("threshold", float, 1e-7, "The mean of |gradient| under which a gradient vanishes.", at_least=0),
        Parameter("patience", int, 1, "For how many consecutive steps it must vanish.", advised=20, at_least=1),
    )

    def __init__(self, *, threshold: float, patience: int) -> None:
        self._threshold, self._patience = threshold, patience
        self._reader, self._history, self._streaks = Reader(self.needs), History(), Streaks()

    @property
    def needs(self) -> Need:
        return Need(collections=("gradients",))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        means = np.where(reading.chosen.is_leading, reading.column(Statistic.MEAN_ABS), np.nan)
        self._history.add(reading, means)
        hits = self._streaks.count(reading, means < self._threshold) >= self._patience
        for index in worst(hits, -means):
            yield self._finding(reading, index, hits=hits, means=means)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, means: Numbers) -> Finding:
        tensor, mean = reading.tensors[index], float(means[index])
        return Finding.at(
            reading.step,
            tensor,
            f"The gradient {tensor.name} has a mean magnitude of {mean:.1e}, under {self._threshold:.0e}"
            f"{duration_text(self._patience)}{others_text(hits)}.",
            value=mean,
            threshold=self._threshold,
            evidence=(self._history.evidence(reading, index, label="mean |gradient|"),),
        )
