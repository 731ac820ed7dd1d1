"""Tensors whose variance is too large or too small."""

from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import Flags, History, Reader, Reading, others_text, worst


class TensorVariance(DebuggerRule):
    """Finds tensors whose variance is over one threshold or under another."""

    name = "TensorVariance"
    parameters = (
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter("max_threshold", float, None, "The maximum variance.", at_least=0),
        Parameter("min_threshold", float, None, "The minimum variance.", at_least=0),
    )

    def __init__(
        self,
        *,
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...] | None,
        max_threshold: float | None,
        min_threshold: float | None,
    ) -> None:
        if max_threshold is None and min_threshold is None:
            raise InvalidRequest('Rule TensorVariance has no limit; give "max_threshold", "min_threshold" or both.')
        self._most = np.inf if max_threshold is None else max_threshold
        self._least = -np.inf if min_threshold is None else min_threshold
        self._needs = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex)
        self._reader, self._history = Reader(self._needs, lambda tensor: tensor.size > 1), History()

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        variances = reading.column(Statistic.STD) ** 2
        self._history.add(reading, variances)
        over, under = variances > self._most, variances < self._least
        for index in worst(over, variances):
            yield self._finding(reading, index, hits=over, variance=float(variances[index]), limit=self._most)
        for index in worst(under, -variances):
            yield self._finding(reading, index, hits=under, variance=float(variances[index]), limit=self._least)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, variance: float, limit: float) -> Finding:
        tensor = reading.tensors[index]
        side = "over" if variance > limit else "under"
        return Finding.at(
            reading.step,
            tensor,
            f"{tensor.name} has a variance of {variance:.3g}, {side} {limit:.3g}{others_text(hits)}.",
            value=variance,
            threshold=limit,
            evidence=(self._history.evidence(reading, index, label="variance"),),
        )
