"""Classes that come too rarely, or that are hardly ever told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.classes import Counts, Pairs, Tally, added, pairs_of, surely_times
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import LOOK_BACK, Numbers, Reader


@dataclass(slots=True)
class _Judged:
    """What is known of the classes of one worker and mode."""

    seen: Tally = field(default_factory=Tally)  # in the whole run
    window: Tally = field(default_factory=Tally)  # since the last look
    streaks: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: list[int] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    shares: list[Numbers] = field(default_factory=list)

    def add(self, pairs: Pairs) -> None:
        self.seen.add(pairs)
        self.window.add(pairs)

    def close_window(self, step: int, *, ratio: float, shares: Numbers) -> None:
        self.window = Tally()
        self.steps = [*self.steps, step][-LOOK_BACK:]
        self.ratios = [*self.ratios, ratio][-LOOK_BACK:]
        self.shares = [*self.shares, shares][-LOOK_BACK:]

    def share_of(self, label: int) -> Evidence:
        looks = zip(self.steps, self.shares, strict=True)
        known = [(step, float(shares[label])) for step, shares in looks if label < len(shares)]
        steps, values = zip(*known, strict=True)
        return Evidence(f"share of class {label} that is mistaken", steps, values)


class ClassImbalance(DebuggerRule):
    """Finds classes that are far rarer than others, and classes that are mostly taken for others."""

    name = "ClassImbalance"
    parameters = (
        Parameter("threshold_imbalance", float, 10.0, "How many times the rarest class the most frequent may come."),
        Parameter(
            "threshold_misprediction",
            float,
            0.7,
            "The share of a class that may be taken for others.",
            at_least=0,
            at_most=1,
        ),
        Parameter("samples", int, 500, "How many labels make a look.", at_least=1),
        Parameter("argmax", bool, False, "Whether predictions are scores, of which the largest names the class."),
        Parameter("labels_regex", tuple, (".*labels",), "The tensor with the labels."),
        Parameter("predictions_regex", tuple, (".*predictions",), "The tensor with the predictions."),
        Parameter("patience", int, 1, "At how many looks on end a class must be mistaken.", advised=15, at_least=1),
        Parameter(
            "certainty", float, 0.0, "By how many standard errors counts must be beyond.", advised=2.0, at_least=0
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
        self._judged: dict[tuple[str, Mode], _Judged] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        pairs = pairs_of(step, self._labels, self._predictions, takes_largest=self._argmax)
        if pairs is None:
            return
        judged = self._judged.setdefault((step.worker, step.mode), _Judged())
        judged.add(pairs)
        if judged.window.total < self._samples:
            return
        shares = judged.window.shares(self._certainty)
        ratio = self._ratio(judged.seen.counts)
        judged.close_window(step.number, ratio=ratio, shares=shares)
        yield from self._check_counts(step, pairs.label, judged)
        yield from self._check_mistakes(step, pairs.prediction, judged=judged, shares=shares)

    def _ratio(self, counts: Counts) -> float:
        there = counts[counts > 0]
        return surely_times(float(there.max()), float(there.min()), certainty=self._certainty)

    def _check_counts(self, step: Step, tensor: str, judged: _Judged) -> Iterator[Finding]:
        counts, ratio = judged.seen.counts, judged.ratios[-1]
        if ratio <= self._most_times:
            return
        most, rarest = int(counts.argmax()), int(np.where(counts > 0, counts, counts.max()).argmin())
        surely = "surely " if self._certainty else ""
        yield Finding.at(
            step,
            tensor,
            f"Of {judged.seen.total} samples {counts[most]} are of class {most} and {counts[rarest]} of class "
            f"{rarest}: {surely}{ratio:.4g} times as many, where {self._most_times:g} times are the limit.",
            value=ratio,
            threshold=self._most_times,
            evidence=(Evidence("most frequent / rarest class", tuple(judged.steps), tuple(judged.ratios)),),
        )

    def _check_mistakes(self, step: Step, tensor: str, *, judged: _Judged, shares: Numbers) -> Iterator[Finding]:
        is_mistaken = np.nan_to_num(shares) > self._most_mistaken
        before = added(judged.streaks, np.zeros(len(shares), np.int64))[: len(shares)]
        is_unseen = np.isnan(shares)  # in this window; that says nothing
        judged.streaks = np.where(is_unseen, before, np.where(is_mistaken, before + 1, 0))
        hits = np.flatnonzero(is_mistaken & (judged.streaks >= self._patience))
        if not len(hits):
            return
        worst = int(hits[np.argmax(shares[hits])])
        others = f", and so are {len(hits) - 1} other classes" if len(hits) > 1 else ""
        for_long = f" at {self._patience} looks on end" if self._patience > 1 else ""
        yield Finding.at(
            step,
            tensor,
            f"{shares[worst]:.0%} of class {worst} are taken for other classes, more than {self._most_mistaken:.0%}"
            f"{for_long}{others}.",
            value=float(shares[worst]),
            threshold=self._most_mistaken,
            evidence=(judged.share_of(worst),),
        )
