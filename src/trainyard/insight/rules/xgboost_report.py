"""The report on a boosted training: a self-contained page, and a notebook that reads the same tensors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.rules.charts import bar_chart, histogram, line_chart, matrix_chart
from trainyard.insight.rules.classes import Counts
from trainyard.insight.rules.contract import Evidence

# In a chart of importances.
MAX_FEATURES = 30
# In a chart of a confusion matrix.
MAX_CLASSES = 20
BINS = 30


@dataclass(slots=True)
class BoosterRun:
    """The data of a boosted training.

    `metrics` has rounds and values by name, such as train-rmse, and `importances` are by type and feature. `matrix` is
    the confusion matrix if labels are classes; otherwise there are `residuals`. Both are from round `evaluated_at`.
    """

    rounds: int = 0
    hyperparameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    importances: dict[str, dict[str, float]] = field(default_factory=dict)
    matrix: Counts | None = None
    residuals: NDArray[np.float64] | None = None
    evaluated_at: int = 0


def report_page(run: BoosterRun) -> str:
    """Return the HTML page."""
    body = "\n".join(_sections(run))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>XGBoost training report</title>\n'
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#222}"
        "table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}svg{display:block}</style>\n"
        f"</head><body><h1>XGBoost training report</h1>\n{body}\n</body></html>\n"
    )


def report_notebook(run: BoosterRun) -> str:
    """Return the notebook; its first cell names the folder or S3 location of the tensors."""
    cells = [
        _words(f"# XGBoost training report\n\n{run.rounds} rounds. Set `place` to the location of the job's tensors."),
        _code('place = "tensors"\n\nfrom trainyard.trial import create_trial\n\ntrial = create_trial(place)'),
        _words("## Metrics"),
        _code(
            'for name in trial.tensor_names(collection="metrics"):\n    steps, values = trial.series(name)\n'
            "    print(name, values[0], values[-1])"
        ),
        _words("## Importance of features"),
        _code(
            'weights = trial.tensor_names(regex="feature_importance/weight/")\n'
            "last = {name: trial.tensor(name).value(trial.tensor(name).steps()[-1]) for name in weights}\n"
            "sorted(last.items(), key=lambda item: -item[1])[:30]"
        ),
        _words("## Labels and predictions"),
        _code(
            'step = trial.tensor("predictions").steps()[-1]\nlabels = trial.tensor("labels").value(step)\n'
            'predictions = trial.tensor("predictions").value(step)\nlabels[:10], predictions[:10]'
        ),
    ]
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 4}, indent=1)


def _sections(run: BoosterRun) -> Iterator[str]:
    if not run.rounds:
        yield "<p>The training reported no rounds, so there is nothing to show.</p>"
        return
    yield f"<p>{run.rounds} rounds.</p>"
    yield from _hyperparameters(run.hyperparameters)
    yield from _metrics(run.metrics)
    yield from _importances(run.importances)
    if run.matrix is not None:
        yield from _matrix(run.matrix, evaluated_at=run.evaluated_at)
    if run.residuals is not None:
        yield from _residuals(run.residuals, evaluated_at=run.evaluated_at)


def _hyperparameters(values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield "<h2>Hyperparameters</h2>"
        yield _table(("name", "value"), sorted(values.items()))


def _metrics(metrics: Mapping[str, tuple[list[int], list[float]]]) -> Iterator[str]:
    if not metrics:
        return
    yield "<h2>Metrics</h2>"
    names = dict.fromkeys(name.partition("-")[2] for name in metrics)
    for metric in names:
        series = [Evidence(name, *values) for name, values in metrics.items() if name.partition("-")[2] == metric]
        yield f"<h3>{escape(metric)}</h3>{line_chart(series)}"
    rows = [
        (name, f"{values[0]:.6g}", f"{values[-1]:.6g}", f"{min(values):.6g}", f"{max(values):.6g}")
        for name, (_, values) in metrics.items()
    ]
    yield _table(("metric", "first", "last", "minimum", "maximum"), rows)


def _importances(importances: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    if not importances:
        return
    yield "<h2>Importance of features</h2>"
    for kind, values in importances.items():
        order = sorted(values.items(), key=lambda item: -item[1])[:MAX_FEATURES]
        yield f"<h3>{escape(kind)}</h3>{bar_chart(dict(order))}"


def _matrix(matrix: Counts, *, evaluated_at: int) -> Iterator[str]:
    yield f"<h2>Labels and predictions after round {evaluated_at}</h2>"
    yield f"<p>{np.trace(matrix) / matrix.sum():.1%} of {matrix.sum()} samples are predicted correctly.</p>"
    if len(matrix) <= MAX_CLASSES:
        yield matrix_chart(matrix.tolist())
    counts = matrix.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        recalls = np.diagonal(counts) / counts.sum(axis=1)
        precisions = np.diagonal(counts) / counts.sum(axis=0)
    rows = [
        (str(label), str(int(counts[label].sum())), _share(precisions[label]), _share(recalls[label]))
        for label in range(len(matrix))
    ]
    yield _table(("class", "samples", "precision", "recall"), rows)


def _residuals(residuals: NDArray[np.float64], *, evaluated_at: int) -> Iterator[str]:
    counts, edges = np.histogram(residuals, bins=BINS)
    yield f"<h2>Residuals after round {evaluated_at}</h2>"
    yield histogram(edges.tolist(), counts.tolist())
    rows = [
        ("mean", f"{residuals.mean():.4g}"),
        ("standard deviation", f"{residuals.std():.4g}"),
        ("mean magnitude", f"{np.abs(residuals).mean():.4g}"),
        ("largest magnitude", f"{np.abs(residuals).max():.4g}"),
    ]
    yield _table(("label - prediction", ""), rows)


def _share(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.1%}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def _words(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, object]:
    source = text.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
