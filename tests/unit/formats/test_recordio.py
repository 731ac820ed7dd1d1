"""RecordIO: what is written comes back, and what is broken is named with its place."""

import io
import struct
from collections.abc import Sequence

import pytest

from trainyard.formats import recordio
from trainyard.formats.recordio import MAGIC, read_recordio, record_frames, write_recordio
from trainyard.foundation.errors import Corrupt, InvalidRequest

RECORDS = [b"x" * size for size in range(10)] + [bytes(100_000), MAGIC.to_bytes(4, "little") * 3]


class Trickle(io.RawIOBase):
    """A stream that gives three bytes at a time at most, as a pipe may."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 3) if size >= 0 else 3)


def written(records: Sequence[bytes]) -> bytes:
    stream = io.BytesIO()
    for record in records:
        write_recordio(stream, record)
    return stream.getvalue()


def part(flag: int, data: bytes) -> bytes:
    return struct.pack("<II", MAGIC, flag << 29 | len(data)) + data + bytes(-len(data) % 4)


def test_records_come_back_as_they_were_written() -> None:
    assert list(read_recordio(io.BytesIO(written(RECORDS)))) == RECORDS
    assert list(read_recordio(Trickle(written(RECORDS)))) == RECORDS  # type: ignore[arg-type]
    assert list(read_recordio(io.BytesIO())) == []


def test_a_record_is_laid_out_as_the_format_says() -> None:
    assert written([b"hello"]) == bytes.fromhex("0a23d7ce 05000000") + b"hello\0\0\0"


def test_a_record_in_parts_is_put_together() -> None:
    data = part(1, b"one") + part(2, b"") + part(2, b"two2") + part(3, b"three") + part(0, b"next")
    assert list(read_recordio(io.BytesIO(data))) == [b"onetwo2three", b"next"]


def test_the_parts_of_mxnet_are_joined_by_the_magic_number_they_were_cut_at() -> None:
    magic = MAGIC.to_bytes(4, "little")
    data = part(1, b"before") + part(3, b"after")
    assert list(read_recordio(io.BytesIO(data), joint=magic)) == [b"before" + magic + b"after"]


def test_a_record_too_long_for_one_part_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordio, "MAX_PART_BYTES", 8)  # the real one is 512 MiB
    records = [bytes(range(size)) for size in (7, 8, 9, 16, 17, 30)]
    data = written(records)
    assert data.count(MAGIC.to_bytes(4, "little")) == 1 + 1 + 2 + 2 + 3 + 4
    assert list(read_recordio(io.BytesIO(data))) == records


def test_the_headers_of_a_record_of_more_than_a_gibibyte_cover_it_whole() -> None:
    frames = list(record_frames((1 << 30) + 5))
    assert sum(length for _, length in frames) == (1 << 30) + 5
    assert [struct.unpack("<II", header)[1] >> 29 for header, _ in frames] == [1, 2, 3]
    with pytest.raises(InvalidRequest):
        list(record_frames(-1))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (part(0, b"good") + b"not a record", "no RecordIO record at byte 12"),
        (written([b"hello"])[:6], "ends at byte 6, in the header"),
        (written([b"hello"])[:-4], "ends at byte 12, in a RecordIO record that needs 4 bytes more"),
        (part(0, b"a") + part(2, b"b"), "at byte 12 has the flag 2, which cannot be where a record begins"),
        (part(1, b"a") + part(0, b"b"), "at byte 12 has the flag 0, which cannot be inside a record"),
        (part(5, b"a"), "has the flag 5"),
        (part(1, b"a") + part(2, b"b"), "ends at byte 24, before the last part"),
        (part(0, bytes(101)), "larger than the 100 bytes"),
        (part(1, bytes(60)) + part(3, bytes(41)), "at byte 68 is larger than the 100 bytes"),
    ],
)
def test_broken_data_is_named_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(Corrupt, match=said):
        list(read_recordio(io.BytesIO(data), max_record_bytes=100))


def test_a_header_that_lies_about_its_length_takes_no_memory() -> None:
    stream = io.BytesIO(struct.pack("<II", MAGIC, (1 << 29) - 1) + b"few")
    with pytest.raises(Corrupt, match="ends at byte 11"):
        list(read_recordio(stream))
