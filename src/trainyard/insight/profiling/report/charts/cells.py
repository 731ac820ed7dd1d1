"""Charts that are cells of tables: bars, shares and boxes, beside the figures that they show."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.insight.profiling.report.markup import Html, element, join
from trainyard.insight.profiling.report.units import share_text

# The width of a letter, as a share of the page.
_LETTER = 0.0075


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole, from 0 to 1."""

    label: str
    share: float
    colour: str


def bar_cell(share: float, *, colour: str = "var(--accent)") -> Html:
    """Return a bar that fills this share of its cell."""
    width = f"width:{_within(share):.1%};background:{colour}"
    return element("span", element("span", style=width), class_="bar", aria_hidden="true")


def parts_bar(parts: Sequence[Part], *, width: float = 1.0, has_labels: bool = True) -> Html:
    """Return a bar divided into parts, with a label in each that has room for it.

    `width` is the share of the page that the bar has.
    """
    shown = [part for part in parts if part.share > 0]
    spans = [
        element(
            "span",
            f"{part.label} {share_text(part.share)}" if has_labels and _has_room(part, width) else None,
            style=f"flex-grow:{_within(part.share):.4f};background:{part.colour}",
            title=f"{part.label}: {share_text(part.share)}",
        )
        for part in shown
    ]
    text = ", ".join(f"{part.label} {share_text(part.share)}" for part in shown)
    return element("div", *spans, class_="parts", role="img", aria_label=text)


def _has_room(part: Part, width: float) -> bool:
    return part.share * width > (len(part.label) + 9) * _LETTER


@dataclass(frozen=True, slots=True)
class Box:
    """The quantiles of a box plot."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


def box_cell(box: Box, *, high: float, threshold: float | None = None) -> Html:
    """Return a box from p25 to p75 with whiskers to p5 and p95, on an axis from 0 to `high`."""
    p5, p25, p50, p75, p95 = (
        _within(value / high if high else 0) for value in (box.p5, box.p25, box.p50, box.p75, box.p95)
    )
    marks = [
        element("span", class_="whisker", style=f"left:{p5:.1%};width:{p95 - p5:.1%}"),
        element("span", class_="box", style=f"left:{p25:.1%};width:{max(p75 - p25, 0.004):.1%}"),
        element("span", class_="median", style=f"left:{p50:.1%}"),
    ]
    if threshold is not None:
        marks.append(element("span", class_="threshold", style=f"left:{_within(threshold / high if high else 0):.1%}"))
    return element("span", join(marks), class_="boxplot", aria_hidden="true")


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0) if share == share else 0.0
