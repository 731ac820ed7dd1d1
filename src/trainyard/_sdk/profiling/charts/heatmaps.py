"""All cores and GPUs over time as rows of colours."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper
from bokeh.models.tickers import FixedTicker
from bokeh.palettes import viridis
from bokeh.plotting import figure

from trainyard._sdk.profiling.charts.display import NotebookChart
from trainyard._sdk.profiling.charts.series import Samples, choose, extend, names_in, series_table
from trainyard._sdk.profiling.readers import AnyReader

_WIDTH, _ROW_HEIGHT = 1000, 14
# Columns of the picture: more than pixels would be lost.
_COLUMNS = 1000


class Heatmap(NotebookChart):
    """Draws the chosen samples of the hardware as a heat map: a row for each series, time from left to right.

    What is not measured in percent is drawn in percent of its highest value.

    Args:
        metrics_reader: The reader of the samples.
        select_metrics: Accepted, without effect, as on AWS.
        starttime: From when on, in microseconds since 1970.
        endtime: Until when. Default: until the last sample.
        select_dimensions: Regular expressions of the dimensions to draw.
        select_events: Regular expressions of the names to draw; `total` is the mean of all.
        plot_height: Least height, in pixels.
        show_workers: Whether to draw instances apart.
    """

    def __init__(
        self,
        metrics_reader: AnyReader,
        select_metrics: Sequence[str] = (),  # noqa: ARG002 - the signature of AWS
        starttime: float = 0,
        endtime: float | None = None,
        select_dimensions: Sequence[str] = (".*CPU", ".*GPU"),
        select_events: Sequence[str] = (".*",),
        plot_height: int = 350,
        show_workers: bool = True,
    ) -> None:
        self.metrics_reader, self.plot_height, self.show_workers = metrics_reader, plot_height, show_workers
        self.select_dimensions, self.select_events = select_dimensions, select_events
        latest = metrics_reader.get_timestamp_of_latest_available_file()
        self.last_timestamp = latest if endtime is None else int(endtime)
        events = metrics_reader.iterate_events(int(starttime), self.last_timestamp)
        self.system_metrics = series_table(events, by_node=show_workers)
        self.source = ColumnDataSource({"image": [], "x": [], "y": [], "dw": [], "dh": [], "metric": []})
        self.create_plot()

    def create_plot(self) -> None:
        """Draw the chosen series."""
        self.plot = figure(
            width=_WIDTH,
            height=self.plot_height,
            x_axis_type="datetime",
            tools="crosshair,pan,reset,save,xwheel_zoom",
        )
        self.plot.toolbar.logo = None
        self.plot.grid.visible = False
        self.plot.x_range.range_padding = self.plot.y_range.range_padding = 0
        self.plot.xaxis.axis_label = "time (UTC)"
        self.plot.yaxis.major_label_text_font_size = "8pt"
        colours = LinearColorMapper(viridis(100), low=0, high=100)
        shape = {name: name for name in ("image", "x", "y", "dw", "dh")}
        self.plot.image(**shape, source=self.source, color_mapper=colours)
        self.plot.add_tools(HoverTool(tooltips=[("metric", "@metric"), ("usage", "@image{0.[0]} %")]))
        self._fill()
        self._show(self.plot)

    def update_data(self, current_timestamp: float) -> None:
        """Draw the samples up to a time as well.

        Args:
            current_timestamp: The time, in microseconds since 1970.
        """
        events = self.metrics_reader.iterate_events(self.last_timestamp, int(current_timestamp))
        extend(self.system_metrics, series_table(events, by_node=self.show_workers))
        self.last_timestamp = int(current_timestamp)
        self._fill()
        self._push()

    def _fill(self) -> None:
        rows = list(self._rows())
        names = [name for name, _ in rows]
        times = [samples.times for _, samples in rows if len(samples)]
        if not times:
            return
        start, end = min(each[0] for each in times), max(each[-1] for each in times)
        edges = np.linspace(start, max(end, start + 1e-3), min(_COLUMNS, max(map(len, times))) + 1)
        self.source.data = {
            "image": [_pixels(samples, edges) for _, samples in rows],
            "x": [start * 1e3] * len(rows),
            "y": list(range(len(rows))),
            "dw": [float(edges[-1] - start) * 1e3] * len(rows),
            "dh": [1] * len(rows),
            "metric": names,
        }
        self.plot.height = max(self.plot_height, _ROW_HEIGHT * len(rows) + 60)
        places = [number + 0.5 for number in range(len(rows))]
        self.plot.yaxis.ticker = FixedTicker(ticks=places)
        self.plot.yaxis.major_label_overrides = dict(zip(places, names, strict=True))

    def _rows(self) -> Iterator[tuple[str, Samples]]:
        """Yield the rows from the bottom to the top."""
        self.filtered_dimensions = choose(self.system_metrics, self.select_dimensions)
        self.filtered_events = choose(names_in(self.system_metrics), self.select_events, prefix=".*")
        for dimension in reversed(self.filtered_dimensions):
            names = self.system_metrics[dimension]
            for name in sorted((each for each in names if each in self.filtered_events), key=_place, reverse=True):
                yield f"{dimension}_{name}", names[name]


def _place(name: str) -> tuple[str, int]:
    """Return what sorts cpu2 before cpu10."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def _pixels(samples: Samples, edges: Any) -> Any:
    """Return the mean of the samples in each column; in a column without samples, that of the one before."""
    sums, _ = np.histogram(samples.times, edges, weights=samples.values)
    counts, _ = np.histogram(samples.times, edges)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    filled = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))
    means = means[filled]
    highest = np.nanmax(means) if counts.any() else 0
    return (means * 100 / highest if highest > 101 else means).reshape(1, -1)
