"""Draw the charts of a tuning job with Bokeh."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.embed import file_html
from bokeh.io import output_notebook, show
from bokeh.layouts import column, gridplot
from bokeh.model import Model
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    Div,
    FixedTicker,
    HoverTool,
    Label,
    LinearColorMapper,
    Range1d,
    Span,
    UIElement,
)
from bokeh.palettes import Viridis256
from bokeh.plotting import figure
from bokeh.resources import INLINE

from trainyard._sdk.tuning.plots import ChartedStudy, TrialPoint
from trainyard._sdk.tuning.text import number_text
from trainyard.foundation.jobs.tuning import HyperparameterRange
from trainyard.insight.tuning.chart_axes import ChartAxis
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.surface import Surface

WIDTH, HEIGHT = 900, 340
_SLICE_WIDTH, _SLICE_HEIGHT = 300, 240
_LEVELS = 12
_COLOURS = {"Completed": "#1f77b4", "Stopped": "#ff7f0e", "Failed": "#d62728", "InProgress": "#7f7f7f"}
_BEST = "#d6278a"
_TOOLTIPS = [("trial", "@number"), ("objective", "@value{0.[00000]}"), ("with", "@text"), ("ended", "@status")]


def history(study: ChartedStudy) -> figure:
    """Draw the objective of each trial, and the best so far."""
    plot = _figure(f"{study.aim.metric} of each trial", x_axis_label="trial", y_axis_label=study.aim.metric)
    measured = [point for point in study.points if point.value is not None]
    for status in sorted({point.status for point in measured}):
        points = [point for point in measured if point.status == status]
        drawn = plot.scatter(
            "number", "value", source=_source(points), size=8, color=_colour(status), legend_label=status, alpha=0.8
        )
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS))
    numbers, bests = _best_so_far(study, measured)
    if bests:
        plot.step(numbers, bests, mode="after", color=_BEST, line_width=2, legend_label="best so far")
        plot.legend.location = "bottom_right" if study.aim.is_maximized else "top_right"
        plot.legend.background_fill_alpha = 0.6
    for point in study.points:
        if point.status == "Failed":
            plot.add_layout(
                Span(location=point.number, dimension="height", line_color=_COLOURS["Failed"], line_alpha=0.2)
            )
    return plot


def timeline(study: ChartedStudy) -> figure:
    """Draw when each trial ran."""
    ran = [point for point in study.points if point.started is not None]
    plot = _figure("When each trial ran (UTC)", x_axis_type="datetime", y_axis_label="trial")
    last = max((point.ended for point in ran if point.ended), default=None)
    for status in sorted({point.status for point in ran}):
        points = [point for point in ran if point.status == status]
        source = _source(
            points, left=[point.started for point in points], right=[point.ended or last for point in points]
        )
        drawn = plot.hbar(
            y="number",
            left="left",
            right="right",
            height=0.7,
            source=source,
            color=_colour(status),
            legend_label=status,
        )
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS))
    plot.y_range.flipped = True
    return plot


def parallel_coordinates(
    study: ChartedStudy, ranges: Sequence[HyperparameterRange], points: Sequence[TrialPoint]
) -> figure:
    """Draw each trial as a line through its hyperparameters to its objective."""
    space = Space(ranges)
    chart_axes = [ChartAxis(axis) for axis in space.axes]
    paths = [(point, positions) for point in points if (positions := _path(space, chart_axes, point, points))]
    if not paths:
        return empty_chart("Hyperparameters and objective", "no trial has reported the objective yet")
    plot = _figure("Hyperparameters and objective")
    mapper = _mapper(study, [point for point, _ in paths])
    source = _source(
        [point for point, _ in paths],
        xs=[list(range(len(chart_axes) + 1))] * len(paths),
        ys=[positions for _, positions in paths],
    )
    drawn = plot.multi_line(
        "xs",
        "ys",
        source=source,
        line_color={"field": "value", "transform": mapper},
        line_width=1.5,
        line_alpha=0.6,
        hover_line_width=4,
        hover_line_alpha=1.0,
    )
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS, line_policy="interp"))
    plot.add_layout(ColorBar(color_mapper=mapper, title=study.aim.metric), "right")
    _draw_axes(plot, chart_axes, study, points)
    return plot


def importance(study: ChartedStudy, surface: Surface | None) -> figure:
    """Draw how much of the variance each hyperparameter explains."""
    if surface is None:
        return empty_chart("Importance", "there are too few trials to fit a surface")
    found = surface.importances()[::-1]
    names = [each.name for each in found]
    title = f"Explained variance of {study.aim.metric}; the model explains {surface.explained:.0%} of it"
    plot = _figure(title, y_range=names, height=max(200, 100 + 28 * len(names)), x_axis_label="share")
    data = {
        "name": names,
        "alone": [each.alone for each in found],
        "whole": [each.with_others for each in found],
    }
    source = ColumnDataSource(data)
    plot.hbar("name", right="whole", height=0.7, source=source, color="#9ecae1", legend_label="with interactions")
    drawn = plot.hbar("name", right="alone", height=0.7, source=source, color="#3182bd", legend_label="alone")
    plot.add_tools(
        HoverTool(renderers=[drawn], tooltips=[("alone", "@alone{0.0%}"), ("with interactions", "@whole{0.0%}")])
    )
    # Inside the plot, the legend would cover a bar.
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation = "horizontal"
    plot.x_range.start = 0
    return plot


def slices(
    study: ChartedStudy, ranges: Sequence[HyperparameterRange], points: Sequence[TrialPoint], surface: Surface | None
) -> UIElement:
    """Draw the objective over each hyperparameter."""
    space = Space(ranges)
    plots = [_slice(study, space, ChartAxis(axis), points=points, surface=surface) for axis in space.axes]
    return gridplot(plots, ncols=3, merge_tools=False)


def contour(study: ChartedStudy, points: Sequence[TrialPoint], surface: Surface, *, x: str, y: str) -> figure:
    """Draw the objective over two hyperparameters: as bands for categories, as contour lines for numbers."""
    across, up = (next(chart_axis for chart_axis in surface.chart_axes if chart_axis.name == name) for name in (x, y))
    plot = _figure(f"{study.aim.metric} over {x} and {y}", height=460, x_axis_label=x, y_axis_label=y)
    joint = surface.joint_partial_dependence(x, y)
    # An array, because browsers draw no image of nested lists.
    heights = np.array(joint.values)
    low, high = float(heights.min()), float(heights.max())
    palette = _palette(study)
    mapper = LinearColorMapper(palette=palette, low=low, high=high)
    if across.is_categorical or up.is_categorical or low == high:
        plot.image(image=[heights], x=0, y=0, dw=1, dh=1, color_mapper=mapper)
    else:
        levels = [low + (high - low) * step / _LEVELS for step in range(_LEVELS + 1)]
        colours = [palette[int(step * 255 / (_LEVELS - 1))] for step in range(_LEVELS)]
        plot.contour(
            list(joint.x_positions),
            list(joint.y_positions),
            heights,
            levels,
            fill_color=colours,
            line_color="#ffffff40",
        )
    located = [(point, _positions(surface.space, (across, up), point)) for point in points]
    shown = [(point, positions) for point, positions in located if None not in positions]
    source = _source([point for point, _ in shown], x=[at[0] for _, at in shown], y=[at[1] for _, at in shown])
    drawn = plot.scatter(
        "x", "y", source=source, size=7, line_color="#000000", fill_color={"field": "value", "transform": mapper}
    )
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS))
    plot.add_layout(ColorBar(color_mapper=mapper, title=study.aim.metric), "right")
    _set_ticks(plot.xaxis, across)
    _set_ticks(plot.yaxis, up)
    plot.x_range, plot.y_range = Range1d(0, 1), Range1d(0, 1)
    return plot


def empty_chart(title: str, why: str) -> figure:
    """Return a chart without data that says why."""
    plot = _figure(title, height=120, x_range=(0, 1), y_range=(0, 1))
    plot.add_layout(Label(x=0.02, y=0.5, text=f"No data to draw: {why}."))
    plot.axis.visible = plot.grid.visible = False
    return plot


def page(study: ChartedStudy, charts: Sequence[UIElement]) -> UIElement:
    """Return charts one below the other, under a heading."""
    return column(Div(text=f"<h2>{_escape(study.name)}</h2>{_headline(study)}", width=WIDTH), *charts)


def show_in_notebook(chart: Model) -> None:
    """Show a chart in a notebook."""
    output_notebook(resources=INLINE, hide_banner=True)
    show(chart)


def html(chart: Model, title: str) -> str:
    """Return a page with the chart and the parts of Bokeh that it needs."""
    text: str = file_html(chart, INLINE, title)
    return text


def _slice(
    study: ChartedStudy, space: Space, chart_axis: ChartAxis, *, points: Sequence[TrialPoint], surface: Surface | None
) -> figure:
    plot = _figure(
        chart_axis.name, width=_SLICE_WIDTH, height=_SLICE_HEIGHT, y_axis_label=study.aim.metric, x_range=(-0.03, 1.03)
    )
    if surface is not None:
        dependence = surface.partial_dependence(chart_axis.name)
        if chart_axis.is_categorical:
            plot.scatter(
                list(dependence.positions), list(dependence.values), marker="dash", size=24, color=_BEST, line_width=2
            )
        else:
            plot.line(list(dependence.positions), list(dependence.values), color=_BEST, line_width=2)
    located = [
        (point, position)
        for point in points
        for position in _positions(space, (chart_axis,), point)
        if position is not None
    ]
    mapper = LinearColorMapper(palette=Viridis256, low=1, high=max(len(study.points), 2))
    source = _source([point for point, _ in located], x=[position for _, position in located])
    drawn = plot.scatter("x", "value", source=source, size=6, alpha=0.8, color={"field": "number", "transform": mapper})
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOOLTIPS))
    _set_ticks(plot.xaxis, chart_axis)
    return plot


def _figure(title: str, **options: Any) -> figure:
    usual: dict[str, Any] = {"width": WIDTH, "height": HEIGHT, "tools": "pan,wheel_zoom,box_zoom,reset,save"}
    plot = figure(title=title, **(usual | options))
    plot.toolbar.logo = None
    return plot


def _source(points: Sequence[TrialPoint], **columns: Sequence[Any]) -> ColumnDataSource:
    data: dict[str, Sequence[Any]] = {
        "number": [point.number for point in points],
        "value": [point.value for point in points],
        "text": [point.text for point in points],
        "status": [point.status for point in points],
    }
    return ColumnDataSource(data | columns)


def _best_so_far(study: ChartedStudy, measured: Sequence[TrialPoint]) -> tuple[list[int], list[float]]:
    """Return the trial numbers and the best value so far at each, up to the last trial."""
    numbers: list[int] = []
    bests: list[float] = []
    for point in measured:
        assert point.value is not None, "only points with a value are drawn"
        is_better = study.aim.prefers(point.value, bests[-1] if bests else None)
        numbers.append(point.number)
        bests.append(point.value if is_better else bests[-1])
    if bests:
        numbers.append(study.points[-1].number)
        bests.append(bests[-1])
    return numbers, bests


def _path(
    space: Space, chart_axes: Sequence[ChartAxis], point: TrialPoint, points: Sequence[TrialPoint]
) -> list[float] | None:
    """Return the positions of a line on each axis; None if a hyperparameter has no valid value."""
    positions = _positions(space, chart_axes, point)
    known = [position for position in positions if position is not None]
    if len(known) < len(positions) or point.value is None:
        return None
    low, high = _extent(points)
    return [*known, (point.value - low) / (high - low) if high > low else 0.5]


def _positions(space: Space, chart_axes: Sequence[ChartAxis], point: TrialPoint) -> list[float | None]:
    values = space.values(point.tuned)
    return [
        chart_axis.position(values[chart_axis.name]) if chart_axis.name in values else None for chart_axis in chart_axes
    ]


def _extent(points: Sequence[TrialPoint]) -> tuple[float, float]:
    values = [point.value for point in points if point.value is not None]
    return min(values, default=0.0), max(values, default=0.0)


def _draw_axes(
    plot: figure, chart_axes: Sequence[ChartAxis], study: ChartedStudy, points: Sequence[TrialPoint]
) -> None:
    """Draw an axis with ticks for each hyperparameter and for the objective."""
    low, high = _extent(points)
    ends = [(0.0, number_text(low)), (1.0, number_text(high))]
    marked: list[tuple[str, list[tuple[float, str]]]] = [
        *((chart_axis.name, [(tick.position, tick.label) for tick in chart_axis.ticks]) for chart_axis in chart_axes),
        (study.aim.metric, ends),
    ]
    for position, (_, ticks) in enumerate(marked):
        plot.add_layout(Span(location=position, dimension="height", line_color="#999999"))
        for height, label in ticks:
            plot.add_layout(Label(x=position, y=height, text=label, x_offset=4, text_font_size="10px"))
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(marked))))
    plot.xaxis.major_label_overrides = {position: name for position, (name, _) in enumerate(marked)}
    plot.yaxis.visible = plot.ygrid.visible = False
    plot.x_range, plot.y_range = Range1d(-0.1, len(marked) - 0.7), Range1d(-0.05, 1.1)


def _set_ticks(axis: Any, chart_axis: ChartAxis) -> None:
    ticks = chart_axis.ticks
    axis.ticker = FixedTicker(ticks=[tick.position for tick in ticks])
    axis.major_label_overrides = {tick.position: tick.label for tick in ticks}
    if chart_axis.is_categorical:
        axis.major_label_orientation = 0.6


def _mapper(study: ChartedStudy, points: Sequence[TrialPoint]) -> LinearColorMapper:
    low, high = _extent(points)
    return LinearColorMapper(palette=_palette(study), low=low, high=high)


def _palette(study: ChartedStudy) -> tuple[str, ...]:
    """Return the palette in which lighter colours are better."""
    return tuple(Viridis256 if study.aim.is_maximized else Viridis256[::-1])


def _colour(status: str) -> str:
    return _COLOURS.get(status, "#7f7f7f")


def _headline(study: ChartedStudy) -> str:
    best = study.best
    if best is None:
        return "No trial has reported the objective yet."
    text = f"{study.aim.metric} {number_text(best.value)} with {best.text}, trial {best.number} of {len(study.points)}"
    return f"Best: {_escape(text)} ({_escape(best.name)})."


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
