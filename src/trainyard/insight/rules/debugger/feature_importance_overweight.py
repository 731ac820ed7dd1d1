"""Boosters that rely on a few features."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Reader, Reading, duration_text


@dataclass(slots=True)
class _Sums:
    """The importance of the most important features, step by step."""

    streak: int = 0
    steps: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, step: int, *, total: float, is_over: bool) -> None:
        self.streak = self.streak + 1 if is_over else 0
        self.steps, self.sums = [*self.steps, step][-EVIDENCE_STEPS:], [*self.sums, total][-EVIDENCE_STEPS:]


class FeatureImportanceOverweight(DebuggerRule):
    """Finds boosters in which a few features have almost all importance."""

    name = "FeatureImportanceOverweight"
    parameters = (
        Parameter(
            "threshold", float, 0.8, "The share of all importance that must not be exceeded.", at_least=0, at_most=1
        ),
        Parameter("nfeatures", int, 3, "How many features must not have that share together.", at_least=1),
        Parameter("tensor_regex", tuple, (".*feature_importance/weight",), "The importances of features."),
        Parameter("patience", int, 1, "For how many consecutive steps they must have it.", advised=20, at_least=1),
    )

    def __init__(self, *, threshold: float, nfeatures: int, tensor_regex: tuple[str, ...], patience: int) -> None:
        self._threshold, self._most, self._regexes, self._patience = threshold, nfeatures, tensor_regex, patience
        self._reader = Reader(self.needs, lambda tensor: tensor.size == 1)
        self._sums: dict[str, _Sums] = {}

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes)

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        importances = np.nan_to_num(reading.values()) if len(reading.tensors) else np.zeros(0)
        if not importances.any():
            return
        order = np.argsort(-importances, kind="stable")[: self._most]
        total = float(importances[order].sum())
        sums = self._sums.setdefault(step.worker, _Sums())
        sums.add(step.number, total=total, is_over=total > self._threshold)
        if sums.streak >= self._patience:
            yield self._finding(reading, [reading.tensors[place].name for place in order], sums=sums)

    def _finding(self, reading: Reading, names: list[str], *, sums: _Sums) -> Finding:
        features = ", ".join(name.rpartition("/")[2] for name in names)
        return Finding.at(
            reading.step,
            names[0],
            f"The features {features} have {sums.sums[-1]:.0%} of all importance, more than {self._threshold:.0%}"
            f"{duration_text(self._patience)}.",
            value=sums.sums[-1],
            threshold=self._threshold,
            evidence=(Evidence(f"importance of the first {self._most}", tuple(sums.steps), tuple(sums.sums)),),
        )
