"""Rows of embeddings that are never used."""

from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Probe, Step, TensorInfo
from trainyard.formats.tensors.statistics.probes import ZERO_ROWS
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Flags, Numbers, Reader, Reading, others_text, trains, worst

UNUSED = Probe(ZERO_ROWS)
STATES = r"^optimizer/(exp_avg_sq|square_avg|sum|momentum_buffer)/"
EMBEDDINGS = f"{STATES}.*([Ee]mbed|wte|wpe|[Pp]osition)"
# If the unused share has fallen by this much since half as many steps, more rows may still come into use.
STILL_FALLING = 0.01


class DeadEmbedding(DebuggerRule):
    """Finds embeddings with mostly unused rows."""

    name = "DeadEmbedding"
    parameters = (
        Parameter("tensor_regex", tuple, (EMBEDDINGS,), "The optimizer state of the weights of embeddings."),
        Parameter("threshold", float, 0.5, "The share of rows that may be unused.", at_least=0, at_most=1),
        Parameter("steps", int, 100, "After how many steps an embedding is checked.", at_least=2),
    )

    def __init__(self, *, tensor_regex: tuple[str, ...], threshold: float, steps: int) -> None:
        self._regexes, self._threshold, self._steps = tensor_regex, threshold, steps
        self._reader = Reader(self.needs, _has_rows)
        self._shares: dict[tuple[str, str], list[tuple[int, float]]] = {}

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=(UNUSED,))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        if not len(reading.tensors):
            return
        shares = reading.measure(UNUSED)
        is_settled = np.array([self._is_settled(step, *each) for each in zip(reading.tensors, shares, strict=True)])
        hits = is_settled & (shares > self._threshold)
        for index in worst(hits, shares):
            yield self._finding(reading, index, hits=hits, shares=shares)

    def _is_settled(self, step: Step, tensor: TensorInfo, share: float) -> bool:
        """Return whether hardly any more rows come into use."""
        if np.isnan(share):
            return False
        series = self._shares.setdefault((step.worker, tensor.name), [])
        series.append((step.number, float(share)))
        return len(series) >= self._steps and series[len(series) // 2][1] - share < STILL_FALLING

    def _finding(self, reading: Reading, index: int, *, hits: Flags, shares: Numbers) -> Finding:
        tensor, step, share = reading.tensors[index], reading.step, float(shares[index])
        weights = tensor.name.split("/", 2)[-1]
        series = self._shares[step.worker, tensor.name]
        shown = series[:: max(1, len(series) // EVIDENCE_STEPS)]
        return Finding(
            step.number,
            step.mode,
            step.worker,
            weights,
            f"{share:.0%} of the {tensor.shape[0]} rows of {weights} were never used in {len(series)} steps, more "
            f"than {self._threshold:.0%}{others_text(hits)}.",
            value=share,
            threshold=self._threshold,
            evidence=(Evidence("share of rows never used", *zip(*shown, strict=True)),),
            module=tensor.module,
        )


def _has_rows(tensor: TensorInfo) -> bool:
    return len(tensor.shape) == 2
