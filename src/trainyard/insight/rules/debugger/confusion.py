"""Classes that are taken for one another."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.classes import Counts, Pairs, confusion_matrix, least_shares, most_shares, pairs_of
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import LOOK_BACK, Numbers, Reader


@dataclass(slots=True)
class _Looks:
    """The samples since the last look, and what the looks before have shown, of one worker and mode."""

    pairs: list[Pairs] = field(default_factory=list)
    streak: int = 0
    steps: list[int] = field(default_factory=list)
    rights: list[float] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(len(pairs.labels) for pairs in self.pairs)


@dataclass(frozen=True, slots=True)
class _Confused:
    """The worst of a matrix: of what is predicted to be one class, the share that is of another or of itself; NaN where
    nothing is."""

    label: int
    prediction: int
    share: float
    threshold: float

    @property
    def message(self) -> str:
        if np.isnan(self.share):
            return f"Class {self.label} is there, but never predicted"
        what = f"Of what is predicted to be class {self.prediction}, {self.share:.0%}"
        if self.label == self.prediction:
            return f"{what} is, less than {self.threshold:.0%}"
        return f"{what} is of class {self.label}, more than {self.threshold:.0%}"


class Confusion(DebuggerRule):
    """Finds classes that are taken for one another too often."""

    name = "Confusion"
    parameters = (
        Parameter("category_no", int, None, "How many classes there are; without it, as many as are seen.", at_least=1),
        Parameter("labels", str, "labels", "The name of the tensor with the labels."),
        Parameter("predictions", str, "predictions", "The name of the tensor with the predictions."),
        Parameter("labels_collection", str, "labels", "A collection with the labels, where the name is another."),
        Parameter("predictions_collection", str, "predictions", "A collection with the predictions, likewise."),
        Parameter(
            "min_diag",
            float,
            0.9,
            "The share of what is predicted to be a class that must be of it.",
            advised=0.7,
            at_least=0,
            at_most=1,
        ),
        Parameter(
            "max_off_diag", float, 0.1, "The share that may be of one other class.", advised=0.3, at_least=0, at_most=1
        ),
        Parameter("samples", int, 1, "How many samples make a look.", advised=300, at_least=1),
        Parameter("patience", int, 1, "At how many looks on end it must be so.", advised=3, at_least=1),
        Parameter(
            "certainty", float, 0.0, "By how many standard errors shares must be beyond.", advised=2.0, at_least=0
        ),
        Parameter("only_evaluations", bool, False, "Leave out the steps that train.", advised=True),
    )

    def __init__(
        self,
        *,
        category_no: int | None,
        labels: str,
        predictions: str,
        labels_collection: str,
        predictions_collection: str,
        min_diag: float,
        max_off_diag: float,
        samples: int,
        patience: int,
        certainty: float,
        only_evaluations: bool,
    ) -> None:
        self._categories, self._least, self._most = category_no, min_diag, max_off_diag
        self._samples, self._patience, self._certainty = samples, patience, certainty
        self._only_evaluations = only_evaluations
        wanted = Need((labels_collection,), (f"^{labels}$",)), Need((predictions_collection,), (f"^{predictions}$",))
        self._labels, self._predictions = Reader(wanted[0]), Reader(wanted[1])
        self._needs = Need(
            wanted[0].collections + wanted[1].collections, wanted[0].regexes + wanted[1].regexes, is_raw=True
        )
        self._looks: dict[tuple[str, Mode], _Looks] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        if self._only_evaluations and step.mode is Mode.TRAIN:
            return
        pairs = pairs_of(step, self._labels, self._predictions)
        if pairs is None:
            return
        looks = self._looks.setdefault((step.worker, step.mode), _Looks())
        looks.pairs.append(pairs)
        if looks.total < self._samples:
            return
        matrix = confusion_matrix(looks.pairs, self._categories)
        looks.pairs = []
        if matrix is not None:
            yield from self._judge(step, pairs.prediction, looks=looks, matrix=matrix)

    def _judge(self, step: Step, tensor: str, *, looks: _Looks, matrix: Counts) -> Iterator[Finding]:
        found = self._confused(matrix)
        looks.steps = [*looks.steps, step.number][-LOOK_BACK:]
        looks.rights = [*looks.rights, float(np.trace(matrix) / matrix.sum())][-LOOK_BACK:]
        looks.streak = looks.streak + 1 if found else 0
        if found is None or looks.streak < self._patience:
            return
        for_long = f", at {self._patience} looks on end" if self._patience > 1 else ""
        yield Finding.at(
            step,
            tensor,
            f"{found.message}{for_long}.",
            value=float(np.nan_to_num(found.share)),
            threshold=found.threshold,
            evidence=(Evidence("share of right predictions", tuple(looks.steps), tuple(looks.rights)),),
        )

    def _confused(self, matrix: Counts) -> _Confused | None:
        counts = matrix.astype(np.float64)
        predicted = counts.sum(axis=0)
        least = least_shares(counts, predicted, certainty=self._certainty)
        np.fill_diagonal(least, np.nan)
        mistaken = np.argwhere(np.nan_to_num(least) > self._most)
        if len(mistaken):
            label, prediction = max(mistaken.tolist(), key=lambda place: least[place[0], place[1]])
            return _Confused(label, prediction, float(counts[label, prediction] / predicted[prediction]), self._most)
        most = self._rights(np.diagonal(counts), predicted, labelled=counts.sum(axis=1))
        worst = int(np.nanargmin(most))
        if most[worst] >= self._least:
            return None
        share = float(counts[worst, worst] / predicted[worst]) if predicted[worst] else np.nan
        return _Confused(worst, worst, share, self._least)

    def _rights(self, rights: Numbers, predicted: Numbers, *, labelled: Numbers) -> Numbers:
        """The share of each predicted class that is of it; 0 for one that is never predicted although it is there."""
        shares = most_shares(rights, predicted, certainty=self._certainty)
        enough = self._certainty**2 * 3 if self._certainty else 0
        missed = np.where(labelled > enough, 0.0, 1.0)
        return np.where(predicted > 0, shares, missed)
