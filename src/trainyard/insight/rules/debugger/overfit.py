"""Trainings that overfit their data."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.phases import Phase, PhaseMean, Phases
from trainyard.insight.rules.readings import Reader, Track

# Standard errors by which the gap must exceed its limit.
CERTAINTY = 2.0


class Overfit(DebuggerRule):
    """Finds trainings whose validation loss is far above their training loss."""

    name = "Overfit"
    parameters = (
        Parameter("tensor_regex", tuple, None, "Regexes of the losses; by default, the collection losses."),
        Parameter("start_step", int, 0, "The first step that is checked.", at_least=0),
        Parameter("patience", int, 1, "For how many consecutive evaluations this must hold.", advised=3, at_least=1),
        Parameter(
            "ratio_threshold",
            float,
            0.1,
            "By what share of the training loss the validation loss may be higher.",
            advised=0.5,
        ),
    )

    def __init__(
        self, *, tensor_regex: tuple[str, ...] | None, start_step: int, patience: int, ratio_threshold: float
    ) -> None:
        self._start_step, self._patience, self._threshold = start_step, patience, ratio_threshold
        self._needs = Need(regexes=tensor_regex) if tensor_regex else Need(collections=("losses",))
        self._phases = Phases(Reader(self._needs))
        self._means: dict[tuple[str, str, Mode], PhaseMean] = {}
        self._gaps: defaultdict[tuple[str, str], _Gap] = defaultdict(_Gap)

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        yield from self._check_phases(self._phases.add(step))

    def end(self) -> Iterator[Finding]:
        yield from self._check_phases(self._phases.close())

    def _check_phases(self, phases: Iterable[Phase]) -> Iterator[Finding]:
        for phase in phases:
            if phase.step < self._start_step:
                continue
            for name, mean in phase.losses.items():
                series = (phase.worker, name, phase.mode)
                before = self._means.get(series)
                self._means[series] = mean if before is None else before.combine(mean)
                if phase.mode is Mode.EVAL:
                    yield from self._compare(phase, name)

    def _compare(self, phase: Phase, name: str) -> Iterator[Finding]:
        training = self._means.get((phase.worker, name, Mode.TRAIN))
        validation = self._means[phase.worker, name, Mode.EVAL]
        if training is None or training.value <= 0:
            return
        gap = self._gaps[phase.worker, name]
        gap.add(phase.step, (validation.value - training.value) / training.value)
        gap.count = gap.count + 1 if self._is_apart(training, validation) else 0
        if gap.count >= self._patience:
            yield self._finding(phase, name, gap=gap, means=(training, validation))

    def _is_apart(self, training: PhaseMean, validation: PhaseMean) -> bool:
        # An evaluation often has few batches, so its own noise is only a guess, unlike that of the training batches.
        error = math.hypot(max(validation.error, training.noise / math.sqrt(validation.count)), training.error)
        return validation.value > training.value * (1 + self._threshold) + CERTAINTY * error

    def _finding(self, phase: Phase, name: str, *, gap: "_Gap", means: tuple[PhaseMean, PhaseMean]) -> Finding:
        training, validation = means
        return Finding(
            phase.step,
            Mode.EVAL,
            phase.worker,
            name,
            f"The mean validation loss {name} of {validation.value:.4g} is {gap.ratio:.0%} above the mean training "
            f"loss of {training.value:.4g}, more than {self._threshold:.0%}, in {gap.count} consecutive evaluations.",
            value=gap.ratio,
            threshold=self._threshold,
            evidence=(gap.track.evidence("(validation - training) / training"),),
        )


@dataclass(slots=True)
class _Gap:
    """How far a validation loss was above the training loss, and how often in a row it was too far."""

    count: int = 0
    ratio: float = 0.0
    track: Track = field(default_factory=Track)

    def add(self, step: int, ratio: float) -> None:
        self.ratio = ratio
        self.track.add(step, ratio)
