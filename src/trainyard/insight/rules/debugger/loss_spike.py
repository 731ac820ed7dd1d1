"""Losses that spike."""

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Step, TensorInfo
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import Numbers, Reader, trains

# Scales the median absolute deviation to the standard deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826
# Losses before the first one that is checked.
MIN_HISTORY = 20


class LossSpike(DebuggerRule):
    """Finds losses that jump far above those of the previous steps."""

    name = "LossSpike"
    parameters = (
        Parameter(
            "threshold", float, 10.0, "How many robust standard deviations above the median a spike is.", at_least=0
        ),
        Parameter("ratio", float, 2.0, "How many times the median a spike is, at least.", at_least=1),
        Parameter("window", int, 50, "How many previous steps a loss is compared with.", at_least=MIN_HISTORY),
    )

    def __init__(self, *, threshold: float, ratio: float, window: int) -> None:
        self._threshold, self._ratio, self._window = threshold, ratio, window
        self._reader = Reader(self.needs)
        self._histories: dict[tuple[str, str], deque[tuple[int, float]]] = {}

    @property
    def needs(self) -> Need:
        return Need(collections=("losses",))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            if math.isfinite(value):
                yield from self._check_loss(step, tensor, loss=float(value))

    def _check_loss(self, step: Step, tensor: TensorInfo, *, loss: float) -> Iterator[Finding]:
        history = self._histories.setdefault((step.worker, tensor.name), deque(maxlen=self._window))
        before = np.array([value for _, value in history])
        history.append((step.number, loss))
        if len(before) < MIN_HISTORY or loss < self._ratio * np.median(before):
            return
        height = _height(before, loss)
        if height >= self._threshold:
            yield self._finding(step, tensor, history=history, height=height, usual=float(np.median(before)))

    def _finding(
        self, step: Step, tensor: TensorInfo, *, history: deque[tuple[int, float]], height: float, usual: float
    ) -> Finding:
        steps, values = zip(*history, strict=True)
        return Finding.at(
            step,
            tensor.name,
            f"The loss {tensor.name} jumped to {values[-1]:.4g} from about {usual:.4g}: {height:.0f} deviations above "
            f"the last {len(history) - 1} steps; the limit is {self._threshold:g}.",
            value=height,
            threshold=self._threshold,
            evidence=(Evidence("loss", steps, values),),
        )


def _height(before: Numbers, loss: float) -> float:
    """Return how many deviations a loss is above those before it, on a log scale, since losses vary by factors."""
    if before.min() > 0 and loss > 0:
        before, loss = np.log(before), math.log(loss)
    usual = float(np.median(before))
    deviation = MAD_TO_SIGMA * float(np.median(np.abs(before - usual)))
    return (loss - usual) / max(deviation, 1e-12)
