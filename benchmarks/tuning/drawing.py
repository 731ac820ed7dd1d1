"""Draws curves as a small picture."""

from collections.abc import Mapping, Sequence
from math import floor, log10

WIDTH, HEIGHT = 620, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 150, 26, 36
COLOURS = ("#d62728", "#7f7f7f", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def picture(title: str, curves: Mapping[str, Sequence[float]], *, across: str) -> str:
    """Return curves over 1, 2, 3, … on a logarithmic scale as SVG. All values must be positive."""
    lowest = floor(min(log10(min(curve)) for curve in curves.values()))
    highest = max(log10(max(curve)) for curve in curves.values())
    count = max(len(curve) for curve in curves.values())

    def point(i: int, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * i / max(count - 1, 1)
        return f"{x:.1f},{_height(log10(value), lowest=lowest, highest=highest):.1f}"

    body = [_text(LEFT, 14, title, "font-weight='bold'"), *_axes(count, lowest, highest=highest)]
    body.append(_text(LEFT, HEIGHT - 6, across))
    ends = sorted(curves, key=lambda name: -curves[name][-1])
    for place, name in enumerate(ends):
        colour = COLOURS[list(curves).index(name) % len(COLOURS)]
        points = " ".join(point(i, value) for i, value in enumerate(curves[name]))
        body.append(f"<polyline fill='none' stroke='{colour}' stroke-width='1.6' points='{points}'/>")
        body.append(_text(WIDTH - RIGHT + 8, TOP + 12 + 17 * place, name, f"fill='{colour}'"))
    size = f"viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif' font-size='11'"
    opening = f"<svg xmlns='http://www.w3.org/2000/svg' {size}>"
    return "\n".join([opening, f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>", *body, "</svg>\n"])


def _axes(count: int, lowest: int, *, highest: float) -> list[str]:
    lines = []
    for power in range(lowest, floor(highest) + 1):
        y = _height(power, lowest=lowest, highest=highest)
        lines.append(f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}' stroke='#dddddd'/>")
        lines.append(_text(LEFT - 6, y + 4, f"{10.0**power:g}", "text-anchor='end'"))
    for i in range(9, count, 10):
        x = LEFT + (WIDTH - LEFT - RIGHT) * i / (count - 1)
        lines.append(_text(x, HEIGHT - BOTTOM + 14, str(i + 1), "text-anchor='middle'"))
    return lines


def _height(power: float, *, lowest: float, highest: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (highest - power) / max(highest - lowest, 1e-9)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escaped}</text>"
