"""TFRecord: a sequence of byte records, each with the checksums of its length and of its data.

A record is the length in 64 bits, its masked CRC-32C, the data, and its masked CRC-32C. All numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from trainyard.formats.crc32c import masked_crc32c
from trainyard.formats.streams import read_exactly
from trainyard.foundation.errors import Corrupt

MAX_RECORD_BYTES = 1 << 31

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CRC.size


def read_tfrecord(stream: BinaryIO, *, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[bytes]:
    """Iterate over the records of a stream, until it ends.

    Raise Corrupt, with the offset, if a checksum is wrong, a record is too large, or the stream ends inside a record.
    """
    offset = 0
    while header := read_exactly(stream, _HEADER_BYTES, offset=offset, what="the header of a TFRecord"):
        _check(header[: _LENGTH.size], header[_LENGTH.size :], what=f"length of the TFRecord at byte {offset}")
        (length,) = _LENGTH.unpack(header[: _LENGTH.size])
        if length > max_record_bytes:
            raise Corrupt(f"The TFRecord at byte {offset} is larger than the {max_record_bytes} bytes allowed.")
        body = read_exactly(stream, length + _CRC.size, offset=offset + _HEADER_BYTES, what="a TFRecord", may_end=False)
        data = body[:length]
        _check(data, body[length:], what=f"data of the TFRecord at byte {offset}")
        offset += _HEADER_BYTES + len(body)
        yield data


def write_tfrecord(stream: BinaryIO, record: bytes) -> None:
    """Append one record."""
    length = _LENGTH.pack(len(record))
    stream.write(length + _CRC.pack(masked_crc32c(length)))
    stream.write(record)
    stream.write(_CRC.pack(masked_crc32c(record)))


def _check(data: bytes, crc: bytes, *, what: str) -> None:
    (stored,) = _CRC.unpack(crc)
    computed = masked_crc32c(data)
    if computed != stored:
        raise Corrupt(f"The checksum of the {what} is {computed:#010x}, but {stored:#010x} is stored with it.")
