"""Curves made of braille characters, each of which has two by four dots."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

# The bits of the dots of a braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800


def curve_lines(values: Sequence[float], *, width: int, height: int, low: float, high: float) -> list[str]:
    """Return the lines of a curve through values, with the scale from `low` to `high` on the left.

    The values are spread over `width` characters. There must be at least one.
    """
    labels = [f"{high:.6g}", *[""] * (height - 2), f"{low:.6g}"]
    margin = max(map(len, labels))
    columns = max(width - margin - 3, 1)
    canvas = _Canvas(columns, height)
    span = high - low
    dots = [
        (
            round(number * (2 * columns - 1) / max(len(values) - 1, 1)),
            round((high - value) / span * (4 * height - 1)) if span else 2 * height,
        )
        for number, value in enumerate(values)
    ]
    if len(dots) == 1:
        canvas.draw_dot(*dots[0])
    for start, end in pairwise(dots):
        canvas.draw_line(start, end)
    return [f"{label:>{margin}} ┤ {row}".rstrip() for label, row in zip(labels, canvas.rows(), strict=True)]


class _Canvas:
    """A grid of braille characters, addressed by dots from the top left."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[_BRAILLE] * columns for _ in range(rows)]

    def draw_dot(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    def draw_line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        (x, y), (last_x, last_y) = start, end
        steps = max(abs(last_x - x), abs(last_y - y), 1)
        for step in range(steps + 1):
            self.draw_dot(x + round((last_x - x) * step / steps), y + round((last_y - y) * step / steps))

    def rows(self) -> Iterator[str]:
        return ("".join(map(chr, row)) for row in self._cells)
