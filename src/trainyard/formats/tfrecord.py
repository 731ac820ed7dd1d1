"""TFRecord: records of bytes one after another, each with the checksums of its length and of its data.

A record is the length in 64 bits, the masked CRC-32C of these, the data, and the masked CRC-32C of that. All numbers
are little-endian.
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
    """The records of a stream, until it ends.

    Corrupt, with the offset, when a checksum is wrong, a record is larger than allowed, or the stream ends inside one.
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
    (told,) = _CRC.unpack(crc)
    counted = masked_crc32c(data)
    if counted != told:
        raise Corrupt(f"The checksum of the {what} is {counted:#010x}, but {told:#010x} is stored with it.")
