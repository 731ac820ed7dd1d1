"""Lines over time or steps, each with a band from its lowest to its highest value where it is an average."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.charts.plot import (
    SIZE,
    Axis,
    LegendEntry,
    draw_chart,
    path_of,
    series_colour,
    upward_axis,
)
from trainyard.insight.profiling.report.downsampling import PointBuckets
from trainyard.insight.profiling.report.markup import NOTHING, Html, element
from trainyard.insight.profiling.report.units import value_text

# Of lines that can still be told apart.
MAX_LINES = 8


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    buckets: PointBuckets


def draw_lines(
    title: str,
    lines: Sequence[Line],
    *,
    across: Axis,
    unit: str,
    subtitle: str = "",
    height_px: int = 150,
    with_band: bool | None = None,
    is_cut: bool = False,
) -> Html:
    """Return a chart of lines; of more than `MAX_LINES`, the first; nothing without lines.

    One or two lines have bands if not told otherwise. A chart that `is_cut` leaves out peaks far above the usual, and
    says so.
    """
    if not lines:
        return NOTHING
    left_out = len(lines) - MAX_LINES
    lines = lines[:MAX_LINES]
    is_banded = len(lines) <= 2 if with_band is None else with_band
    shown = np.concatenate([line.buckets.maxima if is_banded else line.buckets.means for line in lines])
    up = upward_axis(shown, unit, is_cut=is_cut)
    most = float(np.nanmax(shown, initial=0.0))
    if most > up.high:
        subtitle = f"{subtitle} Peaks reach {value_text(most, unit)}.".strip()
    shapes = []
    for number, line in enumerate(lines):
        positions, colour = across.place(line.buckets.positions), series_colour(number)
        if is_banded and len(line.buckets) > 1:
            shapes.append(_band(positions, line.buckets, up, colour))
        path = path_of(positions, up.place(line.buckets.means))
        shapes.append(element("path", class_="line", d=path, style=f"stroke:{colour}", data_label=line.label))
    if left_out > 0:
        subtitle = f"{subtitle} {left_out} more series are not drawn.".strip()
    return draw_chart(
        title,
        shapes,
        across=across,
        up=up,
        summary=" ".join(_summary(line, unit) for line in lines),
        legend=[LegendEntry(line.label, series_colour(number)) for number, line in enumerate(lines)]
        if len(lines) > 1
        else (),
        subtitle=subtitle,
        height_px=height_px,
    )


def _band(positions: Numbers, buckets: PointBuckets, up: Axis, colour: str) -> Html:
    known = np.isfinite(buckets.minima)
    places = positions[known]
    outline = np.concatenate([places, places[::-1]])
    heights = up.place(np.concatenate([buckets.maxima[known], buckets.minima[known][::-1]]))
    path = path_of(outline, np.clip(heights, 0, SIZE))
    return element("path", class_="band", d=f"{path}Z" if path else "", style=f"fill:{colour}")


def _summary(line: Line, unit: str) -> str:
    known = np.isfinite(line.buckets.means)
    if not known.any():
        return f"{line.label}: no values."
    low, mean, high = (
        float(each)
        for each in (np.nanmin(line.buckets.minima), np.nanmean(line.buckets.means), np.nanmax(line.buckets.maxima))
    )
    return f"{line.label}: {value_text(low, unit)} to {value_text(high, unit)}, {value_text(mean, unit)} on average."
