"""The charts that a run can log, as JSON documents in the form of the sagemaker SDK."""

import math
from collections.abc import Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest

Chart = dict[str, Any]


def confusion_matrix(y_true: Sequence[Any], y_pred: Sequence[Any], title: str | None) -> Chart:
    """Return how often each true class was predicted as each class. Classes are in their order."""
    truth, predicted = _listed(y_true), _listed(y_pred)
    _require_same_length(truth, predicted)
    classes = sorted(set(truth) | set(predicted))
    places = {name: place for place, name in enumerate(classes)}
    counts = [[0] * len(classes) for _ in classes]
    for actual, guess in zip(truth, predicted, strict=True):
        counts[places[actual]][places[guess]] += 1
    return {
        "type": "ConfusionMatrix",
        "version": 0,
        "title": title,
        "confusionMatrix": counts,
        "classes": [str(each) for each in classes],
    }


def roc_curve(y_true: Sequence[Any], y_score: Sequence[float], title: str | None) -> Chart:
    """Return the rates of false and true positives at each threshold, and the area under the curve."""
    truth, scores = _binary(y_true), [float(each) for each in _listed(y_score)]
    _require_same_length(truth, scores)
    positives = sum(truth)
    negatives = len(truth) - positives
    if not positives or not negatives:
        raise InvalidRequest("A ROC curve needs at least one positive and one negative example.")
    false_rates, true_rates, area = [0.0], [0.0], 0.0
    for false_count, true_count in _counts_by_threshold(truth, scores):
        false_rates.append(false_count / negatives)
        true_rates.append(true_count / positives)
        area += (false_rates[-1] - false_rates[-2]) * (true_rates[-1] + true_rates[-2]) / 2
    return {
        "type": "ROCCurve",
        "version": 0,
        "title": title,
        "falsePositiveRate": false_rates,
        "truePositiveRate": true_rates,
        "areaUnderCurve": area,
    }


def precision_recall(
    y_true: Sequence[Any],
    predicted_probabilities: Sequence[float],
    *,
    positive_label: Any,
    title: str | None,
    no_skill: float | None,
) -> Chart:
    """Return the precision and the recall at each threshold, and the average precision."""
    truth = [each == positive_label for each in _listed(y_true)] if positive_label is not None else _binary(y_true)
    scores = [float(each) for each in _listed(predicted_probabilities)]
    _require_same_length(truth, scores)
    positives = sum(truth)
    if not positives:
        raise InvalidRequest("A precision-recall curve needs at least one positive example.")
    precision, recall, average = [1.0], [0.0], 0.0
    for false_count, true_count in _counts_by_threshold(truth, scores):
        precision.append(true_count / (true_count + false_count))
        recall.append(true_count / positives)
        average += (recall[-1] - recall[-2]) * precision[-1]
    return {
        "type": "PrecisionRecallCurve",
        "version": 0,
        "title": title,
        "precision": precision,
        "recall": recall,
        "averagePrecisionScore": average,
        "noSkill": positives / len(truth) if no_skill is None else no_skill,
    }


def _counts_by_threshold(truth: Sequence[bool], scores: Sequence[float]) -> list[tuple[int, int]]:
    """Return the false and true positives when all scores from each distinct one on count as positive."""
    found: list[tuple[int, int]] = []
    false_count = true_count = 0
    last = math.nan
    for score, is_positive in sorted(zip(scores, truth, strict=True), key=lambda pair: -pair[0]):
        true_count, false_count = true_count + is_positive, false_count + (not is_positive)
        if score == last:
            found.pop()
        found.append((false_count, true_count))
        last = score
    return found


def _binary(labels: Sequence[Any]) -> list[bool]:
    """Return which labels are the positive class: 1, or the higher of two."""
    listed = _listed(labels)
    classes = sorted(set(listed))
    if len(classes) > 2:
        raise InvalidRequest(f"This curve needs two classes, and y_true has {len(classes)}.")
    positive = 1 if set(classes) <= {0, 1, -1} else classes[-1]
    return [each == positive for each in listed]


def _listed(values: Any) -> list[Any]:
    # numpy arrays and tensors of torch.
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _require_same_length(one: Sequence[Any], other: Sequence[Any]) -> None:
    if len(one) != len(other):
        raise InvalidRequest(f"There are {len(one)} true values and {len(other)} predictions; both need one each.")
