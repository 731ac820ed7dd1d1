"""The frame of a chart: a title, a legend, a plot with its axes, and what a reader without eyes gets instead.

The drawing is an SVG of 1000 x 1000 units that stretches to whatever room there is, so its coordinates are short and
lines keep their width at any size. Text would stretch too, so labels are HTML around it. The script of the page reads
the values back from the coordinates and the limits in `data-` attributes; there is no second copy of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.units import duration_text, tick_text, value_text

SIZE = 1000
# Before the unit of an axis whose values are powers of ten.
POWER = "10^"
# Of series and categories; more start again.
COLOURS = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """The limits of an axis and the unit of its values: one of `units.value_text`, "elapsed", or nothing for a count.

    With `POWER` before its unit, the limits are exponents. Charts with the same `group` are zoomed together.
    """

    low: float
    high: float
    unit: str = ""
    group: str = ""

    @property
    def span(self) -> float:
        return self.high - self.low or 1.0

    def place(self, values: Numbers) -> Numbers:
        """Return positions from 0 at the low end to `SIZE` at the high one."""
        placed: Numbers = (values - self.low) / self.span * SIZE
        return placed

    def text(self, value: float) -> str:
        if self.unit == "elapsed":
            return elapsed_text(value, self.span)
        if self.unit.startswith(POWER):
            return value_text(10**value, self.unit.removeprefix(POWER))
        return tick_text(value, self.unit)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    label: str
    colour: str


def series_colour(number: int) -> str:
    """Return a colour of the page's style sheet."""
    return f"var(--series-{number % COLOURS})"


def upward_axis(values: Numbers, unit: str, *, is_cut: bool = False) -> Axis:
    """Return an axis from 0 to a round number above all values; percentages up to 100 share one axis.

    One that `is_cut` ends above what is usual if few values are far above that, so that they do not flatten the others.
    """
    known = values[np.isfinite(values)]
    most = float(known.max(initial=0.0))
    if is_cut and len(known):
        usual = float(np.percentile(known, 95)) * 1.25
        most = usual if most > 2 * usual > 0 else most
    if unit == "%" and 5 < most <= 100:
        return Axis(0, 100, unit)
    # The round number above changes which ticks there are, so that it takes a second look.
    for _ in range(2):
        first, second, *_ = round_ticks(0.0, most if most > 0 else 1.0)
        most = math.ceil(most / (second - first) - 1e-9) * (second - first) or second
    return Axis(0, most, unit)


def power_ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Return about so many whole exponents."""
    step = max(1, math.ceil((high - low) / count))
    return [float(number) for number in range(math.ceil(low), math.floor(high) + 1, step)]


def round_ticks(low: float, high: float, *, count: int = 4) -> list[float]:
    """Return about so many round numbers from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def elapsed_ticks(low: float, high: float, *, count: int = 6) -> list[float]:
    """Return about so many times, in steps that a clock has."""
    span = high - low
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    step = next((each for each in steps if each * count >= span), 0)
    if span < 3 or not step:
        return round_ticks(low, high, count=count)
    first = math.ceil(low / step - 1e-9)
    return [float(number * step) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def elapsed_text(seconds: float, span: float) -> str:
    """Return a time since the start as a clock shows it: 0:05, 12:30, 3:05:00."""
    if span < 3:
        return duration_text(seconds)
    sign, whole = ("-" if seconds < -0.5 else ""), round(abs(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{sign}{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{sign}{minutes}:{whole % 60:02d}"


def draw_chart(
    title: str,
    shapes: Sequence[Html],
    *,
    across: Axis,
    up: Axis | None,
    summary: str,
    legend: Sequence[LegendEntry] = (),
    subtitle: str = "",
    kind: str = "lines",
    x_title: str = "",
    y_labels: Html = NOTHING,
    x_names: Sequence[str] = (),
    height_px: int = 150,
    is_full_width: bool = False,
) -> Html:
    """Return a figure. `summary` says in a sentence what it shows; `x_names` are those of stacks that have one each."""
    grid = join(_gridlines(up)) if up is not None else NOTHING
    drawing = element(
        "svg",
        grid,
        *shapes,
        viewBox=f"0 0 {SIZE} {SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}. {summary}",
    )
    plot = element(
        "div",
        drawing,
        class_="plot",
        tabindex=0,
        role="group",
        aria_label=f"{title}: the arrow keys read values",
        data_kind=kind,
        data_y0=None if up is None else f"{up.low:.10g}",
        data_y1=None if up is None else f"{up.high:.10g}",
        data_y_unit=None if up is None else up.unit,
        data_x0=f"{across.low:.10g}",
        data_x1=f"{across.high:.10g}",
        data_x_unit=across.unit,
        data_group=across.group or None,
        data_names="\n".join(x_names) or None,
    )
    labels = element("div", y_labels or (join(_y_labels(up)) if up is not None else NOTHING), class_="y-axis")
    ticks = element("div", *(_x_names(x_names) if x_names else _x_labels(across)), class_="x-axis")
    caption = element("figcaption", element("strong", title), element("span", subtitle) if subtitle else None)
    below = element("p", x_title, class_="x-title") if x_title else None
    frame = element("div", labels, plot, ticks, class_="frame", style=f"--height:{height_px}px")
    return element(
        "figure", caption, draw_legend(legend), frame, below, class_="chart full" if is_full_width else "chart"
    )


def draw_legend(entries: Sequence[LegendEntry]) -> Html:
    if not entries:
        return NOTHING
    items = [element("li", element("i", style=f"background:{each.colour}"), each.label) for each in entries]
    return element("ul", *items, class_="legend")


def path_of(positions: Numbers, heights: Numbers) -> str:
    """Return a path through points, in whole units; it has a gap where several points in a row are unknown."""
    known = np.flatnonzero(np.isfinite(heights) & np.isfinite(positions))
    if not len(known):
        return ""
    across = np.rint(positions[known]).astype(np.int64).tolist()
    down = np.rint(SIZE - np.clip(heights[known], -SIZE, 2 * SIZE)).astype(np.int64).tolist()
    starts = np.concatenate([[True], np.diff(known) > MAX_GAP]).tolist()
    return "".join(f"{'M' if starts[n] else 'L'}{across[n]} {down[n]}" for n in range(len(known)))


# Unknown points in a row that a line still crosses: samples do not come at exactly equal intervals.
MAX_GAP = 4


def _y_ticks(up: Axis) -> list[float]:
    return power_ticks(up.low, up.high) if up.unit.startswith(POWER) else round_ticks(up.low, up.high)


def _gridlines(up: Axis) -> list[Html]:
    ticks = _y_ticks(up)
    heights = [SIZE - round((tick - up.low) / up.span * SIZE) for tick in ticks]
    return [element("path", class_="gridline", d="".join(f"M0 {height}H{SIZE}" for height in heights))]


def _y_labels(up: Axis) -> list[Html]:
    return [element("span", up.text(tick), style=f"bottom:{(tick - up.low) / up.span:.2%}") for tick in _y_ticks(up)]


def _x_labels(across: Axis) -> list[Html]:
    ticks = elapsed_ticks(across.low, across.high) if across.unit == "elapsed" else _plain_ticks(across)
    places = [(tick - across.low) / across.span for tick in ticks]
    # The last label may not stand out of the chart.
    return [
        element("span", across.text(tick), style=f"left:{place:.2%}", class_="end" if place > 0.96 else None)
        for tick, place in zip(ticks, places, strict=True)
    ]


def _x_names(names: Sequence[str]) -> list[Html]:
    """Label every few of the stacks."""
    stride = -(-len(names) // 6)
    return [
        element("span", name, style=f"left:{(number + 0.5) / len(names):.2%}")
        for number, name in enumerate(names)
        if number % stride == 0
    ]


def _plain_ticks(across: Axis) -> list[float]:
    if across.unit.startswith(POWER):
        return power_ticks(across.low, across.high)
    return round_ticks(across.low, across.high, count=6)
