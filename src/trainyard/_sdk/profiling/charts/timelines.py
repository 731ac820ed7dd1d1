"""Lines over time: each chosen series of the hardware, and what the program did in a part of the time."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import BoxSelectTool, ColumnDataSource, CustomJS, Div, HoverTool, Range1d
from bokeh.plotting import figure

from trainyard._sdk.profiling.charts.display import NotebookChart
from trainyard._sdk.profiling.charts.series import (
    TOTAL,
    Samples,
    SeriesTable,
    choose,
    extend,
    extremes,
    names_in,
    series_table,
)
from trainyard._sdk.profiling.events import TimeUnits, TraceEvent
from trainyard._sdk.profiling.readers import AnyReader

_WIDTH, _HEIGHT = 1000, 200
_TOOLS = "crosshair,pan,reset,save,xwheel_zoom"
# More points cannot be told apart, and make a page slow.
_MAX_POINTS = 8000
_MAX_SPANS = 2000
_CPU = "CPUUtilization"
# Prints the numbers of the selected samples, which the methods below take.
_SELECTION = """
const numbers = source.selected.indices.map(place => source.data["number"][place]);
if (numbers.length)
    text.text = "Selected samples: [" + Math.min(...numbers) + ", " + Math.max(...numbers) + "]";
"""


class TimelineCharts(NotebookChart):
    """Draws the chosen samples of the hardware as lines over time, one figure for each series.

    Select a part of a figure with the box tool: below it appear the numbers of the samples in it, for
    `find_time_annotations` and `plot_detailed_profiler_data`.

    Args:
        system_metrics_reader: The reader of the samples.
        framework_metrics_reader: The reader of the program's events. Default: none; those methods need it.
        starttime: From when on, in microseconds since 1970.
        endtime: Until when. Default: until the last sample.
        select_dimensions: Regular expressions of the dimensions to draw, such as `CPU`.
        select_events: Regular expressions of the names to draw, such as `cpu0`; `total` is the mean of all.
        x: How many of the last samples to show at first.
        show_workers: Whether to draw instances apart.
    """

    def __init__(
        self,
        system_metrics_reader: AnyReader,
        framework_metrics_reader: AnyReader | None = None,
        starttime: float = 0,
        endtime: float | None = None,
        select_dimensions: Sequence[str] = (".*",),
        select_events: Sequence[str] = (".*",),
        x: int = 1000,
        show_workers: bool = True,
    ) -> None:
        self.system_metrics_reader, self.framework_metrics_reader = system_metrics_reader, framework_metrics_reader
        self.select_dimensions, self.select_events, self.show_workers = select_dimensions, select_events, show_workers
        self.width = x
        self.sources: dict[str, dict[str, ColumnDataSource]] = {}
        self.figures: list[Any] = []
        self.last_timestamp_system_metrics = (
            system_metrics_reader.get_timestamp_of_latest_available_file() if endtime is None else int(endtime)
        )
        events = system_metrics_reader.iterate_events(int(starttime), self.last_timestamp_system_metrics)
        self.system_metrics: SeriesTable = series_table(events, by_node=show_workers)
        self._select()
        self.create_plot()

    def create_plot(self) -> None:
        """Draw the chosen series."""
        self.div = Div(text="", width=250)
        self._range = Range1d()
        for dimension, name, samples in self._iterate_chosen():
            self.figures.append(self._figure(dimension, name, samples))
        self._show_last()
        self._show(row(column(*self.figures), self.div))

    def update_data(self, current_timestamp: float) -> None:
        """Draw the samples up to a time as well.

        Args:
            current_timestamp: The time, in microseconds since 1970.
        """
        since = self.last_timestamp_system_metrics
        events = self.system_metrics_reader.get_events(since, current_timestamp)
        _say(
            f"Found {len(events)} new system metrics events from timestamp_in_us:{since} to "
            f"timestamp_in_us:{current_timestamp}"
        )
        if not events:
            return
        self.last_timestamp_system_metrics = int(current_timestamp)
        extend(self.system_metrics, series_table(events, by_node=self.show_workers))
        self._select()
        for dimension, name, samples in self._iterate_chosen():
            if name in self.sources.get(dimension, {}):
                self.sources[dimension][name].data = _line(samples)
            else:
                self.figures.append(self._figure(dimension, name, samples))
                self.layout.children[0].children.append(self.figures[-1])
        self._show_last()
        self._push()

    def find_time_annotations(self, indexes: Sequence[int]) -> dict[str, float]:
        """Print, and return in milliseconds, what the program spent the time of some samples on.

        Args:
            indexes: Numbers of samples, of which the first and the last count.
        """
        spent: dict[str, float] = defaultdict(float)
        for event in self._events_at(indexes):
            name = event.event_name if event.step is None else f"{event.event_name}_{event.step}"
            spent[name] += event.duration / 1e3
        for name, taken_ms in spent.items():
            _say(f"Spent {taken_ms} ms (cumulative time) in {name}")
        return dict(spent)

    def plot_detailed_profiler_data(self, indexes: Sequence[int]) -> None:
        """Draw what the program did in the time of some samples: its data loaders, and the phases of its steps.

        Args:
            indexes: Numbers of samples, of which the first and the last count.
        """
        events = self._events_at(indexes)
        loaders = [event for event in events if _is_of_loader(event)]
        others = [event for event in events if not _is_of_loader(event)]
        figures = [_spans(loaders, "Data loaders"), _spans(others, "Framework metrics")]
        figures[1].x_range = figures[0].x_range
        self._show(column(*figures))

    def _select(self) -> None:
        self.available_dimensions = sorted(self.system_metrics)
        self.available_events = sorted(names_in(self.system_metrics))
        self.filtered_dimensions = choose(self.available_dimensions, self.select_dimensions)
        self.filtered_events = choose(self.available_events, self.select_events, prefix=".*")
        _say(f"select events:{list(self.select_events)}")
        _say(f"select dimensions:{list(self.select_dimensions)}")
        _say(f"filtered_events:{set(self.filtered_events)}")
        _say(f"filtered_dimensions:{set(self.filtered_dimensions)}")

    def _iterate_chosen(self) -> Iterator[tuple[str, str, Samples]]:
        for dimension in self.filtered_dimensions:
            for name in self.filtered_events:
                if name in self.system_metrics[dimension]:
                    yield dimension, name, self.system_metrics[dimension][name]

    def _figure(self, dimension: str, name: str, samples: Samples) -> Any:
        is_percent = "Utilization" in dimension or "Memory" in f"{dimension}{name}" or "Percent" in dimension
        source = self.sources.setdefault(dimension, {})[name] = ColumnDataSource(_line(samples))
        plot = figure(
            title=f"{dimension}_{name}",
            width=_WIDTH,
            height=_HEIGHT,
            x_axis_type="datetime",
            x_range=self._range,
            tools=_TOOLS,
            **({"y_range": Range1d(0, 102)} if is_percent else {}),
        )
        plot.grid.visible = False
        plot.toolbar.logo = None
        plot.line("at", "value", source=source)
        points = plot.scatter("at", "value", source=source, size=4, fill_alpha=0, line_alpha=0)
        tooltips = [("sample", "@number"), ("at", "@at{%F %T.%3N}"), ("value", "@value{0.[00]}")]
        plot.add_tools(HoverTool(renderers=[points], tooltips=tooltips, formatters={"@at": "datetime"}))
        plot.add_tools(BoxSelectTool(dimensions="width"))
        plot.js_on_event("selectiongeometry", CustomJS(args={"source": source, "text": self.div}, code=_SELECTION))
        return plot

    def _show_last(self) -> None:
        """Show the last samples of the series that has the fewest."""
        chosen = [samples for _, _, samples in self._iterate_chosen() if len(samples)]
        if not chosen:
            return
        shortest = min(chosen, key=len)
        self._range.start = float(shortest.times[-min(self.width, len(shortest))]) * 1e3
        self._range.end = max(float(samples.times[-1]) for samples in chosen) * 1e3

    def _events_at(self, indexes: Sequence[int]) -> list[TraceEvent]:
        """Return the program's events in the time of some samples of the CPU."""
        cpus = (names[TOTAL] for dimension, names in self.system_metrics.items() if dimension.startswith(_CPU))
        cpu = next(cpus, None)
        if not len(indexes) or cpu is None or not len(cpu) or self.framework_metrics_reader is None:
            _say("No selection made")
            return []
        first, last = (min(max(number, 0), len(cpu) - 1) for number in (min(indexes), max(indexes)))
        start, end = float(cpu.times[first]), float(cpu.times[last])
        _say(f"Selected timerange: {start} to {end}")
        return self.framework_metrics_reader.get_events(start, end, unit=TimeUnits.SECONDS)


def _line(samples: Samples) -> dict[str, Any]:
    """Return the columns of a line; `number` is that of the sample, of which not all may be drawn."""
    drawn = extremes(samples, _MAX_POINTS)
    return {"at": samples.times[drawn] * 1e3, "value": samples.values[drawn], "number": drawn}


def _is_of_loader(event: TraceEvent) -> bool:
    known = event.event_args or {}
    return "bytes_fetched" in known or "worker_id" in known or event.event_phase.startswith("DataLoader")


def _spans(events: Sequence[TraceEvent], title: str) -> Any:
    """Return a figure with the events as bars, one row for each heading."""
    if len(events) > _MAX_SPANS:
        _say(f"Only the first {_MAX_SPANS} of {len(events)} events are drawn.")
    drawn = events[:_MAX_SPANS]
    rows = list(dict.fromkeys(_row(event) for event in drawn))
    source = ColumnDataSource(
        {
            "row": [_row(event) for event in drawn],
            "left": [event.start_time / 1e3 for event in drawn],
            "right": [event.end_time / 1e3 for event in drawn],
            "metric": [event.event_name for event in drawn],
            "ms": [event.duration / 1e3 for event in drawn],
        }
    )
    height = max(120, 60 + 24 * len(rows))
    plot = figure(title=title, width=_WIDTH, height=height, y_range=rows, x_axis_type="datetime", tools=_TOOLS)
    plot.toolbar.logo = None
    plot.hbar(y="row", left="left", right="right", height=0.7, source=source, fill_alpha=0.5, line_color=None)
    plot.add_tools(HoverTool(tooltips=[("metric", "@metric"), ("ms", "@ms{0.[000]}")]))
    return plot


def _row(event: TraceEvent) -> str:
    return f"{event.event_phase} {event.node_id}".strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
