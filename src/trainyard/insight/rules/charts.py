"""Charts as inline SVG, for self-contained pages."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from trainyard.insight.rules.contract import Evidence

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 160, 16, 36
COLOURS = ("#3366aa", "#cc5533", "#338855", "#8855aa", "#aa8822", "#558899", "#aa4477", "#666666")
# Per line; more would be finer than a pixel.
MAX_POINTS = 400


def line_chart(series: Sequence[Evidence]) -> str:
    """Draw lines over steps, each with its label at the right."""
    points = [(step, value) for line in series for step, value in zip(line.steps, line.values, strict=True)]
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return ""
    across = _AxisScale(min(step for step, _ in finite), max(step for step, _ in finite), LEFT, WIDTH - RIGHT)
    up = _AxisScale(min(value for _, value in finite), max(value for _, value in finite), HEIGHT - BOTTOM, TOP)
    parts = [_axes(across, up)]
    for number, line in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{_path(line, across, up)}"/>')
        parts.append(_text(WIDTH - RIGHT + 8, TOP + 10 + 16 * number, line.label, colour=colour))
    return _svg(parts)


def bar_chart(bars: Mapping[str, float]) -> str:
    """Draw a horizontal bar for each name, in the given order."""
    if not bars:
        return ""
    height = TOP + 18 * len(bars) + 8
    scale = _AxisScale(0.0, max(*bars.values(), 1e-12), 180, WIDTH - 70)
    parts = []
    for number, (name, value) in enumerate(bars.items()):
        top = TOP + 18 * number
        parts.append(_text(174, top + 11, name, anchor="end"))
        parts.append(f'<rect x="180" y="{top}" width="{scale(value) - 180:.1f}" height="14" fill="{COLOURS[0]}"/>')
        parts.append(_text(scale(value) + 6, top + 11, f"{value:.3g}"))
    return _svg(parts, height=height)


def matrix_chart(counts: Sequence[Sequence[int]]) -> str:
    """Draw a confusion matrix: labels from top to bottom, predictions from left to right."""
    size = len(counts)
    cell = min(40, 480 // size)
    most = max(max(row) for row in counts) or 1
    parts = [_text(60, 14, "labels down, predictions across")]
    for row, values in enumerate(counts):
        parts.append(_text(54, 30 + cell * row + cell / 2 + 4, str(row), anchor="end"))
        parts.append(_text(60 + cell * row + cell / 2, 26, str(row), anchor="middle"))
        for column, value in enumerate(values):
            left, top = 60 + cell * column, 30 + cell * row
            colour = COLOURS[0] if row == column else COLOURS[1]
            shade = f'fill="{colour}" fill-opacity="{value / most:.3f}" stroke="#dddddd"'
            parts.append(f'<rect x="{left}" y="{top}" width="{cell}" height="{cell}" {shade}/>')
            if cell >= 24 and value:
                parts.append(_text(left + cell / 2, top + cell / 2 + 4, str(value), anchor="middle"))
    return _svg(parts, height=40 + cell * size)


def histogram(edges: Sequence[float], counts: Sequence[int]) -> str:
    """Draw a histogram with these bin edges."""
    across = _AxisScale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    up = _AxisScale(0.0, float(max(*counts, 1)), HEIGHT - BOTTOM, TOP)
    parts = [_axes(across, up)]
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        width, height = max(across(right) - across(left) - 1, 0.5), HEIGHT - BOTTOM - up(count)
        position = f'x="{across(left):.1f}" y="{up(count):.1f}" width="{width:.1f}" height="{height:.1f}"'
        parts.append(f'<rect {position} fill="{COLOURS[0]}"/>')
    return _svg(parts)


class _AxisScale:
    """Maps numbers to positions in the drawing."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        self.least, self.most = least, most if most > least else least + 1
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return self._start + (value - self.least) / (self.most - self.least) * (self._end - self._start)


def _path(line: Evidence, across: _AxisScale, up: _AxisScale) -> str:
    stride = max(1, len(line.steps) // MAX_POINTS)
    points = list(zip(line.steps, line.values, strict=True))
    shown = points[::stride] + ([points[-1]] if points else [])
    return " ".join(f"{across(step):.1f},{up(value):.1f}" for step, value in shown if math.isfinite(value))


def _axes(across: _AxisScale, up: _AxisScale) -> str:
    corner = f"{LEFT},{TOP} {LEFT},{HEIGHT - BOTTOM} {WIDTH - RIGHT},{HEIGHT - BOTTOM}"
    return "".join(
        [
            f'<polyline fill="none" stroke="#888888" points="{corner}"/>',
            _text(LEFT - 6, HEIGHT - BOTTOM, f"{up.least:.4g}", anchor="end"),
            _text(LEFT - 6, TOP + 8, f"{up.most:.4g}", anchor="end"),
            _text(LEFT, HEIGHT - BOTTOM + 16, f"{across.least:.4g}", anchor="middle"),
            _text(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, f"{across.most:.4g}", anchor="middle"),
        ]
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#333333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _svg(parts: Sequence[str], *, height: float = HEIGHT) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-size="11">{"".join(parts)}</svg>'
