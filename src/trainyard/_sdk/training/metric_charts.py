"""Draw the metrics of a training job with Bokeh."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Div, HoverTool
from bokeh.palettes import Category10_10
from bokeh.plotting import figure
from bokeh.resources import INLINE

from trainyard._sdk.training.metrics import JobMetrics, MetricPoints, MetricStatistics

_WIDTH, _HEIGHT = 900, 300
# More points cannot be told apart on a screen, and make the page slow.
_MAX_POINTS = 4000
_TOOLTIPS = [("value", "@value{0.[000000]}"), ("number", "@number"), ("at", "@at{%F %T}")]


def metrics_page(job_name: str, metrics: JobMetrics, chosen: Sequence[MetricStatistics]) -> str:
    """Return a self-contained HTML page with a chart of each chosen metric."""
    charts = [_chart(each.name, list(metrics.points(each.name, max_points=_MAX_POINTS))) for each in chosen]
    heading = Div(text=f"<h2>{escape(job_name)}</h2>")
    return str(file_html(column(heading, *charts), INLINE, f"Metrics of {job_name}"))


def _chart(name: str, batches: Sequence[MetricPoints]) -> figure:
    plot = figure(
        title=name,
        width=_WIDTH,
        height=_HEIGHT,
        tools="pan,wheel_zoom,box_zoom,reset,save",
        x_axis_label="time (UTC)",
        x_axis_type="datetime",
    )
    plot.toolbar.logo = None
    instances = sorted({batch.instance for batch in batches})
    for number, instance in enumerate(instances):
        own = [batch for batch in batches if batch.instance == instance]
        # Bokeh shifts times with a zone.
        times = [datetime.fromtimestamp(us / 1e6, UTC).replace(tzinfo=None) for batch in own for us in batch.at_us]
        values = [value for batch in own for value in batch.values]
        source = ColumnDataSource({"at": times, "value": values, "number": list(range(1, len(values) + 1))})
        colour = Category10_10[number % len(Category10_10)]
        legend = {"legend_label": instance} if len(instances) > 1 else {}
        plot.line("at", "value", source=source, color=colour, line_width=1.5, **legend)
        drawn = plot.scatter("at", "value", source=source, color=colour, size=4)
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS, formatters={"@at": "datetime"}))
    return plot
