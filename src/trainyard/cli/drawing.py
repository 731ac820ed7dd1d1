"""Bars made of characters, as far as the terminal has them."""

import sys

PLAIN = "#"


def block() -> str:
    """What bars are filled with: a full block, or a number sign where the output cannot have one."""
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return PLAIN
    return "█"


def bar(part: float, width: int, *, filled: str) -> str:
    """A part of a whole, from 0 to 1; anything above nothing shows."""
    share = min(max(part, 0.0), 1.0)
    count = max(round(share * width), 1 if share else 0)
    return filled * count + ("." if filled == PLAIN else "·") * (width - count)


def span(start: float, end: float, width: int, *, filled: str) -> str:
    """A stretch of a whole, both ends from 0 to 1; the shortest one shows."""
    first = min(int(start * width), width - 1)
    last = max(round(end * width), first + 1)
    return " " * first + filled * (last - first)
