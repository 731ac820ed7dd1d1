"""Charts of a tuning job, for notebooks and as a page of their own: `tuner.plots.history()`, `tuner.plots.save(…)`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from trainyard.analytics import HyperparameterTuningJobAnalytics
from trainyard.following import Description
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling
from trainyard.tuning_text import Aim, aim_of, definitions_of, value_of, values_text

if TYPE_CHECKING:
    from trainyard.insight.tuning.surface import Surface

Chart = Any  # what Bokeh calls a UIElement: one of its figures, or several laid out


@dataclass(frozen=True, slots=True)
class Dot:
    """One training job as charts show it."""

    number: int
    name: str
    status: str
    value: float | None
    tuned: Mapping[str, str]
    text: str  # its hyperparameters, to be read
    definition: str
    started: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Study:
    """A tuning job as charts show it; `ranges` are by the names of its algorithms, the only one's being empty."""

    name: str
    aim: Aim
    ranges: Mapping[str, Sequence[ParameterRange]]
    dots: Sequence[Dot]

    @property
    def best(self) -> Dot | None:
        """The best of those whose objective was measured."""
        measured = [(dot.value, dot) for dot in self.dots if dot.value is not None]
        if not measured:
            return None
        pick = max if self.aim.is_maximized else min
        return pick(measured, key=lambda pair: pair[0])[1]


class Plots:
    """Draws a tuning job as it stood when it was asked for. Each chart is one of Bokeh's, to be shown or laid out.

    Of several algorithms, charts of hyperparameters are of the one named, else of the one that has the best trial.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._surfaces: dict[str, Surface | None] = {}

    @classmethod
    def of(cls, analytics: HyperparameterTuningJobAnalytics) -> Self:
        """The charts of a tuning job that is analysed."""
        return cls(study_of(analytics.description(), analytics.training_job_summaries()))

    def history(self) -> Chart:
        """The objective of each training job in the order in which they were made, and the best so far."""
        return self._charts.history(self.study)

    def timeline(self) -> Chart:
        """When each training job ran, and how it ended."""
        return self._charts.timeline(self.study)

    def parallel_coordinates(self, definition: str | None = None) -> Chart:
        """Each training job as a line through its hyperparameters to its objective."""
        chosen = self._chosen(definition)
        return self._charts.parallel_coordinates(self.study, self._ranges(chosen), self._dots(chosen))

    def importance(self, definition: str | None = None) -> Chart:
        """How much of the objective's variation goes with each hyperparameter, alone and together with others.

        The shares are those of a functional analysis of variance of the surface that is fitted to the trials.
        """
        chosen = self._chosen(definition)
        return self._charts.importance(self.study, self._surface(chosen))

    def slices(self, definition: str | None = None) -> Chart:
        """The objective along each hyperparameter: the training jobs, and the surface averaged over all others."""
        chosen = self._chosen(definition)
        return self._charts.slices(self.study, self._ranges(chosen), self._dots(chosen), self._surface(chosen))

    def contour(self, x: str | None = None, y: str | None = None, definition: str | None = None) -> Chart:
        """The objective over two hyperparameters, by default the two that matter most."""
        chosen = self._chosen(definition)
        surface = self._surface(chosen)
        if surface is None:
            return self._charts.nothing("contour", "there are too few trials yet to fit a surface to")
        ranked = [each.name for each in surface.importances()]
        for name in (x, y):
            if name is not None and name not in ranked:
                raise InvalidRequest(f'"{name}" is not tuned here; those that are: {", ".join(sorted(ranked))}.')
        free = [name for name in ranked if name not in (x, y)]
        if len(ranked) < 2:
            return self._charts.nothing("contour", "only one hyperparameter is tuned")
        across = x or free.pop(0)
        return self._charts.contour(self.study, self._dots(chosen), surface, x=across, y=y or free.pop(0))

    def page(self) -> Chart:
        """All charts, one below the other."""
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
        """Write all charts, or one of them, as a page that holds all it needs to be read."""
        title = f"Tuning job {self.study.name}"
        Path(path).write_text(self._charts.html(self.page() if chart is None else chart, title), encoding="utf-8")

    @cached_property
    def _charts(self) -> ModuleType:
        try:
            from trainyard import tuning_charts
        except ImportError as error:
            raise Unavailable(
                "Charts need Bokeh, which is not installed here: pip install 'trainyard[plots]'."
            ) from error
        return tuning_charts

    def _chosen(self, definition: str | None) -> str:
        if definition is not None and definition not in self.study.ranges:
            known = ", ".join(sorted(self.study.ranges))
            raise InvalidRequest(f'"{definition}" is none of the algorithms of {self.study.name}: {known}.')
        best = self.study.best
        return definition if definition is not None else best.definition if best else next(iter(self.study.ranges))

    def _ranges(self, definition: str) -> Sequence[ParameterRange]:
        return self.study.ranges[definition]

    def _dots(self, definition: str) -> list[Dot]:
        return [dot for dot in self.study.dots if dot.definition == definition and dot.value is not None]

    def _surface(self, definition: str) -> "Surface | None":
        if definition not in self._surfaces:
            from trainyard.insight.tuning.surface import surface_of

            dots = self._dots(definition)
            self._surfaces[definition] = surface_of(
                self._ranges(definition),
                [dot.tuned for dot in dots],
                [dot.value for dot in dots if dot.value is not None],
                is_maximized=self.study.aim.is_maximized,
            )
        return self._surfaces[definition]


def study_of(description: Description, summaries: Sequence[Description]) -> Study:
    """A described tuning job and its training jobs, as charts show them."""
    config = description["HyperParameterTuningJobConfig"]
    ranges = {
        each.get("DefinitionName", ""): _ranges_of(
            each.get("HyperParameterRanges") or config.get("ParameterRanges", {})
        )
        for each in definitions_of(description)
    }
    dots = [_dot(number, summary) for number, summary in enumerate(summaries, start=1)]
    return Study(description["HyperParameterTuningJobName"], aim_of(description), ranges, dots)


def _dot(number: int, summary: Description) -> Dot:
    value = value_of(summary)
    return Dot(
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


def _utc(moment: datetime | None) -> datetime | None:
    """Without its zone, which Bokeh would shift by."""
    return moment.astimezone(UTC).replace(tzinfo=None) if moment else None


def _ranges_of(shapes: Mapping[str, Any]) -> tuple[ParameterRange, ...]:
    found: list[ParameterRange] = []
    for kind in (RangeKind.CONTINUOUS, RangeKind.INTEGER):
        for shape in shapes.get(f"{kind}ParameterRanges", ()):
            low, high = float(shape["MinValue"]), float(shape["MaxValue"])
            scaling = Scaling(shape.get("ScalingType", "Auto"))
            found.append(ParameterRange(shape["Name"], kind, low=low, high=high, scaling=scaling))
    for shape in shapes.get("CategoricalParameterRanges", ()):
        found.append(ParameterRange(shape["Name"], RangeKind.CATEGORICAL, values=tuple(shape["Values"])))
    return tuple(found)
