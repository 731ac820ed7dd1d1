"""The durations of steps over time."""

from collections.abc import Iterable
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.plotting import figure

from trainyard._sdk.profiling.charts.display import NotebookChart
from trainyard._sdk.profiling.events import TraceEvent
from trainyard._sdk.profiling.readers import AnyReader


class StepTimelineChart(NotebookChart):
    """Draws how long each step took, over the time of the training.

    Args:
        metrics_reader: The reader of the program's events.
        width: How many of the last steps to show at first.
    """

    def __init__(self, metrics_reader: AnyReader, width: int = 1000) -> None:
        self.metrics_reader, self.width = metrics_reader, width
        self.last_timestamp = metrics_reader.get_timestamp_of_latest_available_file()
        # Start, duration and number of each step, by its name, worker and start.
        self._steps: dict[tuple[str, str, int], tuple[float, float, int]] = {}
        self._add(metrics_reader.iterate_events(0, self.last_timestamp))
        self.create_plot()

    @property
    def steps(self) -> list[tuple[float, float, int]]:
        """Start in seconds since 1970, duration in seconds and number of each step, in order of time."""
        return sorted(self._steps.values())

    def create_plot(self) -> None:
        """Draw the steps."""
        tools = "crosshair,pan,reset,save,wheel_zoom"
        self.plot = figure(width=1000, height=250, x_axis_type="datetime", x_range=Range1d(), tools=tools)
        self.plot.toolbar.logo = None
        self.plot.xaxis.axis_label, self.plot.yaxis.axis_label = "time (UTC)", "Step duration in ms"
        self.source = ColumnDataSource(self._columns())
        self.plot.line("x", "y", source=self.source)
        tooltips = [("step", "@step"), ("metric", "@metric"), ("ms", "@y{0.[000]}")]
        self.plot.add_tools(HoverTool(tooltips=tooltips))
        self._show_last()
        self._show(self.plot)

    def update_data(self, current_timestamp: float) -> None:
        """Draw the steps up to a time as well.

        Args:
            current_timestamp: The time, in microseconds since 1970.
        """
        self._add(self.metrics_reader.iterate_events(self.last_timestamp, int(current_timestamp)))
        self.last_timestamp = int(current_timestamp)
        self.source.data = self._columns()
        self._show_last()
        self._push()

    def _add(self, events: Iterable[TraceEvent]) -> None:
        for event in events:
            if event.event_name.startswith("Step") and event.step is not None:
                key = event.event_name, event.node_id, event.start_time
                count = int((event.event_args or {}).get("steps", 1))
                self._steps[key] = event.start_time / 1e6, event.duration / 1e6 / count, event.step

    def _columns(self) -> dict[str, Any]:
        rows = sorted((steps, name) for (name, _, _), steps in self._steps.items())
        return {
            "x": [start * 1e3 for (start, _, _), _ in rows],
            "y": [duration * 1e3 for (_, duration, _), _ in rows],
            "step": [number for (_, _, number), _ in rows],
            "metric": [name for _, name in rows],
        }

    def _show_last(self) -> None:
        starts = self.source.data["x"]
        if starts:
            self.plot.x_range.start, self.plot.x_range.end = starts[-min(self.width, len(starts))], starts[-1]
