"""Dead ReLUs."""

import math
from collections.abc import Iterator

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import IDLE_UNITS
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


class DeadRelu(DebuggerRule):
    """Finds layers in which most ReLUs are dead: they are almost never active."""

    name = "DeadRelu"
    parameters = (
        Parameter("tensor_regex", tuple, (".*relu_output",), "The outputs of ReLUs.", advised=(r"(?i)relu\d*_output",)),
        Parameter(
            "threshold_inactivity",
            float,
            1.0,
            "A unit is dead if less than this percentage of its values is positive.",
            at_least=0,
            at_most=100,
        ),
        Parameter("threshold_layer", float, 50.0, "The percentage of dead units.", at_least=0, at_most=100),
        Parameter("patience", int, 1, "For how many consecutive steps it must be exceeded.", advised=10, at_least=1),
        Parameter("min_batch", int, 1, "The batch size from which a batch is checked.", advised=16, at_least=1),
    )

    def __init__(
        self,
        *,
        tensor_regex: tuple[str, ...],
        threshold_inactivity: float,
        threshold_layer: float,
        patience: int,
        min_batch: int,
    ) -> None:
        self._regexes, self._threshold, self._patience = tensor_regex, threshold_layer, patience
        self._probe = Probe(IDLE_UNITS, (0.0, math.inf, threshold_inactivity / 100))
        self._reader = Reader(self.needs, lambda tensor: tensor.shape[:1] >= (min_batch,))
        self._history, self._streaks = History(), Streaks()

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=(self._probe,))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        shares = 100 * reading.measure(self._probe)
        self._history.add(reading, shares)
        hits = self._streaks.count(reading, shares > self._threshold) >= self._patience
        for index in worst(hits, shares):
            yield self._finding(reading, index, hits=hits, shares=shares)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, shares: Numbers) -> Finding:
        tensor, share = reading.tensors[index], float(shares[index])
        return Finding.at(
            reading.step,
            tensor,
            f"{share:.3g} % of the ReLUs behind {tensor.name} are dead, more than {self._threshold:.3g} %"
            f"{duration_text(self._patience)}{others_text(hits)}.",
            value=share,
            threshold=self._threshold,
            evidence=(self._history.evidence(reading, index, label="dead units in %"),),
        )
