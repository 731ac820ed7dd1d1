"""Attention that has collapsed onto single positions."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Probe, Step, TensorInfo
from trainyard.formats.tensors.statistics.probes import ROW_ENTROPY
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import (
    Flags,
    History,
    Numbers,
    Reader,
    Reading,
    Streaks,
    others_text,
    trains,
    worst,
)

ENTROPY = Probe(ROW_ENTROPY)
# A softmax inside an attention module; the input of the dropout on its weights, as in GPT-2 and BERT; and the weights
# that torch's own attention returns along with its result.
ATTENTION = (
    r"(?i)att\w*[\w.]*\.softmax\d*_output_0$",
    r"(?i)att\w*[\w.]*dropout\d*_input_0$",
    r"(?i)(^|[._])(self_)?(attn|attention)\d*_output_1$",
)


class AttentionEntropyCollapse(DebuggerRule):
    """Finds attention whose weights have collapsed onto single positions."""

    name = "AttentionEntropyCollapse"
    parameters = (
        Parameter("tensor_regex", tuple, ATTENTION, "The attention weights: rows that sum to 1."),
        Parameter("threshold", float, 0.1, "The share of the maximum entropy under which attention has collapsed."),
        Parameter("patience", int, 10, "For how many consecutive steps it must be under it.", at_least=1),
    )

    def __init__(self, *, tensor_regex: tuple[str, ...], threshold: float, patience: int) -> None:
        self._regexes, self._threshold, self._patience = tensor_regex, threshold, patience
        self._reader, self._history, self._streaks = Reader(self.needs, _are_weights), History(), Streaks()

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=(ENTROPY,))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        entropies = reading.measure(ENTROPY)
        self._history.add(reading, entropies)
        hits = self._streaks.count(reading, entropies < self._threshold) >= self._patience
        for index in worst(hits, -entropies):
            yield self._finding(reading, index, hits=hits, entropies=entropies)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, entropies: Numbers) -> Finding:
        tensor, entropy = reading.tensors[index], float(entropies[index])
        return Finding.at(
            reading.step,
            tensor,
            f"The attention {tensor.name} has {entropy:.2g} of its maximum entropy, under "
            f"{self._threshold:g} for {self._patience} steps: it attends to single positions{others_text(hits)}.",
            value=entropy,
            threshold=self._threshold,
            evidence=(self._history.evidence(reading, index, label="share of the maximum entropy"),),
        )


def _are_weights(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 2 and tensor.shape[-1] > 1
