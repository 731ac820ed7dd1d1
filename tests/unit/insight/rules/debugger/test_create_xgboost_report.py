import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from numpy.typing import ArrayLike

from tests.unit.insight.rules.steps import Run, judged
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import WritesFiles


def rounds(labels: ArrayLike, predictions: ArrayLike) -> list[Step]:
    run = Run()
    letters = np.frombuffer(b"reg:<x>\0\0", np.uint8).reshape(1, -1)
    return [
        run.step(
            {
                "train-rmse": 10.0 / (number + 1),
                "validation-rmse": 12.0 / (number + 1),
                "hyperparameters/objective": letters,
                "hyperparameters/max_depth": np.array([3.0]),
                "feature_importance/weight/f0": 0.75,
                "feature_importance/weight/f1": 0.25,
                "labels": labels,
                "predictions": predictions,
            },
            mode=Mode.GLOBAL,
            is_raw=True,
        )
        for number in range(5)
    ]


def written(steps: list[Step]) -> dict[str, str]:
    rule = make_rule("CreateXgboostReport", {})
    assert judged(rule, steps) == []
    assert isinstance(rule, WritesFiles)
    return dict(rule.files())


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    VOID = ("meta", "rect", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_a_report_is_written_and_nothing_is_found() -> None:
    files = written(rounds([0, 1, 2, 2], [0, 1, 2, 1]))
    assert set(files) == {"xgboost_report.html", "xgboost_report.ipynb"}
    page = Balanced()
    page.feed(files["xgboost_report.html"])
    assert page.open == []
    assert page.seen.count("svg") == 3  # a metric, an importance, a matrix
    assert "75.0% of 4 samples are predicted correctly" in files["xgboost_report.html"]
    assert "reg:&lt;x&gt;" in files["xgboost_report.html"]
    assert "<td>validation-rmse</td><td>12</td><td>2.4</td>" in files["xgboost_report.html"]


def test_the_page_needs_no_other_file() -> None:
    page = written(rounds([0, 1], [0, 1]))["xgboost_report.html"].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in page
    assert "src=" not in page
    assert "<script" not in page


def test_a_regression_shows_residuals_and_no_matrix() -> None:
    page = written(rounds([0.5, 1.5, 2.25], [0.25, 1.5, 3.0]))["xgboost_report.html"]
    assert "Residuals after round 4" in page
    assert "<td>largest magnitude</td><td>0.75</td>" in page
    assert "are predicted correctly" not in page


def test_the_notebook_is_one() -> None:
    notebook = json.loads(written(rounds([0, 1], [0, 1]))["xgboost_report.ipynb"])
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), "cell", "exec")


def test_a_training_that_told_nothing_has_a_report_that_says_so() -> None:
    assert "reported no rounds" in written([])["xgboost_report.html"]


def test_the_report_says_how_many_rounds_there_were_and_what_each_hyperparameter_was() -> None:
    files = written(rounds([0, 1], [0, 1]))
    assert "<p>5 rounds.</p>" in files["xgboost_report.html"]
    assert "<td>max_depth</td><td>3</td>" in files["xgboost_report.html"]
    assert "<td>objective</td><td>reg:&lt;x&gt;</td>" in files["xgboost_report.html"]


def test_hyperparameters_are_told_also_where_only_their_value_is_known_and_as_texts() -> None:
    run = Run()
    told = run.step({"train-rmse": 1.0, "hyperparameters/eta": 0.25, "hyperparameters/other": np.ones(3)})
    text = run.step({"hyperparameters/booster": np.zeros(2)})
    texts = replace(text, values={"hyperparameters/booster": np.array(["gbtree", "dart"])})
    changed = run.step({"hyperparameters/eta": 0.75})
    page = written([told, texts, changed])["xgboost_report.html"]
    assert "<td>eta</td><td>0.25</td>" in page  # as it was at first
    assert "<td>booster</td><td>gbtree</td>" in page
    assert "<td>other</td>" not in page


def test_the_last_importance_of_each_feature_counts_and_what_is_not_a_number_does_not() -> None:
    run = Run()
    steps = [
        run.step({"train-rmse": 1.0, "feature_importance/gain/f0": 0.5, "feature_importance/gain/f1": float("nan")}),
        run.step({"train-rmse": float("nan"), "feature_importance/gain/f0": 0.125}),
    ]
    page = written(steps)["xgboost_report.html"]
    assert "0.125" in page
    assert "f1" not in page
    assert "<td>train-rmse</td><td>1</td><td>1</td>" in page
