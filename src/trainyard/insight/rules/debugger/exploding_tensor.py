"""Tensors with elements that are not finite."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import Flags, History, Numbers, Reader, Reading, others_text, worst

INSPECTED = ("gradients", "weights", "biases", "losses")


class ExplodingTensor(DebuggerRule):
    """Finds tensors that contain NaN or infinity."""

    name = "ExplodingTensor"
    parameters = (
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter("only_nan", bool, False, "Look only for NaN and ignore infinity."),
    )

    def __init__(
        self, *, collection_names: tuple[str, ...] | None, tensor_regex: tuple[str, ...] | None, only_nan: bool
    ) -> None:
        self._only_nan = only_nan
        self._needs = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex, otherwise=INSPECTED)
        self._reader, self._history = Reader(self._needs), History()

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        counts = reading.column(Statistic.NANS)
        if not self._only_nan:
            counts = counts + reading.column(Statistic.INFS)
        hits = counts > 0
        self._history.add(reading, reading.column(Statistic.MEAN_ABS))
        for index in worst(hits, -reading.chosen.places.astype(float)):
            yield self._finding(reading, index, hits=hits, counts=counts)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, counts: Numbers) -> Finding:
        tensor, count = reading.tensors[index], int(counts[index])
        what = "NaN" if self._only_nan else "NaN or infinite"
        return Finding.at(
            reading.step,
            tensor,
            f"{count} of the {tensor.size} elements of {tensor.name} are {what}{others_text(hits)}.",
            value=float(count),
            threshold=0.0,
            severity=Severity.CRITICAL,
            evidence=(self._history.evidence(reading, index, label="mean magnitude"),),
        )
