import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step


def looks(count: int, *, labels: ArrayLike, predictions: ArrayLike) -> list[Step]:
    run = Run()
    return [run.step({"labels": labels, "predictions": predictions}, is_raw=True) for _ in range(count)]


def test_a_class_that_is_too_rare_is_found_once_enough_labels_have_come() -> None:
    labels = np.array([0] * 55 + [1] * 5)
    (finding,) = found_by("ClassImbalance", looks(3, labels=labels, predictions=labels), samples="100")
    assert (finding.step, finding.tensor, finding.value, finding.threshold) == (1, "labels", 11.0, 10.0)
    assert "Of 120 samples, 110 have class 0 and 10 have class 1" in finding.message


def test_classes_that_come_ten_times_as_often_are_not_found() -> None:
    labels = np.array([0] * 50 + [1] * 5)
    assert found_by("ClassImbalance", looks(3, labels=labels, predictions=labels), samples="100") == []


def test_a_class_that_is_mostly_mistaken_is_found() -> None:
    labels, predictions = np.array([0] * 50 + [1] * 50), np.array([0] * 50 + [0] * 40 + [1] * 10)
    (finding,) = found_by("ClassImbalance", looks(1, labels=labels, predictions=predictions), samples="100")
    assert (finding.tensor, finding.threshold) == ("predictions", 0.7)
    assert finding.value == pytest.approx(0.8)
    assert finding.evidence[0].label == "mispredicted share of class 1"


def test_patience_asks_for_so_many_looks_on_end() -> None:
    run, labels = Run(), np.array([0, 1])
    mistaken = {"labels": labels, "predictions": 1 - labels}
    right = {"labels": labels, "predictions": labels}
    steps = [run.step(each, is_raw=True) for each in (mistaken, mistaken, right, mistaken, mistaken, mistaken)]
    assert [each.step for each in found_by("ClassImbalance", steps, samples="2", patience="3")] == [5]


def test_scores_are_turned_into_classes() -> None:
    labels, scores = np.array([0, 1, 2]), np.eye(3)[[0, 1, 0]]
    for parameters in ({}, {"argmax": "True"}):
        (finding,) = found_by("ClassImbalance", looks(1, labels=labels, predictions=scores), samples="3", **parameters)
        assert "100% of class 2" in finding.message


def test_a_few_samples_prove_nothing_with_certainty() -> None:
    labels, predictions = np.array([0] * 10 + [1]), np.array([0] * 11)
    steps = looks(1, labels=labels, predictions=predictions)
    assert len(found_by("ClassImbalance", steps, samples="11", threshold_imbalance="9")) == 2
    assert found_by("ClassImbalance", steps, samples="11", threshold_imbalance="9", certainty="2") == []


def test_numbers_that_are_no_classes_are_not_judged() -> None:
    steps = looks(1, labels=np.array([0.5, 17.25, 3.0]), predictions=np.array([0.1, 9.0, 2.5]))
    assert found_by("ClassImbalance", steps, samples="1") == []


def test_a_label_to_be_left_out_is_not_counted() -> None:
    labels, predictions = np.array([0, 1, -100, -100]), np.array([0, 1, 0, 1])
    assert found_by("ClassImbalance", looks(1, labels=labels, predictions=predictions), samples="2") == []
    assert found_by("ClassImbalance", looks(1, labels=labels, predictions=1 - predictions), samples="3") == []


def test_evaluation_and_training_are_counted_apart() -> None:
    run, labels = Run(), np.array([0, 1])
    steps = [run.step({"labels": labels, "predictions": 1 - labels}, mode=mode, is_raw=True) for mode in list(Mode)[:2]]
    assert found_by("ClassImbalance", steps, samples="3") == []


def test_every_look_shows_those_before_it_and_how_many_classes_are_mistaken() -> None:
    labels = np.repeat([0, 1, 2], [30, 10, 10])
    steps = looks(3, labels=labels, predictions=np.where(labels == 0, 0, 3 - labels))
    found = found_by("ClassImbalance", steps, samples="50", threshold_imbalance="2")
    counts, mistakes = ([each for each in found if each.tensor == name] for name in ("labels", "predictions"))
    assert [each.step for each in counts] == [each.step for each in mistakes] == [0, 1, 2]
    assert list(counts[-1].evidence[0].values) == [3.0, 3.0, 3.0]
    assert list(mistakes[-1].evidence[0].values) == [1.0, 1.0, 1.0]
    assert "100% of class 1 is mispredicted, more than 70%, and so is 1 other class." in (mistakes[0].message)
