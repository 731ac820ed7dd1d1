"""Lines by number, found by an index, against a model that splits the whole text."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.formats.logs import LogWriter
from trainyard.formats.logs.lines import LineIndex, LineIndexes, LineReader, MergedLines
from trainyard.formats.logs.segments import segments_of

Write = tuple[int, bytes]

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"\r\n", b"[1]", b"123456789"]), max_size=6).map(
    b"".join
)
WRITES = st.lists(st.tuples(st.integers(0, 9), TEXTS.filter(bool)), max_size=12)


def write(folder: Path, writes: Sequence[Write], *, segment_bytes: int = 1 << 20) -> None:
    with LogWriter(folder, segment_bytes=segment_bytes) as writer:
        for ms, data in writes:
            writer.append(data, ms)


def model(writes: Sequence[Write]) -> list[tuple[int, int, bytes]]:
    """Return the offset, the latest time so far and the bytes of each line."""
    lines, offset, peak, time_of = list[tuple[int, int, bytes]](), 0, -1, list[int]()
    for ms, data in writes:
        peak = max(peak, ms)
        time_of += [peak] * len(data)
    for line in b"".join(data for _, data in writes).split(b"\n"):
        if offset < len(time_of):
            lines.append((offset, time_of[offset], line))
        offset += len(line) + 1
    return lines


def read(reader: LineReader, number: int = 0) -> list[tuple[int, int, bytes]]:
    return [(line.offset, line.peak_ms, line.head.removesuffix(b"\r")) for line in reader.forward(number)]


def plain(lines: Sequence[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    return [(offset, ms, line.removesuffix(b"\r")) for offset, ms, line in lines]


@settings(max_examples=150, deadline=None)
@given(WRITES, WRITES, st.integers(4, 40), st.integers(1, 30))
def test_every_line_is_found_by_its_number_while_the_log_grows(
    first: list[Write], later: list[Write], segment_bytes: int, budget: int
) -> None:
    with (
        TemporaryDirectory() as folder,
        patch("trainyard.formats.logs.lines.index.BLOCK_BYTES", 4),
        patch("trainyard.formats.logs.lines.reader._CHUNK_BYTES", 6),
    ):
        stream = Path(folder) / "stream"
        index, ranked = LineIndex(stream), LineIndex(stream, b"[1]")
        written: list[Write] = []
        for writes in ([], first, later):
            write(stream, writes, segment_bytes=segment_bytes)
            written += writes
            expected = plain(model(written))
            while not (lines := index.advance(budget)).is_complete:
                # What is counted so far is right already.
                assert read(LineReader(lines)) == expected[: lines.total]
            assert lines.total == len(expected)
            for number, line in enumerate(expected):
                assert lines.start_of(number) == line[0]
                assert lines.count_before(line[0]) == number
                assert lines.count_before(line[0] + 1) == number + 1
            assert [each for number in range(len(expected) + 1) for each in read(LineReader(lines), number)] == [
                each for number in range(len(expected) + 1) for each in expected[number:]
            ]
            chosen = LineReader(lines, ranked.advance())
            assert read(chosen) == [line for line in expected if line[2].startswith(b"[1]")]
            assert [line.number for line in chosen.forward(0)] == [
                number for number, line in enumerate(expected) if line[2].startswith(b"[1]")
            ]


@settings(max_examples=100, deadline=None)
@given(st.lists(WRITES, min_size=1, max_size=3))
def test_lines_of_several_streams_are_in_the_order_of_their_times(streams: list[list[Write]]) -> None:
    with TemporaryDirectory() as folder:
        readers = []
        for number, writes in enumerate(streams):
            write(Path(folder) / str(number), writes)
            readers.append(LineReader(LineIndex(Path(folder) / str(number)).advance()))
        merged = MergedLines(readers)
        expected = sorted(
            (
                (peak, number, place)
                for number, writes in enumerate(streams)
                for place, (_, peak, _) in enumerate(model(writes))
            )
        )
        assert merged.total == len(expected)
        for place, (_, stream, number) in enumerate(expected):
            assert merged.place_of(stream, number) == place
            found = next(iter(merged.forward(place)))
            assert (found.line.peak_ms, found.stream, found.line.number) == expected[place]
        assert [(each.line.peak_ms, each.stream, each.line.number) for each in merged.forward(0)] == expected


def test_a_log_that_lost_its_middle_keeps_the_numbers_before_the_gap(tmp_path: Path) -> None:
    write(tmp_path, [(number, b"line %d\n" % number) for number in range(100)], segment_bytes=64)
    segments = segments_of(tmp_path)
    assert LineIndex(tmp_path).advance().total == 100
    index = LineIndex(tmp_path)
    index.advance()
    for removed in segments[3:5]:
        removed.index_file.unlink()
        removed.log_file.unlink()
    lines = index.advance()
    texts = [line.text for line in LineReader(lines).forward(0)]
    assert len(texts) == lines.total < 100
    assert texts[:3] == ["line 0", "line 1", "line 2"]
    assert texts[-1] == "line 99"
    gap = lines.contents.gaps
    assert [(each.start, each.end) for each in gap] == [(segments[3].start, segments[5].start)]
    assert texts[lines.count_before(gap[0].end) :][0] == LineReader(lines).line_at(gap[0].end).text


def test_a_line_of_a_hundred_megabytes_is_one_line_and_never_read_whole(tmp_path: Path) -> None:
    size = 100 << 20
    with LogWriter(tmp_path) as writer:
        writer.append(b"before\n", 1)
        for _ in range(size >> 20):
            writer.append(b"x" * ((1 << 20) - 1) + b"y", 2)
        writer.append(b"\nafter\n", 3)
    lines = LineIndex(tmp_path).advance()
    assert lines.total == 3
    before, long, after = LineReader(lines).forward(0)
    assert (before.text, after.text, after.number) == ("before", "after", 2)
    assert (long.size, len(long.head), long.tail[-2:]) == (size, 8192, b"xy")
    last = next(LineReader(lines).forward(2))
    assert last.text == "after"


def test_a_line_without_a_newline_is_open_and_may_grow(tmp_path: Path) -> None:
    index = LineIndex(tmp_path)
    write(tmp_path, [(1, b"one\ntw")])
    *_, last = LineReader(index.advance()).forward(0)
    assert (last.text, last.is_open, last.number) == ("tw", True, 1)
    write(tmp_path, [(5, b"o\n")])
    *_, last = LineReader(index.advance()).forward(0)
    # Its time is that of its first bytes.
    assert (last.text, last.is_open, last.ms) == ("two", False, 1)


def test_binary_output_and_cut_characters_are_text_that_can_be_shown(tmp_path: Path) -> None:
    write(tmp_path, [(1, b"\xff\x00\x1b[31m\n"), (2, "é".encode() * 10_000 + b"\n")])
    binary, long = LineReader(LineIndex(tmp_path).advance()).forward(0, max_line_bytes=101)
    assert binary.text == "\ufffd\x00\x1b[31m"
    assert set(long.text) == set(long.ending) == {"é"}


def test_indexes_are_kept_for_the_logs_that_are_read_and_bounded(tmp_path: Path) -> None:
    write(tmp_path / "1", [(1, b"x\n")])
    indexes = LineIndexes(max_memory_bytes=5000)
    first = indexes.index(tmp_path / "1")
    first.advance()
    assert indexes.index(tmp_path / "1") is first
    for number in range(50):
        indexes.index(tmp_path / str(number)).advance()
    assert len(indexes) < 10
    assert indexes.index(tmp_path / "1").advance().total == 1


def test_reading_far_into_a_long_log_reads_little_of_it(tmp_path: Path) -> None:
    write(tmp_path, [(number, b"line %d\n" % number * 100) for number in range(5000)])
    lines = LineIndex(tmp_path).advance()
    with patch.object(type(lines.contents), "read", autospec=True, side_effect=type(lines.contents).read) as reads:
        assert len(list(islice(LineReader(lines).forward(400_000), 200))) == 200
    assert sum(call.args[2] for call in reads.call_args_list) < 1_000_000
