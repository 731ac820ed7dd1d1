"""Gradients that are mostly noise."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import COSINE
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter, Severity
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Reader, trains

AGREEMENT = Probe(COSINE)
# In steps. After more, gradients may differ because the weights have moved on.
MAX_DISTANCE = 20


@dataclass(slots=True)
class _Agreement:
    """How well the gradients of one worker agree from batch to batch.

    `last` are the values of the current window, `means` those of the windows that end at `steps`, and `mode_step` is
    the last step that was checked.
    """

    last: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    count: int = 0
    best: float = -1.0
    mode_step: int = -1

    def add(self, step: int, agreement: float, *, window: int) -> None:
        self.count += 1
        self.last = [*self.last, agreement][-window:]
        mean = sum(self.last) / len(self.last)
        self.steps, self.means = [*self.steps, step][-EVIDENCE_STEPS:], [*self.means, mean][-EVIDENCE_STEPS:]
        if len(self.last) == window:
            self.best = max(self.best, mean)


class GradientNoise(DebuggerRule):
    """Finds trainings whose gradients hardly agree from one batch to the next."""

    name = "GradientNoise"
    parameters = (
        Parameter("threshold", float, 0.1, "The cosine that successive gradients must reach.", at_least=0, at_most=1),
        Parameter("window", int, 50, "Over how many steps that is averaged.", at_least=1),
        Parameter("steps", int, 100, "After how many steps a run is checked.", at_least=1),
    )

    def __init__(self, *, threshold: float, window: int, steps: int) -> None:
        self._threshold, self._window, self._steps = threshold, window, max(steps, window)
        self._reader = Reader(self.needs, lambda tensor: len(tensor.whole_shape or tensor.shape) > 1)
        self._agreements: dict[str, _Agreement] = {}

    @property
    def needs(self) -> Need:
        return Need(collections=("gradients",), probes=(AGREEMENT,))

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        cosines = self._reader.read(step).measure(AGREEMENT)
        if not np.isfinite(cosines).any():
            return
        agreement = self._agreements.setdefault(step.worker, _Agreement())
        before, agreement.mode_step = agreement.mode_step, step.mode_step
        if step.mode_step - before > MAX_DISTANCE:
            return
        agreement.add(step.number, float(np.nanmean(cosines)), window=self._window)
        if agreement.count >= self._steps and agreement.best < self._threshold:
            yield self._finding(step, agreement)

    def _finding(self, step: Step, agreement: _Agreement) -> Finding:
        best = agreement.best
        batches = f" About {(1 - best) / best:.0f} times as large a batch would be half signal." if best > 0 else ""
        return Finding.at(
            step,
            "",
            f"In the first {agreement.count} steps the gradients of one batch and the next had a cosine of at most "
            f"{best:.2g}, averaged over {self._window} steps; under {self._threshold:g} they are noise.{batches}",
            value=best,
            threshold=self._threshold,
            severity=Severity.NOTICE,
            evidence=(Evidence("cosine of successive gradients", tuple(agreement.steps), tuple(agreement.means)),),
        )
