"""Amounts on top of each other, one stack for each step or stretch of time."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.charts.plot import SIZE, Axis, LegendEntry, draw_chart, upward_axis
from trainyard.insight.profiling.report.markup import Html, element
from trainyard.insight.profiling.report.units import value_text

# Below this many, stacks stand apart.
MAX_APART = 60


def draw_stacks(
    title: str,
    parts: Mapping[str, Numbers],
    colours: Mapping[str, str],
    *,
    across: Axis,
    unit: str,
    subtitle: str = "",
    height_px: int = 190,
    full: float | None = None,
    names: Sequence[str] = (),
    is_cut: bool = False,
) -> Html:
    """Return a chart of stacks of equal width from one end of the axis to the other. Parts without values are left out.

    `full` is the height of the axis, if it is not to follow from the stacks. `names` are those of the stacks,
    instead of the values of the axis. A chart that `is_cut` leaves out tops far above the usual, and says so.
    """
    parts = {label: np.nan_to_num(values) for label, values in parts.items() if np.nansum(values) > 0}
    totals = np.sum(list(parts.values()), axis=0) if parts else np.zeros(0)
    up = Axis(0, full, unit) if full is not None else upward_axis(totals, unit, is_cut=is_cut)
    most = float(totals.max(initial=0.0))
    if is_cut and most > up.high:
        subtitle = f"{subtitle} The highest reaches {value_text(most, unit)}.".strip()
    base, shapes = np.zeros(len(totals)), []
    for label, values in parts.items():
        path = _blocks(base, base + values, up)
        shapes.append(element("path", class_="block", d=path, style=f"fill:{colours[label]}", data_label=label))
        base = base + values
    shares = {label: float(values.sum() / totals.sum()) for label, values in parts.items()}
    return draw_chart(
        title,
        shapes,
        across=across,
        up=up,
        summary=" ".join(f"{label}: {value_text(share * 100, '%')} of all." for label, share in shares.items()),
        legend=[LegendEntry(label, colours[label]) for label in parts],
        subtitle=subtitle,
        kind="stacks",
        x_names=names,
        height_px=height_px,
    )


def _blocks(lows: Numbers, highs: Numbers, up: Axis) -> str:
    """Return a path with a rectangle for each stack that the part is in."""
    count = len(lows)
    lefts = np.rint(np.linspace(0, SIZE, count + 1)).astype(np.int64)
    gap = max(1, round(SIZE / count * 0.12)) if count <= MAX_APART else 0
    bottoms, tops = (np.rint(SIZE - np.clip(up.place(each), 0, SIZE)).astype(np.int64) for each in (lows, highs))
    drawn = np.flatnonzero(bottoms > tops)
    widths = lefts[1:] - lefts[:-1] - gap
    return "".join(
        f"M{lefts[n] + gap // 2} {bottoms[n]}V{tops[n]}h{widths[n]}V{bottoms[n]}z"
        for n in drawn.tolist()
        if widths[n] > 0
    )
