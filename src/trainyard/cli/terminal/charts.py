"""Bars and waterfall charts made of characters."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard._sdk.training.console import duration_text

PLAIN = "#"


def block() -> str:
    """Return the character that fills bars: a full block, or `#` if the output cannot encode one."""
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return PLAIN
    return "█"


def bar(part: float, width: int, *, filled: str) -> str:
    """Return a bar for a share from 0 to 1. Any share above 0 is visible."""
    share = min(max(part, 0.0), 1.0)
    count = max(round(share * width), 1 if share else 0)
    return filled * count + ("." if filled == PLAIN else "·") * (width - count)


def span(start: float, end: float, width: int, *, filled: str) -> str:
    """Return a bar from `start` to `end`, which are shares from 0 to 1. Even the shortest span is visible."""
    first = min(int(start * width), width - 1)
    last = max(round(end * width), first + 1)
    return " " * first + filled * (last - first)


Phase = Mapping[str, Any]


def waterfall_lines(phases: Sequence[Phase], *, now: datetime, width: int, filled: str) -> list[str]:
    """Return a line for each phase: its name, instance, start, duration and bar."""
    if not phases:
        return []
    first_start: datetime = min(phase["StartTime"] for phase in phases)
    total = max((_end(phase, now) - first_start).total_seconds() for phase in phases) or 1.0
    names = max(len(phase["Phase"]) for phase in phases)
    instances = max(len(phase.get("Instance", "")) for phase in phases)
    lines = []
    for phase in phases:
        start, end = ((at - first_start).total_seconds() for at in (phase["StartTime"], _end(phase, now)))
        drawn = span(start / total, end / total, width, filled=filled)
        label = f"{phase['Phase']:<{names}}  {phase.get('Instance', ''):<{instances}}"
        lines.append(f"{label}  {_seconds(start):>9}  {_seconds(end - start):>9}  {drawn}")
    return lines


def _end(phase: Phase, now: datetime) -> datetime:
    end: datetime = phase.get("EndTime") or max(now, phase["StartTime"])
    return end


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 10 else duration_text(round(seconds, 1))
