"""Classes that are too rare, or mostly mispredicted."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.classes import Counts, Pairs, Tally, add_counts, lower_bound_ratio, read_pairs
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Numbers, Reader


@dataclass(slots=True)
class _ClassCounts:
    """The classes of one worker and mode: `seen` in the whole run, and in the `window` since the last check."""

    seen: Tally = field(default_factory=Tally)
    window: Tally = field(default_factory=Tally)
    streaks: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: list[int] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    shares: list[Numbers] = field(default_factory=list)

    def add(self, pairs: Pairs) -> None:
        self.seen.add(pairs)
        self.window.add(pairs)

    def close_window(self, step: int, *, ratio: float, shares: Numbers) -> None:
        self.window = Tally()
        self.steps = [*self.steps, step][-EVIDENCE_STEPS:]
        self.ratios = [*self.ratios, ratio][-EVIDENCE_STEPS:]
        self.shares = [*self.shares, shares][-EVIDENCE_STEPS:]

    def share_of(self, label: int) -> Evidence:
        looks = zip(self.steps, self.shares, strict=True)
        known = [(step, float(shares[label])) for step, shares in looks if label < len(shares)]
        steps, values = zip(*known, strict=True)
        return Evidence(f"mispredicted share of class {label}", steps, values)


class ClassImbalance(DebuggerRule):
    """Finds classes that are far rarer than others, and classes that are mostly mispredicted."""

    name = "ClassImbalance"
    parameters = (
        Parameter(
            "threshold_imbalance",
            float,
            10.0,
            "How many times as often as the rarest class the most frequent may occur.",
        ),
        Parameter(
            "threshold_misprediction",
            float,
            0.7,
            "The share of a class that may be mispredicted.",
            at_least=0,
            at_most=1,
        ),
        Parameter("samples", int, 500, "How many labels make up a check.", at_least=1),
        Parameter("argmax", bool, False, "Whether predictions are scores, the largest of which gives the class."),
        Parameter("labels_regex", tuple, (".*labels",), "The tensor with the labels."),
        Parameter("predictions_regex", tuple, (".*predictions",), "The tensor with the predictions."),
        Parameter(
            "patience", int, 1, "For how many consecutive checks a class must be mispredicted.", advised=15, at_least=1
        ),
        Parameter(
            "certainty",
            float,
            0.0,
            "By how many standard errors counts must exceed the limits.",
            advised=2.0,
            at_least=0,
        ),
    )

    def __init__(
        self,
        *,
        threshold_imbalance: float,
        threshold_misprediction: float,
        samples: int,
        argmax: bool,
        labels_regex: tuple[str, ...],
        predictions_regex: tuple[str, ...],
        patience: int,
        certainty: float,
    ) -> None:
        self._most_times, self._most_mistaken = threshold_imbalance, threshold_misprediction
        self._samples, self._patience, self._certainty, self._argmax = samples, patience, certainty, argmax
        self._needs = Need(regexes=(*labels_regex, *predictions_regex), is_raw=True)
        self._labels, self._predictions = Reader(Need(regexes=labels_regex)), Reader(Need(regexes=predictions_regex))
        self._counted: dict[tuple[str, Mode], _ClassCounts] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        pairs = read_pairs(step, self._labels, self._predictions, takes_largest=self._argmax)
        if pairs is None:
            return
        counted = self._counted.setdefault((step.worker, step.mode), _ClassCounts())
        counted.add(pairs)
        if counted.window.total < self._samples:
            return
        shares = counted.window.shares(self._certainty)
        ratio = self._ratio(counted.seen.counts)
        counted.close_window(step.number, ratio=ratio, shares=shares)
        yield from self._check_counts(step, pairs.label, counted)
        yield from self._check_mistakes(step, pairs.prediction, counted=counted, shares=shares)

    def _ratio(self, counts: Counts) -> float:
        there = counts[counts > 0]
        return lower_bound_ratio(float(there.max()), float(there.min()), certainty=self._certainty)

    def _check_counts(self, step: Step, tensor: str, counted: _ClassCounts) -> Iterator[Finding]:
        counts, ratio = counted.seen.counts, counted.ratios[-1]
        if ratio <= self._most_times:
            return
        most, rarest = int(counts.argmax()), int(np.where(counts > 0, counts, counts.max()).argmin())
        at_least = "at least " if self._certainty else ""
        yield Finding.at(
            step,
            tensor,
            f"Of {counted.seen.total} samples, {counts[most]} have class {most} and {counts[rarest]} have class "
            f"{rarest}: {at_least}{ratio:.4g} times as many; the limit is {self._most_times:g} times.",
            value=ratio,
            threshold=self._most_times,
            evidence=(Evidence("most frequent / rarest class", tuple(counted.steps), tuple(counted.ratios)),),
        )

    def _check_mistakes(self, step: Step, tensor: str, *, counted: _ClassCounts, shares: Numbers) -> Iterator[Finding]:
        is_mistaken = np.nan_to_num(shares) > self._most_mistaken
        before = add_counts(counted.streaks, np.zeros(len(shares), np.int64))[: len(shares)]
        # A class that does not occur in this window keeps its streak.
        is_unseen = np.isnan(shares)
        counted.streaks = np.where(is_unseen, before, np.where(is_mistaken, before + 1, 0))
        hits = np.flatnonzero(is_mistaken & (counted.streaks >= self._patience))
        if not len(hits):
            return
        worst = int(hits[np.argmax(shares[hits])])
        count = len(hits) - 1
        others = (
            f", and so {'are' if count > 1 else 'is'} {count} other class{'es' if count > 1 else ''}" if count else ""
        )
        duration = f" in {self._patience} consecutive checks" if self._patience > 1 else ""
        yield Finding.at(
            step,
            tensor,
            f"{shares[worst]:.0%} of class {worst} is mispredicted, more than {self._most_mistaken:.0%}{duration}"
            f"{others}.",
            value=float(shares[worst]),
            threshold=self._most_mistaken,
            evidence=(counted.share_of(worst),),
        )
