"""What readers see of what was written, against a model that does it the slow and obvious way."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.formats.logs import MAX_EVENT_BYTES, LogEvent, LogPage, LogReader, LogWriter, TimeRange
from trainyard.foundation.errors import Unavailable


@dataclass(frozen=True)
class Lines:
    ms: int
    data: bytes


@dataclass(frozen=True)
class Messages:
    ms: Sequence[int]
    texts: Sequence[bytes]


@dataclass(frozen=True)
class EndLine:
    ms: int


@dataclass
class Model:
    """The events of a stream, found byte by byte."""

    limit: int
    events: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0
    line: bytes = b""
    line_start: int = 0
    line_ms: int = 0

    def apply(self, step: Lines | Messages | EndLine) -> None:
        match step:
            case Lines(ms, data):
                self._bytes(data, ms)
            case EndLine(ms):
                self._end_line(ms)
            case Messages(times, texts):
                self._end_line(0)
                for ms, text in zip(times, texts, strict=True):
                    self.events.append((self.end, ms, text))
                    self.end += len(text) + 1
                self.line_start = self.end

    def _end_line(self, ms: int) -> None:
        if self.line_start < self.end:
            self._bytes(b"\n", ms)

    def _bytes(self, data: bytes, ms: int) -> None:
        for value in data:
            byte = bytes([value])
            if len(self.line) == self.limit and byte != b"\n":
                self._finish(self.line, self.end)
            if self.line_start == self.end:
                self.line_ms = ms
            self.end += 1
            if byte == b"\n":
                self._finish(self.line.removesuffix(b"\r"), self.end)
            else:
                self.line += byte

    def _finish(self, message: bytes, next_start: int) -> None:
        self.events.append((self.line_start, self.line_ms, message))
        self.line, self.line_start = b"", next_start


TIMES = st.integers(0, 12)
TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"123456789"]), max_size=6).map(b"".join)
STEPS = st.one_of(
    st.builds(Lines, TIMES, TEXTS),
    st.builds(EndLine, TIMES),
    st.lists(st.tuples(TIMES, TEXTS.map(lambda text: text[:7])), min_size=1, max_size=4).map(
        lambda pairs: Messages([ms for ms, _ in pairs], [text for _, text in pairs])
    ),
)
RANGES = st.builds(TimeRange, st.none() | TIMES, st.none() | TIMES)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=12), RANGES, st.integers(1, 4), st.integers(1, 20), st.integers(8, 64))
def test_paging_either_way_and_scanning_show_exactly_the_events_of_the_model(
    steps: list[Lines | Messages | EndLine], times: TimeRange, max_events: int, max_bytes: int, segment_bytes: int
) -> None:
    limit = 7
    # Real limits are far too large to be met by random short texts.
    with (
        TemporaryDirectory() as folder,
        patch("trainyard.formats.logs.view.MAX_EVENT_BYTES", limit),
        patch("trainyard.formats.logs.writer.MAX_EVENT_BYTES", limit),
        patch("trainyard.formats.logs.view._CHUNK", 8),
        patch("trainyard.formats.logs.view._BATCH", 2),
    ):
        stream = Path(folder) / "stream"
        model = Model(limit)
        for step in steps:
            write(stream, step, segment_bytes)
            model.apply(step)
        expected = [event for event in model.events if event[1] in times]
        reader = LogReader(stream)
        assert plain(read_forward(reader, times, max_events, max_bytes)) == expected
        assert plain(read_backward(reader, times, max_events, max_bytes)) == expected
        assert plain(list(reader.scan(times))) == expected
        assert plain(list(reader.scan(times, descending=True)))[::-1] == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=10), st.data())
def test_a_scan_resumed_anywhere_by_peak_or_by_offset_continues_exactly_there(
    steps: list[Lines | Messages | EndLine], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        stream = Path(folder)
        for step in steps:
            write(stream, step, 32)
        reader = LogReader(stream)
        events = list(reader.scan())
        assert [event.peak_ms for event in events] == sorted(event.peak_ms for event in events)
        peak = data.draw(TIMES)
        assert list(reader.scan(peak_ms=peak)) == [event for event in events if event.peak_ms >= peak]
        below = [event for event in events if event.peak_ms < peak]
        assert list(reader.scan(peak_ms=peak, descending=True)) == below[::-1]
        if events:
            number = data.draw(st.integers(0, len(events) - 1))
            offset = events[number].offset
            assert list(reader.scan(offset=offset + 1)) == events[number + 1 :]
            assert list(reader.scan(offset=offset, descending=True)) == events[:number][::-1]


def test_a_stream_that_was_never_written_is_empty(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "absent")
    assert reader.summary() is None
    assert reader.forward(max_events=10) == LogPage([], 0, 0)
    assert reader.backward(max_events=10) == LogPage([], 0, 0)
    assert list(reader.scan()) == []


def test_a_line_has_the_time_of_its_first_byte_and_appears_when_it_ends(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"one\nhal", 10)
        reader = LogReader(tmp_path)
        page = reader.forward(max_events=10)
        assert [event.message for event in page.events] == [b"one"]
        assert page.after == 4
        assert reader.forward(page.after, max_events=10) == LogPage([], 4, 4)
        writer.append(b"f\n", 20)
        (event,) = reader.forward(page.after, max_events=10).events
        assert (event.offset, event.ms, event.message) == (4, 10, b"half")


def test_the_end_of_a_program_ends_its_last_line(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"no newline", 10)
        assert LogReader(tmp_path).backward(max_events=10).events == []
        writer.end_line(11)
        writer.end_line(12)
    (event,) = LogReader(tmp_path).backward(max_events=10).events
    assert (event.ms, event.message) == (10, b"no newline")
    assert LogReader(tmp_path).summary().end == len(b"no newline\n")  # type: ignore[union-attr]


def test_a_whole_message_keeps_its_newlines_and_an_empty_one_counts(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_messages([(1, b"two\nlines\n"), (2, b""), (3, b"last")], ingested_ms=9)
    events = LogReader(tmp_path).forward(max_events=10).events
    assert [(event.ms, event.ingested_ms, event.message) for event in events] == [
        (1, 9, b"two\nlines\n"),
        (2, 9, b""),
        (3, 9, b"last"),
    ]


@pytest.mark.parametrize("length", [MAX_EVENT_BYTES - 1, MAX_EVENT_BYTES, MAX_EVENT_BYTES + 1, 3 * MAX_EVENT_BYTES])
def test_a_line_over_the_limit_is_cut_into_events_of_the_limit(tmp_path: Path, length: int) -> None:
    line = bytes(97 + number % 26 for number in range(length))
    with LogWriter(tmp_path) as writer:
        writer.append(b"before\n", 1)
        for number, first in enumerate(range(0, length, 300_000)):
            writer.append(line[first : first + 300_000], 10 + number)
        writer.append(b"\nbehind\n", 99)
    pieces = [line[first : first + MAX_EVENT_BYTES] for first in range(0, length, MAX_EVENT_BYTES)]
    reader = LogReader(tmp_path)
    for events in (
        read_forward(reader, TimeRange(), 2, MAX_EVENT_BYTES),
        read_backward(reader, TimeRange(), 2, MAX_EVENT_BYTES),
    ):
        assert [event.message for event in events] == [b"before", *pieces, b"behind"]


def test_an_event_longer_than_a_page_is_a_page_of_its_own(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"long line\nx\n", 1)
    page = LogReader(tmp_path).forward(max_events=10, max_bytes=2)
    assert [event.message for event in page.events] == [b"long line"]


def test_the_summary_tells_the_ends_however_times_jump(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_bytes=20) as writer:
        for ms in (50, 90, 20):
            writer.append_messages([(ms, b"0123456789")], ingested_ms=100 + ms)
    summary = LogReader(tmp_path).summary()
    assert summary is not None
    assert (summary.start, summary.end, summary.first_ms, summary.last_ms, summary.last_ingested_ms) == (
        0,
        33,
        50,
        90,
        120,
    )


def test_an_offset_that_names_no_event_reads_on_from_the_next_one(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"first\nsecond\n", 1)
        writer.append(b"whole\nmessage", 2, whole=True)
    reader = LogReader(tmp_path)
    assert [event.message for event in reader.forward(3, max_events=9).events] == [b"second", b"whole\nmessage"]
    assert reader.forward(15, max_events=9).events == []
    assert reader.forward(10**12, max_events=9).after == reader.summary().end  # type: ignore[union-attr]


def test_what_remains_is_read_after_segments_were_removed_from_the_middle(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_bytes=8) as writer:
        for data in (b"a\nbbb", b"ccc\nddd\n", b"eeeeeee", b"ee\nff\n", b"gg"):
            writer.append(data, 1)
    starts = sorted(file.stem for file in tmp_path.glob("*.index"))
    assert len(starts) == 4
    for suffix in ("index", "log"):
        (tmp_path / f"{starts[1]}.{suffix}").unlink()
    reader = LogReader(tmp_path)
    expected = [b"a", b"bbb", b"eeeeeeeee", b"ff"]
    assert [event.message for event in reader.scan()] == expected
    assert [event.message for event in read_forward(reader, TimeRange(), 1, 1)] == expected
    assert [event.message for event in read_backward(reader, TimeRange(), 1, 1)] == expected


def test_a_segment_removed_during_a_scan_makes_the_log_unavailable(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_bytes=8) as writer:
        for _ in range(3):
            writer.append(b"1234567\n", 1)
    scan = LogReader(tmp_path).scan()
    next(scan)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(Unavailable, match="removed while it was read"):
        list(scan)


def write(folder: Path, step: Lines | Messages | EndLine, segment_bytes: int) -> None:
    """One step by a writer of its own, so that each also resumes what the one before left."""
    with LogWriter(folder, segment_bytes=segment_bytes) as writer:
        match step:
            case Lines(ms, data):
                writer.append(data, ms)
            case EndLine(ms):
                writer.end_line(ms)
            case Messages(times, texts):
                writer.append_messages(zip(times, texts, strict=True), ingested_ms=0)


def read_forward(reader: LogReader, times: TimeRange, max_events: int, max_bytes: int) -> list[LogEvent]:
    events: list[LogEvent] = []
    offset = 0
    while True:
        page = reader.forward(offset, max_events=max_events, max_bytes=max_bytes, times=times)
        assert len(page.events) <= max_events
        events += page.events
        if page.after == offset:
            assert page.events == []
            return events
        offset = page.after


def read_backward(reader: LogReader, times: TimeRange, max_events: int, max_bytes: int) -> list[LogEvent]:
    events: list[LogEvent] = []
    offset: int | None = None
    while True:
        page = reader.backward(offset, max_events=max_events, max_bytes=max_bytes, times=times)
        assert len(page.events) <= max_events
        events[:0] = page.events
        if page.before == offset:
            assert page.events == []
            return events
        offset = page.before


def plain(events: Sequence[LogEvent]) -> list[tuple[int, int, bytes]]:
    return [(event.offset, event.ms, event.message) for event in events]
