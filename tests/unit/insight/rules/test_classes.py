import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run
from trainyard.insight.rules.classes import confusion_matrix, lower_bound_ratio, lower_bounds, read_pairs, upper_bounds
from trainyard.insight.rules.contract import Need
from trainyard.insight.rules.readings import Reader

LABELS, PREDICTIONS = Reader(Need(regexes=("labels",))), Reader(Need(regexes=("predictions",)))


def test_scores_of_sequences_have_their_classes_along_the_second_axis() -> None:
    scores = np.zeros((2, 3, 4))  # two sequences, three classes, four places
    scores[:, 2, :] = 1.0
    step = Run().step({"labels": np.full((2, 4), 2), "predictions": scores}, is_raw=True)
    pairs = read_pairs(step, LABELS, PREDICTIONS)
    assert pairs is not None
    assert pairs.predictions.tolist() == pairs.labels.tolist() == [2] * 8


def test_steps_that_have_saved_only_one_of_both_have_no_pairs() -> None:
    assert read_pairs(Run().step({"labels": np.array([1, 2])}, is_raw=True), LABELS, PREDICTIONS) is None
    step = Run().step({"labels": np.array([1, 2]), "predictions": np.array([1, 2])})  # none is saved
    assert read_pairs(step, LABELS, PREDICTIONS) is None


def test_a_matrix_counts_labels_by_row_and_predictions_by_column() -> None:
    step = Run().step({"labels": np.array([0, 0, 1]), "predictions": np.array([0, 1, 1])}, is_raw=True)
    pairs = read_pairs(step, LABELS, PREDICTIONS)
    assert pairs is not None
    matrix = confusion_matrix([pairs, pairs])
    assert matrix is not None
    assert matrix.tolist() == [[2, 2], [0, 2]]


def test_bounds_close_in_on_the_share_as_samples_come() -> None:
    half, many = np.array([5.0, 5000.0]), np.array([10.0, 10000.0])
    assert lower_bounds(half, many, certainty=2.0) == pytest.approx([0.2332, 0.49], abs=1e-3)
    assert upper_bounds(half, many, certainty=2.0) == pytest.approx([0.7668, 0.51], abs=1e-3)
    assert lower_bounds(half, many, certainty=0.0) == pytest.approx([0.5, 0.5])


def test_how_many_times_a_count_is_another_is_told_with_caution() -> None:
    assert lower_bound_ratio(100, 10, certainty=0) == 10
    assert lower_bound_ratio(100, 10, certainty=2) == pytest.approx(80 / (11 + 2 * 10**0.5))
    assert lower_bound_ratio(1, 1, certainty=2) == 0
