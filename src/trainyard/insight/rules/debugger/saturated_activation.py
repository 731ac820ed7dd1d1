"""Activations that are saturated, where they have no slope."""

from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import IDLE_UNITS
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.parameters import COLLECTION_NAMES
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

INPUTS = (r".*tanh_input|.*sigmoid_input",)


class SaturatedActivation(DebuggerRule):
    """Finds layers of tanh or sigmoid of which most units are saturated."""

    name = "SaturatedActivation"
    parameters = (
        COLLECTION_NAMES,
        Parameter(
            "tensor_regex", tuple, INPUTS, "The inputs of activations.", advised=(r"(?i)(tanh|sigmoid)\d*_input",)
        ),
        Parameter("threshold_tanh_min", float, -9.4999, "The input above which a tanh has a slope.", advised=-5.0),
        Parameter("threshold_tanh_max", float, 9.4999, "The input below which a tanh has a slope.", advised=5.0),
        Parameter("threshold_sigmoid_min", float, -23.0, "The input above which a sigmoid has a slope.", advised=-10.0),
        Parameter(
            "threshold_sigmoid_max", float, 16.99999, "The input below which a sigmoid has a slope.", advised=10.0
        ),
        Parameter(
            "threshold_inactivity",
            float,
            1.0,
            "A unit is saturated if less than this percentage of its inputs is between the two.",
            advised=20.0,
            at_least=0,
            at_most=100,
        ),
        Parameter("threshold_layer", float, 50.0, "The percentage of saturated units.", at_least=0, at_most=100),
        Parameter("patience", int, 1, "For how many consecutive steps it must be exceeded.", advised=10, at_least=1),
        Parameter("min_batch", int, 1, "The batch size from which a batch is checked.", advised=16, at_least=1),
    )

    def __init__(
        self,
        *,
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...],
        threshold_tanh_min: float,
        threshold_tanh_max: float,
        threshold_sigmoid_min: float,
        threshold_sigmoid_max: float,
        threshold_inactivity: float,
        threshold_layer: float,
        patience: int,
        min_batch: int,
    ) -> None:
        self._threshold, self._patience, share = threshold_layer, patience, threshold_inactivity / 100
        self._tanh = Probe(IDLE_UNITS, (threshold_tanh_min, threshold_tanh_max, share))
        self._sigmoid = Probe(IDLE_UNITS, (threshold_sigmoid_min, threshold_sigmoid_max, share))
        self._needs = Need(collection_names or (), regexes=tensor_regex, probes=(self._tanh, self._sigmoid))
        self._reader = Reader(self._needs, lambda tensor: tensor.shape[:1] >= (min_batch,))
        self._history, self._streaks = History(), Streaks()

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        shares = 100 * np.where(_is_sigmoid(reading), reading.measure(self._sigmoid), reading.measure(self._tanh))
        self._history.add(reading, shares)
        hits = self._streaks.count(reading, shares > self._threshold) >= self._patience
        for index in worst(hits, shares):
            yield self._finding(reading, index, hits=hits, shares=shares)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, shares: Numbers) -> Finding:
        tensor, share = reading.tensors[index], float(shares[index])
        low, high, _ = (self._sigmoid if _is_sigmoid(reading)[index] else self._tanh).parameters
        return Finding.at(
            reading.step,
            tensor,
            f"{share:.3g} % of the units behind {tensor.name} get almost no inputs between {low:g} and {high:g}, where "
            f"they have a slope; the limit is {self._threshold:.3g} %"
            f"{duration_text(self._patience)}{others_text(hits)}.",
            value=share,
            threshold=self._threshold,
            evidence=(self._history.evidence(reading, index, label="saturated units in %"),),
        )


def _is_sigmoid(reading: Reading) -> Flags:
    return np.array(["sigmoid" in tensor.name.lower() for tensor in reading.tensors], dtype=bool)
