"""Reads a log stream, by pages or event by event."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.logs.segments import MAX_EVENT_BYTES, segments_of
from trainyard.formats.logs.view import LogEvent, LogView, TimeRange

ALL_TIMES = TimeRange()


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events in the order of the stream. Reading continues at `before` backward and at `after` forward."""

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
    """Reads the stream in a folder, also while it is written. A missing folder is an empty stream.

    Keeps nothing open between calls and may be shared by threads. Memory grows with what a call returns, never with the
    stream or the length of its lines. Raises Unavailable if the stream is removed meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def summary(self) -> LogSummary | None:
        """Return the ends of the stream, read from the ends of its index; None if it is empty."""
        segments = segments_of(self._folder)
        last = next((segment.last for segment in reversed(segments) if segment.last), None)
        if last is None:
            return None
        first = next(segment.entry(0) for segment in segments if segment.count)
        return LogSummary(first.offset, last.end, first.ms, last.peak_ms, last.ingested_ms)

    def forward(
        self, offset: int = 0, *, max_events: int, max_bytes: int = MAX_EVENT_BYTES, times: TimeRange = ALL_TIMES
    ) -> LogPage:
        """Return the first events from `offset` on; at least one if there is any, however long."""
        view = LogView(self._folder)
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
        """Return the last events before `offset`, or before the end; at least one if there is any, however long."""
        view = LogView(self._folder)
        low, high = view.bounds(times)
        stop = view.open_line if offset is None else min(offset, view.end)
        events, _ = _take(view.descending(low, min(high, stop), times), max_events, max_bytes)
        events.reverse()
        return LogPage(events, events[0].offset if events else stop, stop)

    def scan(
        self,
        times: TimeRange = ALL_TIMES,
        *,
        descending: bool = False,
        peak_ms: int | None = None,
        offset: int | None = None,
    ) -> Iterator[LogEvent]:
        """Iterate over all present events.

        Ascending starts at the first event whose peak is at least `peak_ms` and whose offset is at least `offset`;
        descending starts at the last event with a lower peak and a lower offset.
        """
        view = LogView(self._folder)
        low, high = view.bounds(times)
        limits = [
            limit for limit in (offset, None if peak_ms is None else view.offset_reaching(peak_ms)) if limit is not None
        ]
        if descending:
            return view.descending(low, min([high, *limits]), times)
        return view.ascending(max([low, *limits]), high, times)


def _take(events: Iterable[LogEvent], max_events: int, max_bytes: int) -> tuple[list[LogEvent], LogEvent | None]:
    """Return the events that fit, and the first one that does not."""
    events_taken: list[LogEvent] = []
    size = 0
    for event in events:
        size += len(event.message)
        if events_taken and (len(events_taken) >= max_events or size > max_bytes):
            return events_taken, event
        events_taken.append(event)
    return events_taken, None
