"""Reduce a series to fewer points, for drawing."""

from collections.abc import Iterator, Sequence


def find_extremes(values: Sequence[float], part: int) -> Iterator[int]:
    """Yield the numbers of the lowest and the highest value of each `part` values, in their order."""
    for start in range(0, len(values), part):
        numbers = range(start, min(start + part, len(values)))
        yield from sorted({min(numbers, key=values.__getitem__), max(numbers, key=values.__getitem__)})
