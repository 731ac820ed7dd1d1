"""How a row of layers is cut into stages of about the same size."""

from collections.abc import Sequence


def cut(sizes: Sequence[int], parts: int) -> list[int]:
    """For each of the row the number of its part: contiguous, none empty, the largest as small as it can be.

    Of the ways that have the same largest part, one that gives earlier parts no more than it allows.
    """
    if len(sizes) < parts:
        raise ValueError(f"{len(sizes)} layers cannot be cut into {parts} parts.")
    most = _smallest_bound(sizes, parts)
    numbers: list[int] = []
    number = filled = 0
    for at, size in enumerate(sizes):
        left = len(sizes) - at
        must = left == parts - number - 1  # one for each part that has nothing yet
        if numbers and (must or filled + size > most) and number < parts - 1:
            number, filled = number + 1, 0
        numbers.append(number)
        filled += size
    return numbers


def largest(sizes: Sequence[int], numbers: Sequence[int]) -> int:
    """The size of the largest part."""
    totals: dict[int, int] = {}
    for size, number in zip(sizes, numbers, strict=True):
        totals[number] = totals.get(number, 0) + size
    return max(totals.values())


def _smallest_bound(sizes: Sequence[int], parts: int) -> int:
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if _parts_within(sizes, middle) <= parts:
            high = middle
        else:
            low = middle + 1
    return low


def _parts_within(sizes: Sequence[int], most: int) -> int:
    count, filled = 1, 0
    for size in sizes:
        if filled + size > most:
            count, filled = count + 1, 0
        filled += size
    return count
