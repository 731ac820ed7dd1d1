"""A report on what a booster has learned."""

from collections.abc import Iterator, Mapping

import numpy as np

from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.classes import confusion_matrix, read_pairs
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need
from trainyard.insight.rules.readings import Reader
from trainyard.insight.rules.xgboost_report import BoosterRun, report_notebook, report_page

METRICS = r"^[^/]+-[^/]+$"
IMPORTANCES, HYPERPARAMETERS = "feature_importance/", "hyperparameters/"


class CreateXgboostReport(DebuggerRule):
    """Finds nothing, but writes a report on a training with XGBoost."""

    name = "CreateXgboostReport"
    parameters = ()

    def __init__(self) -> None:
        self._metrics, self._importances = Reader(Need(regexes=(METRICS,))), Reader(Need(regexes=(f"^{IMPORTANCES}",)))
        self._labels, self._predictions = Reader(Need(regexes=("^labels$",))), Reader(Need(regexes=("^predictions$",)))
        self._hyperparameters = Reader(Need(regexes=(f"^{HYPERPARAMETERS}",)))
        self._run = BoosterRun()

    @property
    def needs(self) -> Need:
        given = ("^labels$", "^predictions$", f"^{HYPERPARAMETERS}")
        return Need(regexes=(METRICS, f"^{IMPORTANCES}", *given), is_raw=True)

    def check(self, step: Step) -> Iterator[Finding]:
        self._run.rounds = max(self._run.rounds, step.number + 1)
        self._add_metrics(step)
        self._add_importances(step)
        self._add_hyperparameters(step)
        self._add_predictions(step)
        yield from ()

    def files(self) -> Mapping[str, str]:
        """Return the page and the notebook under the names that AWS uses."""
        return {"xgboost_report.html": report_page(self._run), "xgboost_report.ipynb": report_notebook(self._run)}

    def _add_metrics(self, step: Step) -> None:
        reading = self._metrics.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            if tensor.size == 1 and np.isfinite(value):
                steps, values = self._run.metrics.setdefault(tensor.name, ([], []))
                steps.append(step.number)
                values.append(float(value))

    def _add_importances(self, step: Step) -> None:
        reading = self._importances.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            kind, _, feature = tensor.name.removeprefix(IMPORTANCES).partition("/")
            if feature and np.isfinite(value):
                self._run.importances.setdefault(kind, {})[feature] = float(value)

    def _add_hyperparameters(self, step: Step) -> None:
        reading = self._hyperparameters.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            name = tensor.name.removeprefix(HYPERPARAMETERS)
            if tensor.name in step.values:
                self._run.hyperparameters.setdefault(name, _text(np.asarray(step.values[tensor.name])))
            elif tensor.size == 1 and np.isfinite(value):
                self._run.hyperparameters.setdefault(name, f"{value:g}")

    def _add_predictions(self, step: Step) -> None:
        pairs = read_pairs(step, self._labels, self._predictions)
        if pairs is not None:
            self._run.matrix, self._run.evaluated_at = confusion_matrix([pairs]), step.number
        elif {"labels", "predictions"} <= set(step.values):
            labels, predictions = (np.asarray(step.values[name]) for name in ("labels", "predictions"))
            if labels.shape == predictions.shape and labels.dtype.kind in "fiu":
                self._run.residuals = labels.astype(np.float64).ravel() - predictions.astype(np.float64).ravel()
                self._run.evaluated_at = step.number


def _text(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    """Return a hyperparameter, which is a number or the letters of a text, as text."""
    if values.dtype == np.uint8:
        return values.tobytes().rstrip(b"\0").decode(errors="replace")
    if values.dtype.kind in "US":
        return str(values.ravel()[0])
    return f"{float(values.ravel()[0]):g}"
