import os
import random
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.link.contract import Frame, FrameKind
from trainyard.link.spool import MAX_FRAME_BYTES, READ_BYTES, SpoolWriter, last_frame, read_frames


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def append_notes(spool: Path, *texts: str) -> None:
    with SpoolWriter(spool) as writer:
        for text in texts:
            writer.append(FrameKind.NOTE, {"text": text}, at_us=17)


def texts(spool: Path, offset: int = 0) -> list[str]:
    return [frame.payload["text"] for frame in read_frames(spool, offset).frames]


def test_frames_come_back_as_they_were_appended(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        written = [
            writer.append(FrameKind.STATUS, {"status": "Training", "message": "größer\nals\r1"}, at_us=5),
            writer.append(FrameKind.METRIC, {"name": "loss", "value": 0.25, "at_us": 6, "count": 1}, at_us=6),
            writer.append(FrameKind.ENDED, {"outcome": "completed", "card": None}, at_us=7, durable=True),
        ]

    assert list(read_frames(spool, 0).frames) == written
    assert [frame.sequence for frame in written] == [1, 2, 3]


def test_a_spool_that_does_not_exist_has_no_frames(spool: Path) -> None:
    read = read_frames(spool, 0)

    assert read.frames == ()
    assert read.next_offset == 0
    assert last_frame(spool) is None


def test_a_reader_continues_where_it_stopped(spool: Path) -> None:
    append_notes(spool, "a", "b")
    first = read_frames(spool, 0)
    append_notes(spool, "c")

    assert texts(spool, first.next_offset) == ["c"]
    assert read_frames(spool, 0).frames[:2] == first.frames


def test_opening_again_continues_with_the_next_sequence(spool: Path) -> None:
    append_notes(spool, "a")
    append_notes(spool, "b")

    assert [frame.sequence for frame in read_frames(spool, 0).frames] == [1, 2]


def test_a_frame_is_not_seen_before_its_last_byte(spool: Path, tmp_path: Path) -> None:
    append_notes(spool, "a", "b")
    whole = spool.read_bytes()
    second = whole.index(b"\n") + 1
    growing = tmp_path / "growing"

    for size in range(second, len(whole)):
        growing.write_bytes(whole[:size])
        assert texts(growing) == ["a"]
        assert read_frames(growing, 0).next_offset == second


@pytest.mark.parametrize("left", [b"0", b"deadbeef [2,", b"deadbeef [2,\n", b"\0" * 4096, b"\0" * 100 + b"\n", b"\n\n"])
def test_what_a_crash_left_is_cut_off_when_the_spool_is_opened_again(spool: Path, left: bytes) -> None:
    append_notes(spool, "a")
    whole = spool.read_bytes()
    spool.write_bytes(whole + left)
    assert texts(spool) == ["a"]
    before = read_frames(spool, 0).next_offset

    append_notes(spool, "b")

    assert texts(spool) == ["a", "b"]
    assert texts(spool, before) == ["b"]


def test_a_spool_with_only_half_a_frame_starts_over(spool: Path) -> None:
    spool.write_bytes(b"12345678 [1,")

    append_notes(spool, "a")

    assert texts(spool) == ["a"]


def test_every_cut_and_every_flipped_byte_is_noticed(spool: Path) -> None:
    append_notes(spool, "a", "b", "c")
    whole = spool.read_bytes()
    chance = random.Random(3)

    for _ in range(200):
        position = chance.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[position] ^= chance.randrange(1, 256)
        spool.write_bytes(damaged)
        try:
            found = texts(spool)
        except Corrupt:
            continue
        assert found == ["a", "b", "c"][: len(found)]
        assert len(found) < 3


def test_a_damaged_frame_before_others_is_an_error_and_not_an_end(spool: Path) -> None:
    append_notes(spool, "a", "b", "c")
    spool.write_bytes(spool.read_bytes().replace(b'"b"', b'"x"'))

    with pytest.raises(Corrupt, match="damaged at byte"):
        read_frames(spool, 0)


def test_a_frame_torn_by_a_crash_ends_the_spool_even_when_only_its_last_byte_is_missing(spool: Path) -> None:
    append_notes(spool, "a", "b", "c")
    spool.write_bytes(spool.read_bytes().replace(b'"b"', b'"x"')[:-1])
    assert texts(spool) == ["a"]

    append_notes(spool, "d")

    assert texts(spool) == ["a", "d"]


def test_a_missing_frame_is_an_error(spool: Path) -> None:
    append_notes(spool, "a", "b", "c")
    lines = spool.read_bytes().splitlines(keepends=True)
    spool.write_bytes(lines[0] + lines[2])

    with pytest.raises(Corrupt, match="frame 3 where frame 2"):
        read_frames(spool, 0)


def test_a_line_of_one_mebibyte_is_a_frame_and_one_byte_more_is_refused(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        writer.append(FrameKind.NOTE, {"text": ""}, at_us=1)
        room = 1024 * 1024 - spool.stat().st_size
        with pytest.raises(InvalidRequest, match="1048576 is the most"):
            writer.append(FrameKind.NOTE, {"text": "x" * (room + 1)}, at_us=1)
        largest = writer.append(FrameKind.NOTE, {"text": "x" * room}, at_us=1)

    assert spool.read_bytes().endswith(b'"}]\n')
    assert max(map(len, spool.read_bytes().splitlines(keepends=True))) == 1024 * 1024
    assert last_frame(spool) == largest
    assert [frame.sequence for frame in read_frames(spool, 0).frames] == [1, 2]


def test_a_frame_may_be_large_but_not_without_end(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        large = writer.append(FrameKind.ENDED, {"card": "x" * (MAX_FRAME_BYTES - 100)}, at_us=1)
        with pytest.raises(InvalidRequest, match="too large"):
            writer.append(FrameKind.ENDED, {"card": "x" * MAX_FRAME_BYTES}, at_us=1)
        small = writer.append(FrameKind.ENDED, {"card": ""}, at_us=1)

    assert read_frames(spool, 0).frames == (large, small)


def test_a_long_spool_is_read_in_parts_without_loss(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        for _ in range(12):
            writer.append(FrameKind.NOTE, {"text": "x" * 500_000}, at_us=1)
    assert spool.stat().st_size > READ_BYTES

    frames: list[Frame] = []
    offset = 0
    while (read := read_frames(spool, offset)).frames:
        frames += read.frames
        offset = read.next_offset

    assert [frame.sequence for frame in frames] == list(range(1, 13))
    assert offset == spool.stat().st_size
    assert last_frame(spool) == frames[-1]


def test_an_offset_that_is_no_beginning_of_a_frame_in_a_long_spool_is_an_error(spool: Path) -> None:
    spool.write_bytes(b"x" * (MAX_FRAME_BYTES + 1))

    with pytest.raises(Corrupt, match="no frame at byte"):
        read_frames(spool, 0)


def test_a_spool_whose_end_holds_no_frame_is_not_opened_and_nothing_of_it_is_cut_off(spool: Path) -> None:
    append_notes(spool, "a")
    damaged = spool.read_bytes() + b"\n" * READ_BYTES
    spool.write_bytes(damaged)
    descriptors = set(Path("/proc/self/fd").iterdir())

    with pytest.raises(Corrupt, match="hold no frame"):
        SpoolWriter(spool)

    assert spool.read_bytes() == damaged
    assert set(Path("/proc/self/fd").iterdir()) == descriptors


def test_a_spool_that_fits_into_one_read_and_has_no_frame_starts_over(spool: Path) -> None:
    spool.write_bytes(b"x\n" * (READ_BYTES // 2))

    append_notes(spool, "a")

    assert texts(spool) == ["a"]
    assert spool.stat().st_size < 100


def test_the_last_frame_is_found_behind_anything_else(spool: Path) -> None:
    append_notes(spool, "a")
    frame = spool.read_bytes()
    for before in (b"\n", b"x", b"x\n", b"\n\n"):
        spool.write_bytes(before + frame)
        assert (last_frame(spool) is None) == (before == b"x")


def test_a_writer_may_be_closed_twice_and_leaves_its_descriptors_number_to_others(spool: Path, tmp_path: Path) -> None:
    writer = SpoolWriter(spool)
    writer.close()
    other = (tmp_path / "other").open("w")

    writer.close()

    other.write("still open")
    other.close()


def test_threads_share_a_writer_without_mixing_frames(spool: Path) -> None:
    with SpoolWriter(spool) as writer, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: writer.append(FrameKind.NOTE, {"text": number}, at_us=1), range(200)))

    frames = read_frames(spool, 0).frames
    assert [frame.sequence for frame in frames] == list(range(1, 201))
    assert sorted(frame.payload["text"] for frame in frames) == list(range(200))


def test_what_was_appended_survives_the_death_of_the_writer(spool: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from trainyard.link.spool import SpoolWriter; from trainyard.link.contract import FrameKind\n"
        "writer = SpoolWriter(Path(sys.argv[1]))\n"
        "writer.append(FrameKind.NOTE, {'text': 'a'}, at_us=1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(spool)], check=False)

    assert ended.returncode == -9
    assert texts(spool) == ["a"]


def test_a_full_disk_leaves_no_half_frame(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from trainyard.link.spool import SpoolWriter; from trainyard.link.contract import FrameKind\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "writer = SpoolWriter(Path(sys.argv[1]))\n"
        "writer.append(FrameKind.NOTE, {'text': 'a'}, at_us=1)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n"
        "    writer.append(FrameKind.NOTE, {'text': 'x' * 500}, at_us=1)\n"
        "except OSError:\n"
        "    writer.append(FrameKind.NOTE, {'text': 'b'}, at_us=1)\n"
    )
    spool = tmp_path / "spool"
    subprocess.run([sys.executable, "-c", code, str(spool)], check=True)

    assert texts(spool) == ["a", "b"]


def test_a_frame_of_a_kind_that_is_not_known_is_an_error(spool: Path) -> None:
    append_notes(spool, "a")
    body = b'[2,"surprise",1,{}]'
    with spool.open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(body), body))

    with pytest.raises(Corrupt, match="surprise"):
        read_frames(spool, 0)


def test_the_spool_is_for_the_owner_alone(spool: Path) -> None:
    before = os.umask(0)
    try:
        append_notes(spool, "a")
    finally:
        os.umask(before)

    assert spool.stat().st_mode & 0o777 == 0o600
