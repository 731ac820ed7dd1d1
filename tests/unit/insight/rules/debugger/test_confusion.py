import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step

LABELS = np.array([0] * 50 + [1] * 50)


def evaluations(*predictions: ArrayLike, mode: Mode = Mode.EVAL) -> list[Step]:
    run = Run()
    return [run.step({"labels": LABELS, "predictions": each}, mode=mode, is_raw=True) for each in predictions]


def told_for_the_other(count: int) -> ArrayLike:
    """So many of class 1 are predicted to be of class 0."""
    return np.array([0] * 50 + [0] * count + [1] * (50 - count))


def test_a_class_that_is_taken_for_another_is_found() -> None:
    (finding,) = found_by("Confusion", evaluations(told_for_the_other(20)))
    assert (finding.step, finding.tensor, finding.threshold) == (0, "predictions", 0.1)
    assert finding.value == pytest.approx(20 / 70)
    assert "Of the predictions of class 0, 29% are of class 1, more than 10%" in finding.message
    assert list(finding.evidence[0].values) == pytest.approx([0.8])


def test_classes_that_are_told_apart_are_not_found() -> None:
    # Balanced classes that are all told right: AWS's own formula, as it is printed, would fire.
    assert found_by("Confusion", evaluations(LABELS, told_for_the_other(5))) == []


def test_many_small_confusions_of_one_class_are_found_on_the_diagonal() -> None:
    run, labels = Run(), np.arange(100) % 10
    spread = np.where(np.arange(100) < 20, 0, labels)  # two of each other class are taken for class 0
    (finding,) = found_by("Confusion", [run.step({"labels": labels, "predictions": spread}, is_raw=True)])
    assert finding.value == pytest.approx(10 / 28)
    assert "class 0, 36% are right, less than 90%" in finding.message


def test_a_class_that_is_never_predicted_is_found() -> None:
    (finding,) = found_by("Confusion", evaluations(np.zeros(100)), max_off_diag="1")
    assert "Class 1 occurs, but is never predicted" in finding.message
    assert finding.value == 0


def test_probabilities_of_two_classes_are_rounded() -> None:
    probabilities = np.where(told_for_the_other(20), 0.9, 0.2)
    (finding,) = found_by("Confusion", evaluations(probabilities))
    assert finding.value == pytest.approx(20 / 70)


def test_only_so_many_categories_are_counted() -> None:
    run = Run()
    steps = [run.step({"labels": np.array([0, 1, 7]), "predictions": np.array([0, 1, 0])}, is_raw=True)]
    assert found_by("Confusion", steps, category_no="2") == []
    assert len(found_by("Confusion", steps)) == 1


def test_steps_that_train_are_not_judged_as_advised() -> None:
    bad = [told_for_the_other(50)] * 20
    assert found_by("Confusion", evaluations(*bad, mode=Mode.TRAIN), defaults="advised") == []
    # 300 samples make a look, and three looks on end are needed.
    assert found_by("Confusion", evaluations(*bad), defaults="advised")[0].step == 8
    assert found_by("Confusion", evaluations(*bad, mode=Mode.GLOBAL), defaults="advised")[0].step == 8


def test_a_collection_may_hold_them_under_other_names() -> None:
    steps = evaluations(told_for_the_other(20))
    assert found_by("Confusion", steps, labels="other") == []
    assert len(found_by("Confusion", steps, labels="lab.*")) == 1


def test_of_several_confusions_the_worst_is_told() -> None:
    labels = np.repeat([0, 1, 2], 100)
    told = labels.copy()
    told[100:120] = 0  # 20 of class 1 are taken for class 0
    told[200:260] = 1  # 60 of class 2 for class 1
    told[60:80] = 2  # 20 of class 0 for class 2
    (finding,) = found_by("Confusion", [Run().step({"labels": labels, "predictions": told}, is_raw=True)])
    assert "Of the predictions of class 1, 43% are of class 2" in finding.message
    assert finding.value == pytest.approx(60 / 140)


@pytest.mark.parametrize(("count", "is_found"), [(12, False), (13, True)])
def test_a_class_that_is_never_predicted_is_surely_missed_only_when_there_is_enough_of_it(
    count: int, is_found: bool
) -> None:
    labels = np.repeat([0, 1], [1000, count])
    steps = [Run().step({"labels": labels, "predictions": np.zeros(len(labels))}, is_raw=True)]
    assert bool(found_by("Confusion", steps, certainty="2", max_off_diag="1")) is is_found


def test_a_class_that_is_not_there_is_not_missed() -> None:
    assert found_by("Confusion", evaluations(LABELS), category_no="5") == []


@pytest.mark.parametrize(("limit", "is_found"), [("0.25", False), ("0.2499", True)])
def test_a_share_at_the_limit_is_not_found(limit: str, is_found: bool) -> None:
    # 25 of 100 that are predicted to be class 0 are of class 1.
    labels, told = np.repeat([0, 1], [75, 75]), np.repeat([0, 1], [100, 50])
    steps = [Run().step({"labels": labels, "predictions": told}, is_raw=True)]
    assert bool(found_by("Confusion", steps, max_off_diag=limit, min_diag="0")) is is_found


@pytest.mark.parametrize(("limit", "is_found"), [("0.75", False), ("0.7501", True)])
def test_a_share_of_right_predictions_at_the_limit_is_not_found(limit: str, is_found: bool) -> None:
    labels, told = np.repeat([0, 1], [75, 75]), np.repeat([0, 1], [100, 50])
    steps = [Run().step({"labels": labels, "predictions": told}, is_raw=True)]
    assert bool(found_by("Confusion", steps, max_off_diag="1", min_diag=limit)) is is_found


def test_looks_on_end_are_told_with_how_often_predictions_were_right() -> None:
    steps = evaluations(*[told_for_the_other(20)] * 2, LABELS, *[told_for_the_other(20)] * 3)
    (finding,) = found_by("Confusion", steps, patience="3")
    assert finding.step == 5
    assert finding.message.endswith("more than 10%, in 3 consecutive checks.")
    assert list(finding.evidence[0].steps) == [0, 1, 2, 3, 4, 5]
    assert list(finding.evidence[0].values) == pytest.approx([0.8, 0.8, 1.0, 0.8, 0.8, 0.8])
    assert finding.evidence[0].label == "accuracy"


def test_each_worker_and_each_mode_is_looked_at_by_itself() -> None:
    bad = {"labels": LABELS, "predictions": told_for_the_other(20)}
    first, second = Run("worker_0"), Run("worker_1")
    steps = [first.step(bad, is_raw=True), second.step(bad, is_raw=True), first.step(bad, mode=Mode.EVAL, is_raw=True)]
    assert found_by("Confusion", steps, samples="200") == []
    assert found_by("Confusion", steps, patience="2") == []
    assert [
        finding.step for finding in found_by("Confusion", [*steps, first.step(bad, is_raw=True)], patience="2")
    ] == [2]


def test_a_look_is_of_samples_of_its_own_and_evidence_of_the_last_looks() -> None:
    steps = evaluations(*[told_for_the_other(20)] * 70)
    found = found_by("Confusion", steps)
    assert len(found) == 70
    assert [finding.value for finding in found] == pytest.approx([20 / 70] * 70)
    assert list(found[-1].evidence[0].steps) == list(range(6, 70))
