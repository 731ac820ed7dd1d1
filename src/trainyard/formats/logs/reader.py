"""Reading a stream, by pages or as a flow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.logs.segments import MAX_EVENT_BYTES, segments_of
from trainyard.formats.logs.view import LogEvent, TimeRange, View

ALL_TIMES = TimeRange()


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events in the order of the stream. `before` and `after` are where to read on, backward and forward."""

    events: Sequence[LogEvent]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class LogSummary:
    """The ends of a stream: its offsets, the time of its first entry, and the latest times in it."""

    start: int
    end: int
    first_ms: int
    last_ms: int
    last_ingested_ms: int


class LogReader:
    """Reads the stream in a folder, also while it is written. An absent folder is an empty stream.

    Holds nothing open between calls and may be shared by threads. Memory grows with what a call returns, never with the
    stream or the length of its lines. Unavailable is raised when the stream is removed meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def summary(self) -> LogSummary | None:
        """The ends of the stream, read from the ends of its index; None when it is empty."""
        segments = segments_of(self._folder)
        last = next((segment.last for segment in reversed(segments) if segment.last), None)
        if last is None:
            return None
        first = next(segment.entry(0) for segment in segments if segment.count)
        return LogSummary(first.offset, last.end, first.ms, last.peak_ms, last.ingested_ms)

    def forward(
        self, offset: int = 0, *, max_events: int, max_bytes: int = MAX_EVENT_BYTES, times: TimeRange = ALL_TIMES
    ) -> LogPage:
        """The first events from `offset` on; one at least when there is any, however long."""
        view = View(self._folder)
        low, high = view.bounds(times)
        low = max(low, min(offset, view.end))
        events, stopped_at = _take(view.ascending(low, high, times), max_events, max_bytes)
        before = events[0].offset if events else low
        if stopped_at is not None:
            return LogPage(events, before, stopped_at.offset)
        passed = events[-1].offset + 1 if events else low
        return LogPage(events, before, max(passed, min(high, view.open_line)))

    def backward(
        self,
        offset: int | None = None,
        *,
        max_events: int,
        max_bytes: int = MAX_EVENT_BYTES,
        times: TimeRange = ALL_TIMES,
    ) -> LogPage:
        """The last events before `offset`, or before the end; one at least when there is any, however long."""
        view = View(self._folder)
        low, high = view.bounds(times)
        behind = view.open_line if offset is None else min(offset, view.end)
        events, _ = _take(view.descending(low, min(high, behind), times), max_events, max_bytes)
        events.reverse()
        return LogPage(events, events[0].offset if events else behind, behind)

    def scan(
        self,
        times: TimeRange = ALL_TIMES,
        *,
        descending: bool = False,
        peak_ms: int | None = None,
        offset: int | None = None,
    ) -> Iterator[LogEvent]:
        """All events there are now, one by one.

        Ascending, from those whose peak is `peak_ms` or later and whose offset is `offset` or higher; descending, from
        the last with a lower peak and a lower offset.
        """
        view = View(self._folder)
        low, high = view.bounds(times)
        marks = [
            mark for mark in (offset, None if peak_ms is None else view.offset_reaching(peak_ms)) if mark is not None
        ]
        if descending:
            return view.descending(low, min([high, *marks]), times)
        return view.ascending(max([low, *marks]), high, times)


def _take(events: Iterable[LogEvent], max_events: int, max_bytes: int) -> tuple[list[LogEvent], LogEvent | None]:
    """What fits, and the first event that does not."""
    taken: list[LogEvent] = []
    size = 0
    for event in events:
        size += len(event.message)
        if taken and (len(taken) >= max_events or size > max_bytes):
            return taken, event
        taken.append(event)
    return taken, None
