"""Losses that jump."""

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Step, TensorInfo
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import Numbers, Reader, trains

NORMAL = 1.4826  # what a median of deviations is multiplied by to be the deviation of a normal distribution
LEAST_KNOWN = 20  # losses before the first that is judged


class LossSpike(DebuggerRule):
    """Finds losses that jump far above what they were in the steps before."""

    name = "LossSpike"
    parameters = (
        Parameter("threshold", float, 10.0, "How many robust deviations above the usual a jump is.", at_least=0),
        Parameter("ratio", float, 2.0, "How many times the usual it is, at least.", at_least=1),
        Parameter("window", int, 50, "How many steps make what is usual.", at_least=LEAST_KNOWN),
    )

    def __init__(self, *, threshold: float, ratio: float, window: int) -> None:
        self._threshold, self._ratio, self._window = threshold, ratio, window
        self._reader = Reader(self.needs)
        self._courses: dict[tuple[str, str], deque[tuple[int, float]]] = {}

    @property
    def needs(self) -> Need:
        return Need(collections=("losses",))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            if math.isfinite(value):
                yield from self._judge(step, tensor, loss=float(value))

    def _judge(self, step: Step, tensor: TensorInfo, *, loss: float) -> Iterator[Finding]:
        course = self._courses.setdefault((step.worker, tensor.name), deque(maxlen=self._window))
        before = np.array([value for _, value in course])
        course.append((step.number, loss))
        if len(before) < LEAST_KNOWN or loss < self._ratio * np.median(before):
            return
        height = _height(before, loss)
        if height >= self._threshold:
            yield self._finding(step, tensor, course=course, height=height, usual=float(np.median(before)))

    def _finding(
        self, step: Step, tensor: TensorInfo, *, course: deque[tuple[int, float]], height: float, usual: float
    ) -> Finding:
        steps, values = zip(*course, strict=True)
        return Finding.at(
            step,
            tensor.name,
            f"The loss {tensor.name} jumped to {values[-1]:.4g} from about {usual:.4g}: {height:.0f} deviations above "
            f"the last {len(course) - 1} steps, where {self._threshold:g} are many.",
            value=height,
            threshold=self._threshold,
            evidence=(Evidence("loss", steps, values),),
        )


def _height(before: Numbers, loss: float) -> float:
    """How many deviations a loss lies above those before it; of their logarithms, since losses vary by factors."""
    if before.min() > 0 and loss > 0:
        before, loss = np.log(before), math.log(loss)
    usual = float(np.median(before))
    deviation = NORMAL * float(np.median(np.abs(before - usual)))
    return (loss - usual) / max(deviation, 1e-12)
