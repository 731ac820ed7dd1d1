"""What runs record: charts, the state of the code, parameters, and metrics in the background."""

import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainyard._sdk.experiments.capture import captured_metadata, git_state, installed_packages
from trainyard._sdk.experiments.charts import confusion_matrix, precision_recall, roc_curve
from trainyard._sdk.experiments.entities import component_of_run, parameter_shape
from trainyard._sdk.experiments.metric_writer import MetricWriter
from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

# The example of scikit-learn's documentation of both curves.
TRUTH, SCORES = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]


class Calls:
    """Takes BatchPutMetrics like a yard that answers as told, and then always accepts."""

    def __init__(self, *answers: dict[str, Any] | TrainyardError) -> None:
        self.answers = list(answers)
        self.batches: list[list[dict[str, Any]]] = []
        self._lock = threading.Lock()

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        assert (service, operation) == ("sagemaker-metrics", "BatchPutMetrics")
        with self._lock:
            answer = self.answers.pop(0) if self.answers else {}
            if isinstance(answer, TrainyardError):
                raise answer
            self.batches.append(params["MetricData"])
            return answer

    def stream(self, service: str, operation: str, **params: Any) -> Any:
        raise AssertionError((service, operation, params))


def test_curves_have_the_points_and_areas_of_their_definitions() -> None:
    roc = roc_curve(TRUTH, SCORES, "roc")
    assert roc["falsePositiveRate"] == [0.0, 0.0, 0.5, 0.5, 1.0]
    assert roc["truePositiveRate"] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert roc["areaUnderCurve"] == 0.75
    curve = precision_recall(TRUTH, SCORES, positive_label=None, title=None, no_skill=None)
    assert curve["recall"] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert curve["averagePrecisionScore"] == pytest.approx(0.8333, abs=1e-4)
    assert curve["noSkill"] == 0.5


def test_equal_scores_are_one_point_of_a_curve() -> None:
    truth: Any = np.array([1, 0, 1, 0])
    scores: Any = np.full(4, 0.5)
    roc = roc_curve(truth, scores, None)
    assert (roc["falsePositiveRate"], roc["truePositiveRate"], roc["areaUnderCurve"]) == ([0.0, 1.0], [0.0, 1.0], 0.5)


def test_a_confusion_matrix_has_true_classes_as_rows() -> None:
    chart = confusion_matrix(["cat", "dog", "dog", "eel"], ["cat", "cat", "dog", "dog"], "pets")
    assert chart["classes"] == ["cat", "dog", "eel"]
    assert chart["confusionMatrix"] == [[1, 0, 0], [1, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("truth", "scores", "words"),
    [
        ([1, 1], [0.1, 0.2], "at least one positive and one negative"),
        ([0, 1, 2], [1, 2, 3], "two classes"),
        ([0, 1], [1], "2 true values and 1"),
    ],
)
def test_a_curve_that_is_not_defined_is_refused(truth: list[int], scores: list[float], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        roc_curve(truth, scores, None)


def test_the_state_of_a_repository_is_captured(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        run = subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)
        return run.stdout.decode().strip()

    assert git_state(tmp_path) is None
    git("init", "--initial-branch", "work")
    (tmp_path / "train.py").write_text("1")
    git("add", "train.py")
    git("commit", "--message", "first")
    clean = git_state(tmp_path)
    assert clean is not None
    assert (clean.commit, clean.branch, clean.is_dirty) == (git("rev-parse", "HEAD"), "work", False)
    (tmp_path / "train.py").write_text("2")
    dirty = git_state(tmp_path)
    assert dirty is not None
    assert dirty.is_dirty
    assert captured_metadata(dirty, {"USER": "anna"}) == {"GeneratedBy": "anna", "CommitId": clean.commit}


def test_installed_packages_are_lines_of_requirements() -> None:
    assert any(line.startswith("numpy==") for line in installed_packages().splitlines())


def test_parameters_are_numbers_or_texts() -> None:
    given = [3, np.float32(0.5), True, "7", None, [1, 2]]
    assert [parameter_shape(each) for each in given] == [
        {"NumberValue": 3.0},
        {"NumberValue": 0.5},
        {"StringValue": "True"},
        {"StringValue": "7"},
        {"StringValue": "None"},
        {"StringValue": "[1, 2]"},
    ]


def test_names_that_are_too_long_together_are_refused() -> None:
    assert component_of_run("Exp", "Run-1") == "exp-run-1"
    with pytest.raises(InvalidRequest, match="at most 119"):
        component_of_run("e" * 60, "r" * 60)


def test_all_metrics_are_sent_in_batches_when_the_writer_closes() -> None:
    calls = Calls()
    writer = MetricWriter(calls, "run")
    for step in range(1003):
        writer.add("loss", step / 2, step=step, at=None)
    writer.close()
    sent = [datum for batch in calls.batches for datum in batch]
    assert sorted(datum["Step"] for datum in sent) == list(range(1003))
    assert max(map(len, calls.batches)) == 10
    writer.add("loss", 1.0, step=None, at=None)
    writer.close()
    assert "Step" not in calls.batches[-1][0]


def test_a_yard_that_is_away_for_a_moment_loses_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard._sdk.experiments.metric_writer._RETRY_S", 0.0)
    calls = Calls(Unavailable("away"), Unavailable("away"))
    writer = MetricWriter(calls, "run")
    writer.add("loss", 1.0, step=0, at=None)
    writer.close()
    assert [len(batch) for batch in calls.batches] == [1]


def test_refused_values_are_named_in_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(
        "trainyard._sdk.experiments.metric_writer.warnings.warn", lambda text, **_: warned.append(str(text))
    )
    calls = Calls({"Errors": [{"MetricIndex": 0, "Code": "VALIDATION_ERROR"}]}, InvalidRequest("no such run"))
    writer = MetricWriter(calls, "run")
    writer.add("loss", float("nan"), step=0, at=None)
    writer.close()
    writer.add("loss", 1.0, step=0, at=None)
    writer.close()
    assert warned == [
        "1 values of loss were not stored in the run run: VALIDATION_ERROR",
        "1 values of loss were not stored in the run run: no such run",
    ]
