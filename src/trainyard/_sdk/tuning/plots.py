"""Charts of a tuning job, for notebooks or as an HTML page: `tuner.plots.history()`, `tuner.plots.save(…)`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from trainyard._sdk.training.stream import Description
from trainyard._sdk.tuning.text import ObjectiveAim, aim_of, definitions_of, value_of, values_text
from trainyard.analytics import HyperparameterTuningJobAnalytics
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling

if TYPE_CHECKING:
    from trainyard.insight.tuning.surface import Surface

# A UIElement of Bokeh: a figure, or a layout of figures.
Chart = Any


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """One training job in the charts. `text` has its hyperparameters in readable form."""

    number: int
    name: str
    status: str
    value: float | None
    tuned: Mapping[str, str]
    text: str
    definition: str
    started: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class ChartedStudy:
    """A tuning job in the charts. `ranges` are by algorithm name, which is empty for a single algorithm."""

    name: str
    aim: ObjectiveAim
    ranges: Mapping[str, Sequence[HyperparameterRange]]
    points: Sequence[TrialPoint]

    @property
    def best(self) -> TrialPoint | None:
        """The point with the best objective value."""
        measured = [(point.value, point) for point in self.points if point.value is not None]
        if not measured:
            return None
        pick = max if self.aim.is_maximized else min
        return pick(measured, key=lambda pair: pair[0])[1]


class Plots:
    """Draws charts of a tuning job with Bokeh. They show the state at the time when this was created.

    For several algorithms, the argument `definition` selects the algorithm of a chart. Default: the algorithm of the
    best training job.
    """

    def __init__(self, study: ChartedStudy) -> None:
        self.study = study
        self._surfaces: dict[str, Surface | None] = {}

    @classmethod
    def of(cls, analytics: HyperparameterTuningJobAnalytics) -> Self:
        """Return the charts of a tuning job."""
        return cls(study_of(analytics.description(), analytics.training_job_summaries()))

    def history(self) -> Chart:
        """Return a chart of the objective of each training job, in the order of creation, and the best so far."""
        return self._charts.history(self.study)

    def timeline(self) -> Chart:
        """Return a chart of when each training job ran and how it ended."""
        return self._charts.timeline(self.study)

    def parallel_coordinates(self, definition: str | None = None) -> Chart:
        """Return a chart in which each training job is a line through its hyperparameters to its objective."""
        chosen = self._select_definition(definition)
        return self._charts.parallel_coordinates(self.study, self._ranges(chosen), self._points(chosen))

    def importance(self, definition: str | None = None) -> Chart:
        """Return a chart of how much of the variance of the objective each hyperparameter explains.

        The shares come from a functional analysis of variance (fANOVA) of the surface fitted to the trials: for each
        hyperparameter alone, and including its interactions with others.
        """
        chosen = self._select_definition(definition)
        return self._charts.importance(self.study, self._surface(chosen))

    def slices(self, definition: str | None = None) -> Chart:
        """Return charts of the objective over each hyperparameter: the training jobs, and the averaged surface."""
        chosen = self._select_definition(definition)
        return self._charts.slices(self.study, self._ranges(chosen), self._points(chosen), self._surface(chosen))

    def contour(self, x: str | None = None, y: str | None = None, definition: str | None = None) -> Chart:
        """Return a chart of the objective over two hyperparameters. Default: the two most important ones."""
        chosen = self._select_definition(definition)
        surface = self._surface(chosen)
        if surface is None:
            return self._charts.empty_chart("contour", "there are too few trials to fit a surface")
        ranked = [each.name for each in surface.importances()]
        for name in (x, y):
            if name is not None and name not in ranked:
                raise InvalidRequest(
                    f'"{name}" is not a tuned hyperparameter; the tuned ones are {", ".join(sorted(ranked))}.'
                )
        free = [name for name in ranked if name not in (x, y)]
        if len(ranked) < 2:
            return self._charts.empty_chart("contour", "only one hyperparameter is tuned")
        across = x or free.pop(0)
        return self._charts.contour(self.study, self._points(chosen), surface, x=across, y=y or free.pop(0))

    def page(self) -> Chart:
        """Return all charts, one below the other."""
        return self._charts.page(
            self.study,
            [
                self.history(),
                self.parallel_coordinates(),
                self.importance(),
                self.slices(),
                self.contour(),
                self.timeline(),
            ],
        )

    def show(self) -> None:
        """Show all charts in a notebook."""
        self._charts.show_in_notebook(self.page())

    def save(self, path: str | Path, chart: Chart | None = None) -> None:
        """Write all charts, or a given one, as a self-contained HTML page."""
        title = f"Tuning job {self.study.name}"
        Path(path).write_text(self._charts.html(self.page() if chart is None else chart, title), encoding="utf-8")

    @cached_property
    def _charts(self) -> ModuleType:
        try:
            from trainyard._sdk.tuning import charts
        except ImportError as error:
            raise Unavailable("Charts need Bokeh, which is not installed: pip install 'trainyard[plots]'.") from error
        return charts

    def _select_definition(self, definition: str | None) -> str:
        if definition is not None and definition not in self.study.ranges:
            known = ", ".join(sorted(self.study.ranges))
            raise InvalidRequest(f'{self.study.name} has no algorithm "{definition}"; it has {known}.')
        best = self.study.best
        return definition if definition is not None else best.definition if best else next(iter(self.study.ranges))

    def _ranges(self, definition: str) -> Sequence[HyperparameterRange]:
        return self.study.ranges[definition]

    def _points(self, definition: str) -> list[TrialPoint]:
        return [point for point in self.study.points if point.definition == definition and point.value is not None]

    def _surface(self, definition: str) -> "Surface | None":
        if definition not in self._surfaces:
            from trainyard.insight.tuning.surface import surface_of

            points = self._points(definition)
            self._surfaces[definition] = surface_of(
                self._ranges(definition),
                [point.tuned for point in points],
                [point.value for point in points if point.value is not None],
                is_maximized=self.study.aim.is_maximized,
            )
        return self._surfaces[definition]


def study_of(description: Description, summaries: Sequence[Description]) -> ChartedStudy:
    """Return the data for the charts of a described tuning job and its training jobs."""
    config = description["HyperParameterTuningJobConfig"]
    ranges = {
        each.get("DefinitionName", ""): _ranges_of(
            each.get("HyperParameterRanges") or config.get("ParameterRanges", {})
        )
        for each in definitions_of(description)
    }
    points = [_point(number, summary) for number, summary in enumerate(summaries, start=1)]
    return ChartedStudy(description["HyperParameterTuningJobName"], aim_of(description), ranges, points)


def _point(number: int, summary: Description) -> TrialPoint:
    value = value_of(summary)
    return TrialPoint(
        number,
        summary["TrainingJobName"],
        summary["TrainingJobStatus"],
        value if value is not None and math.isfinite(value) else None,
        summary.get("TunedHyperParameters", {}),
        values_text(summary),
        summary.get("TrainingJobDefinitionName", ""),
        _utc(summary.get("TrainingStartTime")),
        _utc(summary.get("TrainingEndTime")),
    )


def _utc(time: datetime | None) -> datetime | None:
    """Return a time in UTC without its zone, because Bokeh shifts times with a zone."""
    return time.astimezone(UTC).replace(tzinfo=None) if time else None


def _ranges_of(shapes: Mapping[str, Any]) -> tuple[HyperparameterRange, ...]:
    found: list[HyperparameterRange] = []
    for kind in (RangeKind.CONTINUOUS, RangeKind.INTEGER):
        for shape in shapes.get(f"{kind}ParameterRanges", ()):
            low, high = float(shape["MinValue"]), float(shape["MaxValue"])
            scaling = Scaling(shape.get("ScalingType", "Auto"))
            found.append(HyperparameterRange(shape["Name"], kind, low=low, high=high, scaling=scaling))
    for shape in shapes.get("CategoricalParameterRanges", ()):
        found.append(HyperparameterRange(shape["Name"], RangeKind.CATEGORICAL, values=tuple(shape["Values"])))
    return tuple(found)
