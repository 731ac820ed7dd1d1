"""When a job had which status, and how its start-up went, as shares of a bar."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# Phases that instances report after their program has begun; the start-up ends before them.
_AFTER_START = frozenset({"train", "process", "sync", "gather", "upload"})
_TITLES = {
    "queue": "Wait in the queue",
    "place": "Start the instance",
    "download": "Download code and data",
    "environment": "Install packages",
    "sandbox": "Isolate the program",
    "import": "Import the libraries",
}
# Of a job with many instances, the first are shown.
_MAX_ROWS = 40


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a bar. `left` and `width` are percentages of the bar."""

    title: str
    kind: str
    started_at: datetime
    duration: timedelta
    left: float
    width: float
    text: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """Spans side by side or one above the other, and how long all of them took together."""

    spans: Sequence[Span]
    duration: timedelta
    # How many more there are.
    omitted: int = 0


def status_bar(transitions: Sequence[Mapping[str, Any]], *, now: datetime) -> TimelineBar:
    """Return the statuses that a job has had, in order. One that took no time, such as the final one, is left out."""
    parts = [
        (each["Status"], each["StartTime"], each.get("EndTime") or now, each.get("StatusMessage", ""), each)
        for each in transitions
    ]
    began, ended = parts[0][1], max(part[2] for part in parts)
    spans = [
        _span(title, title.lower(), start, end, (began, ended), text=text, is_open="EndTime" not in each)
        for title, start, end, text, each in parts
        if end > start
    ]
    return TimelineBar(spans, ended - began)


def startup_bar(waterfall: Sequence[Mapping[str, Any]], *, now: datetime) -> TimelineBar | None:
    """Return the phases of the last attempt until its program began; None if there was none yet."""
    phases = list(_startup_phases(waterfall, now))
    if not phases:
        return None
    began, ended = min(phase[1] for phase in phases), max(phase[2] for phase in phases)
    has_many = len({phase[3] for phase in phases if phase[3]}) > 1
    spans = [
        _span(
            _TITLES.get(name, name.capitalize()),
            name,
            start,
            end,
            (began, ended),
            text=instance if has_many else "",
            is_open=is_open,
        )
        for name, start, end, instance, is_open in phases[:_MAX_ROWS]
    ]
    return TimelineBar(spans, ended - began, omitted=len(phases) - len(spans))


def _startup_phases(
    waterfall: Sequence[Mapping[str, Any]], now: datetime
) -> Iterator[tuple[str, datetime, datetime, str, bool]]:
    for each in waterfall:
        if each["Phase"] not in _AFTER_START:
            end = each.get("EndTime")
            yield each["Phase"], each["StartTime"], end or now, each.get("Instance", ""), end is None


def _span(
    title: str,
    kind: str,
    start: datetime,
    end: datetime,
    whole: tuple[datetime, datetime],
    *,
    text: str,
    is_open: bool,
) -> Span:
    total = (whole[1] - whole[0]) or timedelta(microseconds=1)
    left, width = (start - whole[0]) / total, (end - start) / total
    return Span(title, kind, start, end - start, round(left * 100, 3), round(width * 100, 3), text, is_open)
