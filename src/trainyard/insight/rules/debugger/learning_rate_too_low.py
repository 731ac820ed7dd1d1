"""Updates too small to get anywhere."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import Track
from trainyard.insight.rules.updates import UPDATES, moves, trains, weights_reader


class LearningRateTooLow(DebuggerRule):
    """Finds trainings whose updates are too small a share of the weights."""

    name = "LearningRateTooLow"
    parameters = (
        Parameter("threshold", float, 1e-5, "The share of its norm that some weight must move by.", at_least=0),
        Parameter("patience", int, 50, "For how many steps on end none must.", at_least=1),
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
        if not np.isfinite(moved).any():
            return
        fastest = int(np.nanargmax(moved))
        most = float(moved[fastest])
        self._tracks[step.worker].add(step.number, most)
        self._counts[step.worker] = self._counts[step.worker] + 1 if most < self._threshold else 0
        if self._counts[step.worker] < self._patience:
            return
        tensor = reading.tensors[fastest]
        yield Finding(
            step.number,
            step.mode,
            step.worker,
            tensor.name,
            f"No update moved any weight by {self._threshold:.0e} of its norm for {self._counts[step.worker]} steps; "
            f"the last moved {tensor.name} most, by {most:.1e}: the learning rate is too low.",
            value=most,
            threshold=self._threshold,
            evidence=(self._tracks[step.worker].evidence("largest |update| / |weight|"),),
            module=tensor.module,
        )
