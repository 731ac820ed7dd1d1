"""Labels and predicted classes of samples, and confidence bounds for shares of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.readings import Numbers, Reader

Classes = NDArray[np.int64]
Counts = NDArray[np.int64]

# A larger label is not a class.
MAX_CLASS = 1_000_000
# A matrix of these takes 32 MB.
MAX_CATEGORIES = 2000


@dataclass(frozen=True, slots=True)
class Pairs:
    """The class and the predicted class of each sample; `label` and `prediction` are the names of the tensors."""

    label: str
    prediction: str
    labels: Classes
    predictions: Classes


@dataclass(slots=True)
class Tally:
    """How often each class occurred, and how often it was mispredicted."""

    counts: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    mistakes: Counts = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def add(self, pairs: Pairs) -> None:
        is_mistaken = pairs.labels != pairs.predictions
        self.counts = add_counts(self.counts, np.bincount(pairs.labels))
        self.mistakes = add_counts(self.mistakes, np.bincount(pairs.labels[is_mistaken]))

    def shares(self, certainty: float) -> Numbers:
        """Return the mispredicted share of each class, or its lower bound."""
        mistakes = add_counts(self.mistakes, np.zeros(len(self.counts), np.int64))
        return lower_bounds(mistakes.astype(np.float64), self.counts.astype(np.float64), certainty=certainty)


def read_pairs(step: Step, labels: Reader, predictions: Reader, *, takes_largest: bool = False) -> Pairs | None:
    """Return the classes that a step has saved; None if it has none, or if the values are not classes."""
    label, prediction = _first_saved(step, labels), _first_saved(step, predictions)
    if not label or not prediction or label == prediction:
        return None
    actual = _classes(np.asarray(step.values[label]))
    if actual is None:
        return None
    predicted = _predict_classes(np.asarray(step.values[prediction]), actual, takes_largest=takes_largest)
    if predicted is None:
        return None
    # A negative label, such as torch's -100, means that the sample is ignored.
    is_counted = (actual.ravel() >= 0) & (predicted >= 0)
    return Pairs(label, prediction, actual.ravel()[is_counted], predicted[is_counted])


def confusion_matrix(pairs: Sequence[Pairs], categories: int | None = None) -> Counts | None:
    """Return the confusion matrix, labels as rows and predictions as columns; None if there are too many classes."""
    labels = np.concatenate([each.labels for each in pairs])
    predictions = np.concatenate([each.predictions for each in pairs])
    size = categories or int(max(labels.max(initial=0), predictions.max(initial=0))) + 1
    is_within = (labels < size) & (predictions < size)
    if size > MAX_CATEGORIES or not is_within.any():
        return None
    places = labels[is_within] * size + predictions[is_within]
    return np.bincount(places, minlength=size * size).reshape(size, size)


def lower_bounds(counts: Numbers, totals: Numbers, *, certainty: float) -> Numbers:
    """Return the lower Wilson bounds of the shares counts / totals, at `certainty` standard errors."""
    return np.asarray(_bounds(counts, totals, certainty)[0])


def upper_bounds(counts: Numbers, totals: Numbers, *, certainty: float) -> Numbers:
    """Return the upper Wilson bounds of the shares counts / totals."""
    return np.asarray(_bounds(counts, totals, certainty)[1])


def add_counts(first: Counts, second: Counts) -> Counts:
    """Add two counts by class; one may have more classes than the other."""
    total = np.zeros(max(len(first), len(second)), np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def _first_saved(step: Step, reader: Reader) -> str:
    return next((name for name in reader.choose(step.table).names if name in step.values), "")


def _classes(values: NDArray[np.generic]) -> Classes | None:
    """Convert integral values of any type to classes; None for anything else."""
    if not values.size or values.dtype.kind not in "iufb":
        return None
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or numbers.max() > MAX_CLASS:
        return None
    return numbers.astype(np.int64)


def _predict_classes(values: NDArray[np.generic], labels: Classes, *, takes_largest: bool) -> Classes | None:
    if takes_largest and values.ndim > 1:
        values = values.argmax(axis=1)
    elif values.size != labels.size and values.ndim > 1 and values.size % labels.size == 0:
        # There is a score for each class.
        values = values.argmax(axis=1)
    if values.size != labels.size or values.dtype.kind not in "iufb":
        return None
    classes = _classes(values)
    if classes is not None:
        return classes.ravel()
    scores = values.astype(np.float64).ravel()
    is_probability = bool(((scores >= 0) & (scores <= 1)).all()) and int(labels.max()) <= 1
    return (scores >= 0.5).astype(np.int64) if is_probability else None


def _bounds(counts: Numbers, totals: Numbers, certainty: float) -> tuple[Numbers, Numbers]:
    square = certainty**2
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = counts / totals
        middle = shares + square / (2 * totals)
        spread = certainty * np.sqrt(shares * (1 - shares) / totals + square / (4 * totals**2))
        scale = 1 + square / totals
        return (middle - spread) / scale, (middle + spread) / scale


def lower_bound_ratio(largest: float, smallest: float, *, certainty: float) -> float:
    """Return the ratio of two counts, or its lower bound."""
    most = smallest + certainty * math.sqrt(smallest) + (1 if certainty else 0)
    return max(0.0, largest - certainty * math.sqrt(largest)) / most if most else math.inf
