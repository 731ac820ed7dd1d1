"""Where the time of a job went, as a chart of characters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.cli.drawing import span
from trainyard.showing import clock_text

Phase = Mapping[str, Any]


def waterfall_lines(phases: Sequence[Phase], *, now: datetime, width: int, filled: str) -> list[str]:
    """One line for each phase: what, on which instance, when it began, how long it took, and a bar of it."""
    if not phases:
        return []
    begin: datetime = min(phase["StartTime"] for phase in phases)
    total = max((_end(phase, now) - begin).total_seconds() for phase in phases) or 1.0
    names = max(len(phase["Phase"]) for phase in phases)
    instances = max(len(phase.get("Instance", "")) for phase in phases)
    lines = []
    for phase in phases:
        start, end = ((at - begin).total_seconds() for at in (phase["StartTime"], _end(phase, now)))
        drawn = span(start / total, end / total, width, filled=filled)
        told = f"{phase['Phase']:<{names}}  {phase.get('Instance', ''):<{instances}}"
        lines.append(f"{told}  {_seconds(start):>9}  {_seconds(end - start):>9}  {drawn}")
    return lines


def _end(phase: Phase, now: datetime) -> datetime:
    end: datetime = phase.get("EndTime") or max(now, phase["StartTime"])
    return end


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 10 else clock_text(round(seconds, 1))
