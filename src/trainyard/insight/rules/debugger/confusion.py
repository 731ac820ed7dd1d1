"""Classes that are confused with one another."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.classes import Counts, Pairs, confusion_matrix, lower_bounds, read_pairs, upper_bounds
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Numbers, Reader


@dataclass(slots=True)
class _SampleWindow:
    """The samples of one worker and mode since the last check, and the results of earlier checks."""

    pairs: list[Pairs] = field(default_factory=list)
    streak: int = 0
    steps: list[int] = field(default_factory=list)
    rights: list[float] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(len(pairs.labels) for pairs in self.pairs)


@dataclass(frozen=True, slots=True)
class _ConfusedPair:
    """The worst entry of a matrix: the share of a class's predictions that have this label; NaN if there are none."""

    label: int
    prediction: int
    share: float
    threshold: float

    @property
    def message(self) -> str:
        if np.isnan(self.share):
            return f"Class {self.label} occurs, but is never predicted"
        what = f"Of the predictions of class {self.prediction}, {self.share:.0%}"
        if self.label == self.prediction:
            return f"{what} are right, less than {self.threshold:.0%}"
        return f"{what} are of class {self.label}, more than {self.threshold:.0%}"


class Confusion(DebuggerRule):
    """Finds classes that are confused with one another too often."""

    name = "Confusion"
    parameters = (
        Parameter("category_no", int, None, "The number of classes; by default, as many as occur.", at_least=1),
        Parameter("labels", str, "labels", "The name of the tensor with the labels."),
        Parameter("predictions", str, "predictions", "The name of the tensor with the predictions."),
        Parameter("labels_collection", str, "labels", "A collection with the labels, if the tensor has another name."),
        Parameter(
            "predictions_collection",
            str,
            "predictions",
            "A collection with the predictions, if the tensor has another name.",
        ),
        Parameter(
            "min_diag",
            float,
            0.9,
            "The share of the predictions of a class that must be right.",
            advised=0.7,
            at_least=0,
            at_most=1,
        ),
        Parameter(
            "max_off_diag", float, 0.1, "The share that may be of one other class.", advised=0.3, at_least=0, at_most=1
        ),
        Parameter("samples", int, 1, "How many samples make up a check.", advised=300, at_least=1),
        Parameter("patience", int, 1, "For how many consecutive checks this must hold.", advised=3, at_least=1),
        Parameter(
            "certainty", float, 0.0, "By how many standard errors shares must be beyond.", advised=2.0, at_least=0
        ),
        Parameter("only_evaluations", bool, False, "Ignore training steps.", advised=True),
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
        self._windows: dict[tuple[str, Mode], _SampleWindow] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        if self._only_evaluations and step.mode is Mode.TRAIN:
            return
        pairs = read_pairs(step, self._labels, self._predictions)
        if pairs is None:
            return
        window = self._windows.setdefault((step.worker, step.mode), _SampleWindow())
        window.pairs.append(pairs)
        if window.total < self._samples:
            return
        matrix = confusion_matrix(window.pairs, self._categories)
        window.pairs = []
        if matrix is not None:
            yield from self._check_matrix(step, pairs.prediction, window=window, matrix=matrix)

    def _check_matrix(self, step: Step, tensor: str, *, window: _SampleWindow, matrix: Counts) -> Iterator[Finding]:
        found = self._find_worst(matrix)
        window.steps = [*window.steps, step.number][-EVIDENCE_STEPS:]
        window.rights = [*window.rights, float(np.trace(matrix) / matrix.sum())][-EVIDENCE_STEPS:]
        window.streak = window.streak + 1 if found else 0
        if found is None or window.streak < self._patience:
            return
        duration = f", in {self._patience} consecutive checks" if self._patience > 1 else ""
        yield Finding.at(
            step,
            tensor,
            f"{found.message}{duration}.",
            value=float(np.nan_to_num(found.share)),
            threshold=found.threshold,
            evidence=(Evidence("accuracy", tuple(window.steps), tuple(window.rights)),),
        )

    def _find_worst(self, matrix: Counts) -> _ConfusedPair | None:
        counts = matrix.astype(np.float64)
        predicted = counts.sum(axis=0)
        least = lower_bounds(counts, predicted, certainty=self._certainty)
        np.fill_diagonal(least, np.nan)
        mistaken = np.argwhere(np.nan_to_num(least) > self._most)
        if len(mistaken):
            label, prediction = max(mistaken.tolist(), key=lambda place: least[place[0], place[1]])
            return _ConfusedPair(
                label, prediction, float(counts[label, prediction] / predicted[prediction]), self._most
            )
        most = self._rights(np.diagonal(counts), predicted, labelled=counts.sum(axis=1))
        worst = int(np.nanargmin(most))
        if most[worst] >= self._least:
            return None
        share = float(counts[worst, worst] / predicted[worst]) if predicted[worst] else np.nan
        return _ConfusedPair(worst, worst, share, self._least)

    def _rights(self, rights: Numbers, predicted: Numbers, *, labelled: Numbers) -> Numbers:
        """Return the precision of each class; 0 for one that occurs but is never predicted."""
        shares = upper_bounds(rights, predicted, certainty=self._certainty)
        enough = self._certainty**2 * 3 if self._certainty else 0
        missed = np.where(labelled > enough, 0.0, 1.0)
        return np.where(predicted > 0, shares, missed)
