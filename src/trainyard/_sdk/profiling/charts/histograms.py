"""Histograms: how often the hardware was used how much, and how long steps and their phases took."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.layouts import gridplot
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from trainyard._sdk.profiling.charts.display import NotebookChart
from trainyard._sdk.profiling.charts.series import SeriesTable, choose, extend, names_in, series_table
from trainyard._sdk.profiling.events import TraceEvent
from trainyard._sdk.profiling.readers import AnyReader

_COLUMNS = 4
_PERCENT_BINS = np.arange(0, 102, 2)
_STEP_BINS = 50


class MetricsHistogram(NotebookChart):
    """Draws how often the hardware was used how much. `plot` draws.

    Args:
        metrics_reader: The reader of the samples.
    """

    def __init__(self, metrics_reader: AnyReader) -> None:
        self.metrics_reader = metrics_reader
        self.system_metrics: SeriesTable = {}
        self.sources: dict[str, dict[str, ColumnDataSource]] = {}

    def plot(
        self,
        starttime: float = 0,
        endtime: float | None = None,
        select_dimensions: Sequence[str] = (".*",),
        select_events: Sequence[str] = (".*",),
        show_workers: bool = True,
    ) -> None:
        """Draw a histogram of each chosen series.

        Args:
            starttime: From when on, in microseconds since 1970.
            endtime: Until when. Default: until the last sample.
            select_dimensions: Regular expressions of the dimensions to draw.
            select_events: Regular expressions of the names to draw; `total` is the mean of all.
            show_workers: Whether to draw instances apart.
        """
        latest = self.metrics_reader.get_timestamp_of_latest_available_file()
        self.last_timestamp = latest if endtime is None else int(endtime)
        self.select_dimensions, self.select_events, self.show_workers = select_dimensions, select_events, show_workers
        events = self.metrics_reader.iterate_events(int(starttime), self.last_timestamp)
        self.system_metrics = series_table(events, by_node=show_workers)
        self.create_plot()

    def clear(self) -> None:
        """Forget what was drawn."""
        self.system_metrics, self.sources = {}, {}

    def create_plot(self) -> None:
        """Draw the chosen series."""
        self.filtered_dimensions = choose(self.system_metrics, self.select_dimensions)
        self.filtered_events = choose(names_in(self.system_metrics), self.select_events, prefix=".*")
        figures = []
        for dimension in self.filtered_dimensions:
            for name in self.filtered_events:
                if name in self.system_metrics[dimension]:
                    source = ColumnDataSource(_bars(self.system_metrics[dimension][name].values))
                    self.sources.setdefault(dimension, {})[name] = source
                    figures.append(_histogram(source, f"{dimension}_{name}", width=250, height=250))
        self._show(gridplot(figures, ncols=_COLUMNS))

    def update_data(self, current_timestamp: float) -> None:
        """Draw the samples up to a time as well.

        Args:
            current_timestamp: The time, in microseconds since 1970.
        """
        events = self.metrics_reader.iterate_events(self.last_timestamp, int(current_timestamp))
        self.last_timestamp = int(current_timestamp)
        extend(self.system_metrics, series_table(events, by_node=self.show_workers))
        for dimension, sources in self.sources.items():
            for name, source in sources.items():
                source.data = _bars(self.system_metrics[dimension][name].values)
        self._push()


class StepHistogram(NotebookChart):
    """Draws how long steps and their phases took. `plot` draws.

    Args:
        metrics_reader: The reader of the program's events.
        width: Accepted, without effect.
    """

    def __init__(self, metrics_reader: AnyReader, width: int = 500) -> None:
        self.metrics_reader, self.width = metrics_reader, width
        self.last_timestamp = metrics_reader.get_timestamp_of_latest_available_file()
        self.clear()

    def plot(
        self,
        starttime: float = 0,
        endtime: float | None = None,
        select_metrics: Sequence[str] = ("Step:ModeKeys", "Forward-node", r"Backward(\(post-forward\))?-node"),
        show_workers: bool = True,
    ) -> None:
        """Draw a histogram of each chosen phase.

        Args:
            starttime: From when on, in microseconds since 1970.
            endtime: Until when. Default: until the last event.
            select_metrics: Regular expressions of the phases to draw.
            show_workers: Whether to draw instances apart.
        """
        latest = self.metrics_reader.get_timestamp_of_latest_available_file()
        self.last_timestamp = latest if endtime is None else int(endtime)
        self.select_metrics, self.show_workers = select_metrics, show_workers
        self.clear()
        self._add(self.metrics_reader.iterate_events(int(starttime), self.last_timestamp))
        self.create_plot(self.step_metrics)

    def clear(self) -> None:
        """Forget what was drawn."""
        self.step_metrics: dict[str, list[float]] = {}
        self.sources: dict[str, ColumnDataSource] = {}
        self._seen: set[tuple[str, int]] = set()

    def create_plot(self, step_metrics: Mapping[str, Sequence[float]]) -> None:
        """Draw durations.

        Args:
            step_metrics: Durations in milliseconds, by the names of phases.
        """
        figures = []
        for name in sorted(step_metrics):
            self.sources[name] = ColumnDataSource(_step_bars(step_metrics[name]))
            figures.append(_histogram(self.sources[name], f"{name} step time in ms", width=450, height=350))
        self._show(gridplot(figures, ncols=_COLUMNS))

    def update_data(self, current_timestamp: float) -> None:
        """Draw the steps up to a time as well.

        Args:
            current_timestamp: The time, in microseconds since 1970.
        """
        self._add(self.metrics_reader.iterate_events(self.last_timestamp, int(current_timestamp)))
        self.last_timestamp = int(current_timestamp)
        for name, durations in self.step_metrics.items():
            if name in self.sources:
                self.sources[name].data = _step_bars(durations)
        self._push()

    def _add(self, events: Iterable[TraceEvent]) -> None:
        found: dict[str, list[float]] = {}
        for event in events:
            name = f"{event.event_phase}-nodeid:{event.node_id}" if self.show_workers else event.event_phase
            key = f"{name} {event.node_id} {event.tid}", event.start_time
            if key not in self._seen:
                self._seen.add(key)
                steps = int((event.event_args or {}).get("steps", 1))
                found.setdefault(name, []).extend([event.duration / 1e3 / steps] * steps)
        for name in choose(found, self.select_metrics):
            self.step_metrics.setdefault(name, []).extend(found[name])
        if not self.step_metrics and found:
            sys.stdout.write(f"Nothing is selected; there are {', '.join(sorted(found))}.\n")


def _histogram(source: ColumnDataSource, label: str, *, width: int, height: int) -> Any:
    plot = figure(width=width, height=height, tools="pan,wheel_zoom,reset,save")
    plot.toolbar.logo = None
    plot.quad(top="top", bottom=0, left="left", right="right", source=source, fill_alpha=0.5, line_color="white")
    plot.y_range.start = 0
    plot.xaxis.axis_label, plot.yaxis.axis_label = label, "Occurrences"
    return plot


def _bars(values: Any) -> dict[str, Any]:
    """Return the bars of values in percent; of others, over their own range."""
    is_percent = not len(values) or 0 <= values.min() <= values.max() <= 101
    return _counts(values, _PERCENT_BINS if is_percent else _STEP_BINS)


def _step_bars(durations: Sequence[float]) -> dict[str, Any]:
    """Return the bars of durations, without those far above the others, which would press all into one bar."""
    values = np.asarray(durations)
    most = np.median(values) + 4 * (np.percentile(values, 95) - np.percentile(values, 5)) if len(values) else 1
    return _counts(values[values <= most], _STEP_BINS)


def _counts(values: Any, bins: Any) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins)
    return {"top": counts, "left": edges[:-1], "right": edges[1:]}
