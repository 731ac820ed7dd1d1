"""Tensors that are all zero."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import Flags, History, Numbers, Reader, Reading, Streaks, others_text, worst


class AllZero(DebuggerRule):
    """Finds tensors whose elements, or a given share of them, are zero."""

    name = "AllZero"
    parameters = (
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter(
            "threshold",
            float,
            100.0,
            "The percentage of zeros from which a tensor is reported.",
            at_least=0,
            at_most=100,
        ),
        Parameter("patience", int, 1, "For how many consecutive steps this must hold.", advised=10, at_least=1),
    )

    def __init__(
        self,
        *,
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...] | None,
        threshold: float,
        patience: int,
    ) -> None:
        self._threshold, self._patience = threshold, patience
        self._needs = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex)
        self._reader = Reader(self._needs, lambda tensor: tensor.size > 0)
        self._history, self._streaks = History(), Streaks()

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        shares = 100 * reading.column(Statistic.ZEROS) / reading.chosen.sizes
        self._history.add(reading, shares)
        hits = self._streaks.count(reading, shares >= self._threshold) >= self._patience
        for index in worst(hits, shares):
            yield self._finding(reading, index, hits=hits, shares=shares)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, shares: Numbers) -> Finding:
        tensor, share = reading.tensors[index], float(shares[index])
        for_long = f", for {self._patience} steps" if self._patience > 1 else ""
        return Finding.at(
            reading.step,
            tensor,
            f"{share:.4g} % of the elements of {tensor.name} are zero; the limit is {self._threshold:.4g} %{for_long}"
            f"{others_text(hits)}.",
            value=share,
            threshold=self._threshold,
            evidence=(self._history.evidence(reading, index, label="zeros in %"),),
        )
