"""The charts of a tuning job, drawn by Bokeh."""

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

from trainyard.foundation.tuning import ParameterRange
from trainyard.insight.tuning.rulers import Ruler
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.surface import Surface
from trainyard.tuning_plots import Dot, Study
from trainyard.tuning_text import number_text

WIDTH, HEIGHT = 900, 340
_SLICE_WIDTH, _SLICE_HEIGHT = 300, 240
_LEVELS = 12
_COLOURS = {"Completed": "#1f77b4", "Stopped": "#ff7f0e", "Failed": "#d62728", "InProgress": "#7f7f7f"}
_BEST = "#d6278a"
_TOLD = [("trial", "@number"), ("objective", "@value{0.[00000]}"), ("with", "@text"), ("ended", "@status")]


def history(study: Study) -> figure:
    """The objective by trial, and the best so far."""
    plot = _figure(f"{study.aim.metric} of each trial", x_axis_label="trial", y_axis_label=study.aim.metric)
    measured = [dot for dot in study.dots if dot.value is not None]
    for status in sorted({dot.status for dot in measured}):
        dots = [dot for dot in measured if dot.status == status]
        drawn = plot.scatter(
            "number", "value", source=_source(dots), size=8, color=_colour(status), legend_label=status, alpha=0.8
        )
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOLD))
    numbers, bests = _bests(study, measured)
    if bests:
        plot.step(numbers, bests, mode="after", color=_BEST, line_width=2, legend_label="best so far")
        plot.legend.location = "bottom_right" if study.aim.is_maximized else "top_right"
        plot.legend.background_fill_alpha = 0.6
    for dot in study.dots:
        if dot.status == "Failed":
            plot.add_layout(
                Span(location=dot.number, dimension="height", line_color=_COLOURS["Failed"], line_alpha=0.2)
            )
    return plot


def timeline(study: Study) -> figure:
    """When each trial ran."""
    ran = [dot for dot in study.dots if dot.started is not None]
    plot = _figure("When each trial ran (UTC)", x_axis_type="datetime", y_axis_label="trial")
    last = max((dot.ended for dot in ran if dot.ended), default=None)
    for status in sorted({dot.status for dot in ran}):
        dots = [dot for dot in ran if dot.status == status]
        source = _source(dots, left=[dot.started for dot in dots], right=[dot.ended or last for dot in dots])
        drawn = plot.hbar(
            y="number",
            left="left",
            right="right",
            height=0.7,
            source=source,
            color=_colour(status),
            legend_label=status,
        )
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOLD))
    plot.y_range.flipped = True
    return plot


def parallel_coordinates(study: Study, ranges: Sequence[ParameterRange], dots: Sequence[Dot]) -> figure:
    """Each trial as a line through its hyperparameters to its objective."""
    space = Space(ranges)
    rulers = [Ruler(axis) for axis in space.axes]
    paths = [(dot, places) for dot in dots if (places := _path(space, rulers, dot, dots))]
    if not paths:
        return nothing("Hyperparameters and objective", "no trial has measured the objective yet")
    plot = _figure("Hyperparameters and objective")
    mapper = _mapper(study, [dot for dot, _ in paths])
    source = _source(
        [dot for dot, _ in paths],
        xs=[list(range(len(rulers) + 1))] * len(paths),
        ys=[places for _, places in paths],
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
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOLD, line_policy="interp"))
    plot.add_layout(ColorBar(color_mapper=mapper, title=study.aim.metric), "right")
    _draw_rulers(plot, rulers, study, dots)
    return plot


def importance(study: Study, surface: Surface | None) -> figure:
    """How much of the variation goes with each hyperparameter."""
    if surface is None:
        return nothing("Importance", "there are too few trials yet to fit a surface to")
    found = surface.importances()[::-1]
    names = [each.name for each in found]
    title = f"Share of the variation of {study.aim.metric}; the model foretells {surface.explained:.0%} of it"
    plot = _figure(title, y_range=names, height=max(200, 100 + 28 * len(names)), x_axis_label="share")
    data = {
        "name": names,
        "alone": [each.alone for each in found],
        "whole": [each.with_others for each in found],
    }
    source = ColumnDataSource(data)
    plot.hbar("name", right="whole", height=0.7, source=source, color="#9ecae1", legend_label="with its interplay")
    drawn = plot.hbar("name", right="alone", height=0.7, source=source, color="#3182bd", legend_label="alone")
    plot.add_tools(
        HoverTool(renderers=[drawn], tooltips=[("alone", "@alone{0.0%}"), ("with its interplay", "@whole{0.0%}")])
    )
    plot.add_layout(plot.legend[0], "below")  # over the bars it would hide one
    plot.legend.orientation = "horizontal"
    plot.x_range.start = 0
    return plot


def slices(study: Study, ranges: Sequence[ParameterRange], dots: Sequence[Dot], surface: Surface | None) -> UIElement:
    """The objective along each hyperparameter."""
    space = Space(ranges)
    plots = [_slice(study, space, Ruler(axis), dots=dots, surface=surface) for axis in space.axes]
    return gridplot(plots, ncols=3, merge_tools=False)


def contour(study: Study, dots: Sequence[Dot], surface: Surface, *, x: str, y: str) -> figure:
    """The objective over two hyperparameters; categories are bands, numbers have lines of equal height."""
    across, up = (next(ruler for ruler in surface.rulers if ruler.name == name) for name in (x, y))
    plot = _figure(f"{study.aim.metric} over {x} and {y}", height=460, x_axis_label=x, y_axis_label=y)
    land = surface.landscape(x, y)
    heights = np.array(land.values)  # which must be an array: a browser draws no image of nested lists
    low, high = float(heights.min()), float(heights.max())
    palette = _palette(study)
    mapper = LinearColorMapper(palette=palette, low=low, high=high)
    if across.is_categorical or up.is_categorical or low == high:
        plot.image(image=[heights], x=0, y=0, dw=1, dh=1, color_mapper=mapper)
    else:
        levels = [low + (high - low) * step / _LEVELS for step in range(_LEVELS + 1)]
        colours = [palette[int(step * 255 / (_LEVELS - 1))] for step in range(_LEVELS)]
        plot.contour(
            list(land.x_places), list(land.y_places), heights, levels, fill_color=colours, line_color="#ffffff40"
        )
    placed = [(dot, _places(surface.space, (across, up), dot)) for dot in dots]
    shown = [(dot, places) for dot, places in placed if None not in places]
    source = _source([dot for dot, _ in shown], x=[at[0] for _, at in shown], y=[at[1] for _, at in shown])
    drawn = plot.scatter(
        "x", "y", source=source, size=7, line_color="#000000", fill_color={"field": "value", "transform": mapper}
    )
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOLD))
    plot.add_layout(ColorBar(color_mapper=mapper, title=study.aim.metric), "right")
    _mark(plot.xaxis, across)
    _mark(plot.yaxis, up)
    plot.x_range, plot.y_range = Range1d(0, 1), Range1d(0, 1)
    return plot


def nothing(title: str, why: str) -> figure:
    """A chart that has nothing to show, and says why."""
    plot = _figure(title, height=120, x_range=(0, 1), y_range=(0, 1))
    plot.add_layout(Label(x=0.02, y=0.5, text=f"Nothing to draw: {why}."))
    plot.axis.visible = plot.grid.visible = False
    return plot


def page(study: Study, charts: Sequence[UIElement]) -> UIElement:
    """Charts one below the other, under a heading."""
    return column(Div(text=f"<h2>{_escaped(study.name)}</h2>{_headline(study)}", width=WIDTH), *charts)


def show_in_notebook(chart: Model) -> None:
    output_notebook(resources=INLINE, hide_banner=True)
    show(chart)


def html(chart: Model, title: str) -> str:
    """A page that holds the chart and all of Bokeh that it needs."""
    text: str = file_html(chart, INLINE, title)
    return text


def _slice(study: Study, space: Space, ruler: Ruler, *, dots: Sequence[Dot], surface: Surface | None) -> figure:
    plot = _figure(
        ruler.name, width=_SLICE_WIDTH, height=_SLICE_HEIGHT, y_axis_label=study.aim.metric, x_range=(-0.03, 1.03)
    )
    if surface is not None:
        profile = surface.profile(ruler.name)
        if ruler.is_categorical:
            plot.scatter(list(profile.places), list(profile.values), marker="dash", size=24, color=_BEST, line_width=2)
        else:
            plot.line(list(profile.places), list(profile.values), color=_BEST, line_width=2)
    placed = [(dot, place) for dot in dots for place in _places(space, (ruler,), dot) if place is not None]
    mapper = LinearColorMapper(palette=Viridis256, low=1, high=max(len(study.dots), 2))
    source = _source([dot for dot, _ in placed], x=[place for _, place in placed])
    drawn = plot.scatter("x", "value", source=source, size=6, alpha=0.8, color={"field": "number", "transform": mapper})
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=_TOLD))
    _mark(plot.xaxis, ruler)
    return plot


def _figure(title: str, **options: Any) -> figure:
    usual: dict[str, Any] = {"width": WIDTH, "height": HEIGHT, "tools": "pan,wheel_zoom,box_zoom,reset,save"}
    plot = figure(title=title, **(usual | options))
    plot.toolbar.logo = None
    return plot


def _source(dots: Sequence[Dot], **columns: Sequence[Any]) -> ColumnDataSource:
    told: dict[str, Sequence[Any]] = {
        "number": [dot.number for dot in dots],
        "value": [dot.value for dot in dots],
        "text": [dot.text for dot in dots],
        "status": [dot.status for dot in dots],
    }
    return ColumnDataSource(told | columns)


def _bests(study: Study, measured: Sequence[Dot]) -> tuple[list[int], list[float]]:
    """The best so far at each trial, up to the last of all."""
    numbers: list[int] = []
    bests: list[float] = []
    for dot in measured:
        assert dot.value is not None, "only what was measured is drawn"
        is_better = study.aim.prefers(dot.value, bests[-1] if bests else None)
        numbers.append(dot.number)
        bests.append(dot.value if is_better else bests[-1])
    if bests:
        numbers.append(study.dots[-1].number)
        bests.append(bests[-1])
    return numbers, bests


def _path(space: Space, rulers: Sequence[Ruler], dot: Dot, dots: Sequence[Dot]) -> list[float] | None:
    """The heights of a line: one for each hyperparameter, then the objective's; None where a value is of no range."""
    places = _places(space, rulers, dot)
    known = [place for place in places if place is not None]
    if len(known) < len(places) or dot.value is None:
        return None
    low, high = _extent(dots)
    return [*known, (dot.value - low) / (high - low) if high > low else 0.5]


def _places(space: Space, rulers: Sequence[Ruler], dot: Dot) -> list[float | None]:
    values = space.values(dot.tuned)
    return [ruler.place(values[ruler.name]) if ruler.name in values else None for ruler in rulers]


def _extent(dots: Sequence[Dot]) -> tuple[float, float]:
    values = [dot.value for dot in dots if dot.value is not None]
    return min(values, default=0.0), max(values, default=0.0)


def _draw_rulers(plot: figure, rulers: Sequence[Ruler], study: Study, dots: Sequence[Dot]) -> None:
    """A line with marks for each hyperparameter, and one for the objective."""
    low, high = _extent(dots)
    ends = [(0.0, number_text(low)), (1.0, number_text(high))]
    marked: list[tuple[str, list[tuple[float, str]]]] = [
        *((ruler.name, [(mark.place, mark.label) for mark in ruler.marks]) for ruler in rulers),
        (study.aim.metric, ends),
    ]
    for place, (_, marks) in enumerate(marked):
        plot.add_layout(Span(location=place, dimension="height", line_color="#999999"))
        for height, label in marks:
            plot.add_layout(Label(x=place, y=height, text=label, x_offset=4, text_font_size="10px"))
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(marked))))
    plot.xaxis.major_label_overrides = {place: name for place, (name, _) in enumerate(marked)}
    plot.yaxis.visible = plot.ygrid.visible = False
    plot.x_range, plot.y_range = Range1d(-0.1, len(marked) - 0.7), Range1d(-0.05, 1.1)


def _mark(axis: Any, ruler: Ruler) -> None:
    marks = ruler.marks
    axis.ticker = FixedTicker(ticks=[mark.place for mark in marks])
    axis.major_label_overrides = {mark.place: mark.label for mark in marks}
    if ruler.is_categorical:
        axis.major_label_orientation = 0.6


def _mapper(study: Study, dots: Sequence[Dot]) -> LinearColorMapper:
    low, high = _extent(dots)
    return LinearColorMapper(palette=_palette(study), low=low, high=high)


def _palette(study: Study) -> tuple[str, ...]:
    """Light is better."""
    return tuple(Viridis256 if study.aim.is_maximized else Viridis256[::-1])


def _colour(status: str) -> str:
    return _COLOURS.get(status, "#7f7f7f")


def _headline(study: Study) -> str:
    best = study.best
    if best is None:
        return "No trial has measured the objective yet."
    told = f"{study.aim.metric} {number_text(best.value)} with {best.text}, trial {best.number} of {len(study.dots)}"
    return f"Best: {_escaped(told)} ({_escaped(best.name)})."


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
