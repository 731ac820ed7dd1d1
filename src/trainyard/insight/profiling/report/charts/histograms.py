"""Histograms, with marks at the quantiles that matter."""

from collections.abc import Mapping

import numpy as np

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.charts.plot import (
    SIZE,
    Axis,
    LegendEntry,
    draw_chart,
    series_colour,
    upward_axis,
)
from trainyard.insight.profiling.report.downsampling import weighted_quantiles
from trainyard.insight.profiling.report.markup import Html, element
from trainyard.insight.profiling.report.units import value_text

BINS = 48
# Values beyond this quantile share the last bin, so that one slow step does not squeeze all others into the first.
TAIL = 0.995


def draw_histogram(
    title: str,
    values: Numbers,
    *,
    unit: str,
    marks: Mapping[str, float] | None = None,
    weights: Numbers | None = None,
    subtitle: str = "",
    height_px: int = 150,
) -> Html | None:
    """Return a chart of how often values occur; None if they do not differ. `marks` are quantiles by their labels."""
    is_known = np.isfinite(values)
    values = values[is_known]
    weights = np.ones(len(values)) if weights is None else weights[is_known]
    if len(values) < 2 or values.min() == values.max():
        return None
    low, (tail,), most = float(values.min()), weighted_quantiles(values, weights, (TAIL,)), float(values.max())
    high = tail if tail > low else most
    counts, _ = np.histogram(np.minimum(values, high), BINS, (low, high), weights=weights)
    across, up = Axis(low, high, unit), upward_axis(counts.astype(np.float64), "")
    lefts = np.rint(np.linspace(0, SIZE, BINS + 1)).astype(np.int64).tolist()
    tops = np.rint(SIZE - up.place(counts.astype(np.float64))).astype(np.int64).tolist()
    bars = "".join(
        f"M{lefts[n]} {SIZE}V{tops[n]}h{lefts[n + 1] - lefts[n] - 3}V{SIZE}z" for n in range(BINS) if tops[n] < SIZE
    )
    found = dict(zip(marks or {}, weighted_quantiles(values, weights, tuple((marks or {}).values())), strict=True))
    shapes = [element("path", class_="block", d=bars, style=f"fill:{series_colour(0)}")]
    legend = []
    for number, (label, value) in enumerate(found.items(), start=1):
        place = round(float(np.clip(across.place(np.array([value]))[0], 0, SIZE)))
        shapes.append(element("path", class_="mark", d=f"M{place} 0V{SIZE}", style=f"stroke:{series_colour(number)}"))
        legend.append(LegendEntry(f"{label} {value_text(value, unit)}", series_colour(number)))
    if most > high:
        subtitle = f"{subtitle} The last bar has all up to {value_text(most, unit)}.".strip()
    return draw_chart(
        title,
        shapes,
        across=across,
        up=up,
        summary=f"From {value_text(float(values.min()), unit)} to {value_text(most, unit)}. "
        + " ".join(f"{entry.label}." for entry in legend),
        legend=legend,
        subtitle=subtitle,
        kind="histogram",
        height_px=height_px,
    )
