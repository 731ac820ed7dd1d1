"""Updates so large that the weights are thrown about."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import Track
from trainyard.insight.rules.updates import UPDATES, moves, trains, weights_reader


class LearningRateTooHigh(DebuggerRule):
    """Finds trainings whose updates are too large a share of the weights."""

    name = "LearningRateTooHigh"
    parameters = (
        Parameter("threshold", float, 0.1, "The share of its norm by which half of the weights may move.", at_least=0),
        Parameter("patience", int, 3, "For how many steps on end it must be exceeded.", at_least=1),
    )

    def __init__(self, *, threshold: float, patience: int) -> None:
        self._threshold, self._patience = threshold, patience
        self._reader = weights_reader()
        self._tracks: defaultdict[str, Track] = defaultdict(Track)
        self._counts: defaultdict[str, int] = defaultdict(int)

    @property
    def needs(self) -> Need:
        return UPDATES

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        moved = moves(reading)
        known = np.sort(moved[np.isfinite(moved)])
        if not len(known):
            return
        # The lower of two in the middle: half of the weights may begin at zero, as those of low-rank adapters do, and
        # move by all that they are at first.
        middle = float(known[(len(known) - 1) // 2])
        self._tracks[step.worker].add(step.number, middle)
        self._counts[step.worker] = self._counts[step.worker] + 1 if middle > self._threshold else 0
        if self._counts[step.worker] < self._patience:
            return
        fastest = reading.tensors[int(np.nanargmax(moved))]
        yield Finding(
            step.number,
            step.mode,
            step.worker,
            fastest.name,
            f"An update moves half of the weights by {middle:.2g} of their norm or more, over {self._threshold:g} for "
            f"{self._counts[step.worker]} steps, and {fastest.name} furthest: the learning rate is too high.",
            value=middle,
            threshold=self._threshold,
            evidence=(self._tracks[step.worker].evidence("median of |update| / |weight|"),),
            module=fastest.module,
        )
