"""TFRecord: what is written comes back, and every changed byte is noticed."""

import io
import struct

import pytest

from trainyard.formats.crc32c import masked_crc32c
from trainyard.formats.tfrecord import read_tfrecord, write_tfrecord
from trainyard.foundation.errors import Corrupt

# As TensorBoard's writer begins every file of events, but for its time.
EVENT = bytes.fromhex("1800000000000000a37f4b22")


def written(*records: bytes) -> bytes:
    stream = io.BytesIO()
    for record in records:
        write_tfrecord(stream, record)
    return stream.getvalue()


def test_records_come_back_as_they_were_written() -> None:
    records = [b"", b"a", b"hello" * 1000, bytes(range(256))]
    assert list(read_tfrecord(io.BytesIO(written(*records)))) == records
    assert list(read_tfrecord(io.BytesIO())) == []


def test_a_record_is_laid_out_as_tensorflow_does() -> None:
    assert written(bytes(24)).startswith(EVENT)


@pytest.mark.parametrize("position", range(12 + 5 + 4))
def test_every_changed_byte_is_noticed(position: int) -> None:
    data = bytearray(written(b"first", b"hello"))
    data[21 + position] ^= 0x10
    reader = read_tfrecord(io.BytesIO(bytes(data)))
    assert next(reader) == b"first"
    with pytest.raises(Corrupt, match=r"The checksum of the (length|data) of the TFRecord at byte 21 is"):
        next(reader)


@pytest.mark.parametrize("size", [1, 11, 12, 14, 20])
def test_a_stream_that_ends_inside_a_record_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt, match=f"ends at byte {size}"):
        list(read_tfrecord(io.BytesIO(written(b"hello")[:size])))


def test_a_record_larger_than_allowed_is_refused_before_it_is_read() -> None:
    length = struct.pack("<Q", 1 << 40)
    header = length + struct.pack("<I", masked_crc32c(length))
    with pytest.raises(Corrupt, match="at byte 0 is larger than the 2147483648 bytes"):
        list(read_tfrecord(io.BytesIO(header)))
