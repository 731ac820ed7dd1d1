"""Trainings that continue without improving."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity
from trainyard.insight.rules.phases import Phase, Phases
from trainyard.insight.rules.readings import Reader, Track

WORDS = {Mode.TRAIN: "training", Mode.EVAL: "validation"}


class Overtraining(DebuggerRule):
    """Finds trainings whose losses have not improved for a long time."""

    name = "Overtraining"
    parameters = (
        Parameter(
            "patience_train", int, 5, "Phases without a better training loss; 0 turns this off.", advised=0, at_least=0
        ),
        Parameter(
            "patience_validation", int, 10, "Phases without a better validation loss; 0 turns this off.", at_least=0
        ),
        Parameter("delta", float, 0.01, "How much lower than the best a loss must be to be better.", at_least=0),
        Parameter(
            "rise",
            float,
            0.0,
            "By what share later losses must exceed the best one; 0 turns this off.",
            advised=0.1,
            at_least=0,
        ),
    )

    def __init__(self, *, patience_train: int, patience_validation: int, delta: float, rise: float) -> None:
        self._patience = {Mode.TRAIN: patience_train, Mode.EVAL: patience_validation}
        self._delta, self._rise = delta, rise
        self._phases = Phases(Reader(self.needs))
        self._records: dict[tuple[str, Mode, str], _LossRecord] = {}

    @property
    def needs(self) -> Need:
        return Need(collections=("losses",))

    def check(self, step: Step) -> Iterator[Finding]:
        yield from self._check_phases(self._phases.add(step))

    def end(self) -> Iterator[Finding]:
        yield from self._check_phases(self._phases.close())

    def _check_phases(self, phases: Iterable[Phase]) -> Iterator[Finding]:
        for phase in phases:
            patience = self._patience[phase.mode]
            for name, mean in phase.losses.items():
                record = self._records.setdefault((phase.worker, phase.mode, name), _LossRecord())
                record.add(phase.step, loss=mean.value, delta=self._delta)
                has_risen = not self._rise or record.rise >= self._rise
                if patience and record.count >= patience and has_risen:
                    yield self._finding(phase, name, record=record)

    def _finding(self, phase: Phase, name: str, *, record: "_LossRecord") -> Finding:
        risen = f"; they were {record.rise:.0%} above it on average" if self._rise else ""
        return Finding(
            phase.step,
            phase.mode,
            phase.worker,
            name,
            f"The {WORDS[phase.mode]} loss {name} was best at step {record.best_step}, with {record.best:.4g}; "
            f"none of the {record.count} phases since was better by {self._delta:g}{risen}.",
            value=float(record.count),
            threshold=float(self._patience[phase.mode]),
            severity=Severity.NOTICE,
            evidence=(record.track.evidence(f"{WORDS[phase.mode]} loss"),),
        )


@dataclass(slots=True)
class _LossRecord:
    """The best value of a loss, and the values since."""

    best: float = math.inf
    best_step: int = 0
    count: int = 0
    total: float = 0.0
    track: Track = field(default_factory=Track)

    @property
    def rise(self) -> float:
        """By what share of the best the mean of later losses exceeds it."""
        return (self.total / self.count - self.best) / abs(self.best) if self.count and self.best else 0.0

    def add(self, step: int, *, loss: float, delta: float) -> None:
        self.track.add(step, loss)
        if loss <= self.best - delta:
            self.best, self.best_step, self.count, self.total = loss, step, 0, 0.0
        else:
            self.count, self.total = self.count + 1, self.total + loss
