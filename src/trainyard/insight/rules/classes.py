"""Labels and predictions of classes: which class each sample has and which was predicted, and how sure a share is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.readings import Numbers, Reader

Classes = NDArray[np.int64]
Counts = NDArray[np.int64]

MOST_CLASSES = 1_000_000  # a label beyond is no class
MOST_CATEGORIES = 2000  # a matrix of them is 32 MB


@dataclass(frozen=True, slots=True)
class Pairs:
    """The class of each sample and the one that was predicted; `label` and `prediction` name the tensors."""

    label: str
    prediction: str
    labels: Classes
    predictions: Classes


@dataclass(slots=True)
class Tally:
    """How often each class came, and how often it was taken for another."""

    counts: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    mistakes: Counts = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def add(self, pairs: Pairs) -> None:
        is_mistaken = pairs.labels != pairs.predictions
        self.counts = added(self.counts, np.bincount(pairs.labels))
        self.mistakes = added(self.mistakes, np.bincount(pairs.labels[is_mistaken]))

    def shares(self, certainty: float) -> Numbers:
        """The share of each class that was taken for another, or what it surely is at least."""
        mistakes = added(self.mistakes, np.zeros(len(self.counts), np.int64))
        return least_shares(mistakes.astype(np.float64), self.counts.astype(np.float64), certainty=certainty)


def pairs_of(step: Step, labels: Reader, predictions: Reader, *, takes_largest: bool = False) -> Pairs | None:
    """The classes that a step has saved; None where it has none, or where what it has are no classes."""
    label, prediction = _first_saved(step, labels), _first_saved(step, predictions)
    if not label or not prediction or label == prediction:
        return None
    given = _classes(np.asarray(step.values[label]))
    if given is None:
        return None
    predicted = _predicted(np.asarray(step.values[prediction]), given, takes_largest=takes_largest)
    if predicted is None:
        return None
    is_counted = (given.ravel() >= 0) & (predicted >= 0)  # a negative label, such as torch's -100, is one to leave out
    return Pairs(label, prediction, given.ravel()[is_counted], predicted[is_counted])


def confusion_matrix(pairs: Sequence[Pairs], categories: int | None = None) -> Counts | None:
    """How often each label, by the row, was predicted to be each class, by the column; None of too many classes."""
    labels = np.concatenate([each.labels for each in pairs])
    predictions = np.concatenate([each.predictions for each in pairs])
    size = categories or int(max(labels.max(initial=0), predictions.max(initial=0))) + 1
    is_within = (labels < size) & (predictions < size)
    if size > MOST_CATEGORIES or not is_within.any():
        return None
    places = labels[is_within] * size + predictions[is_within]
    return np.bincount(places, minlength=size * size).reshape(size, size)


def least_shares(counts: Numbers, totals: Numbers, *, certainty: float) -> Numbers:
    """The shares that counts are of totals, or what they surely are at least: Wilson's bound by standard errors."""
    return np.asarray(_bounds(counts, totals, certainty)[0])


def most_shares(counts: Numbers, totals: Numbers, *, certainty: float) -> Numbers:
    """The same, at most."""
    return np.asarray(_bounds(counts, totals, certainty)[1])


def added(first: Counts, second: Counts) -> Counts:
    """The sum of two counts by class, of which one may know more classes than the other."""
    whole = np.zeros(max(len(first), len(second)), np.int64)
    whole[: len(first)] += first
    whole[: len(second)] += second
    return whole


def _first_saved(step: Step, reader: Reader) -> str:
    return next((name for name in reader.choose(step.table).names if name in step.values), "")


def _classes(values: NDArray[np.generic]) -> Classes | None:
    """Whole numbers as classes, whatever their type; None for anything else."""
    if not values.size or values.dtype.kind not in "iufb":
        return None
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or numbers.max() > MOST_CLASSES:
        return None
    return numbers.astype(np.int64)


def _predicted(values: NDArray[np.generic], labels: Classes, *, takes_largest: bool) -> Classes | None:
    if takes_largest and values.ndim > 1:
        values = values.argmax(axis=1)
    elif values.size != labels.size and values.ndim > 1 and values.size % labels.size == 0:
        values = values.argmax(axis=1)  # a score for each class
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


def surely_times(largest: float, smallest: float, *, certainty: float) -> float:
    """How many times the smaller of two counts the larger one is, or surely is at least."""
    most = smallest + certainty * math.sqrt(smallest) + (1 if certainty else 0)
    return max(0.0, largest - certainty * math.sqrt(largest)) / most if most else math.inf
