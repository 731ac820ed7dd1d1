"""Operators under the roof of their device: how much they compute for each byte that they move, and how fast."""

import math
from collections.abc import Sequence

import numpy as np

from trainyard.insight.profiling.report.charts.plot import POWER, SIZE, Axis, LegendEntry, draw_chart
from trainyard.insight.profiling.report.markup import NOTHING, Html, element
from trainyard.insight.profiling.report.units import number_text, share_text
from trainyard.insight.profiling.traces.roofline import RooflinePoint, RoofSide

# Sizes of dots in pixels: of the operator with the most time, and of those with almost none.
_LARGEST, _SMALLEST = 15.0, 6.0
_COLOURS = {RoofSide.MEMORY: "var(--series-1)", RoofSide.COMPUTE: "var(--series-0)", None: "var(--series-7)"}
_LABELS = {
    RoofSide.MEMORY: "held back by memory",
    RoofSide.COMPUTE: "held back by arithmetic",
    None: "without a known roof",
}


def draw_roofline_chart(points: Sequence[RooflinePoint]) -> Html:
    """Return a chart with logarithmic axes; nothing if no operator has a place on them."""
    placed = [each for each in points if each.intensity > 0 and each.flops_per_s > 0]
    if not placed:
        return NOTHING
    ceilings, bandwidth = _roof(placed)
    across = _exponents([each.intensity for each in placed], "FLOP/B")
    up = _exponents([*(each.flops_per_s for each in placed), *ceilings], "FLOP/s")
    most = max(each.seconds for each in placed) or 1.0
    shapes = [element("path", class_="mark", d=_roof_path(peak, bandwidth, across, up)) for peak in ceilings]
    # Small ones lie above large ones.
    shapes += [_dot(each, most, across, up) for each in sorted(placed, key=lambda each: -each.seconds)]
    sides = [side for side in _COLOURS if any(each.side is side for each in placed)]
    return draw_chart(
        "Operators under the roof" if ceilings else "Operators by intensity and speed",
        shapes,
        across=across,
        up=up,
        summary=f"{len(placed)} operators, the largest {placed[0].operator}.",
        legend=[LegendEntry(_LABELS[side], _COLOURS[side]) for side in sides],
        subtitle="The larger the dot, the more time.",
        kind="dots",
        x_title="Operations for each byte that is moved",
        height_px=230,
    )


def _roof(points: Sequence[RooflinePoint]) -> tuple[list[float], float]:
    """Return the peaks and the bandwidth of the device, which follow from what operators reach of them."""
    best = [(each, each.flops_per_s / each.reached_share) for each in points if each.reached_share]
    peaks = sorted({float(f"{roof:.4g}") for each, roof in best if each.side is RoofSide.COMPUTE})
    slopes = [roof / each.intensity for each, roof in best if each.side is RoofSide.MEMORY]
    if slopes and not peaks:
        # Where the roof bends is not known; it is drawn as far as there are operators.
        peaks = [max(slopes) * max(each.intensity for each in points) * 2]
    return peaks, max(slopes, default=0.0)


def _roof_path(peak: float, bandwidth: float, across: Axis, up: Axis) -> str:
    right, height = SIZE, _place(peak, up)
    if not bandwidth:
        return f"M0 {SIZE - height}H{right}"
    ridge = _place(peak / bandwidth, across)
    start = _place(bandwidth * 10**across.low, up)
    return f"M0 {SIZE - start}L{ridge} {SIZE - height}H{max(right, ridge)}"


def _dot(point: RooflinePoint, most: float, across: Axis, up: Axis) -> Html:
    size = _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(point.seconds / most)
    reached = f", {share_text(point.reached_share)} of the roof" if point.reached_share is not None else ""
    return element(
        "path",
        class_="dot",
        d=f"M{_place(point.intensity, across)} {SIZE - _place(point.flops_per_s, up)}h0.01",
        style=f"stroke:{_COLOURS[point.side]};stroke-width:{size:.1f}px",
        data_label=f"{point.operator[:80]}: {number_text(point.intensity)} FLOP/B{reached}",
    )


def _place(value: float, axis: Axis) -> int:
    return round(float(axis.place(np.array([math.log10(value)]))[0]))


def _exponents(values: Sequence[float], unit: str) -> Axis:
    low, high = math.log10(min(values)), math.log10(max(values))
    return Axis(math.floor(low - 0.1), math.ceil(high + 0.1), POWER + unit)
