"""RecordIO: a sequence of byte records, as MXNet and SageMaker's Pipe channels use it.

A record is the magic number, a 32-bit number, and the data, padded to a multiple of four bytes. The lower 29 bits of
the number are the length; the upper three are a flag: 0 is a complete record, and 1, 2 and 3 are the first, a middle
and the last part of a record. All numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from trainyard.formats.streams import read_exactly
from trainyard.foundation.errors import Corrupt, InvalidRequest

MAGIC = 0xCED7230A
# A multiple of four, so that only the last part of a record is padded.
MAX_PART_BYTES = (1 << 29) - 4
MAX_RECORD_BYTES = 1 << 31

_HEADER = struct.Struct("<II")
_LENGTH_BITS = 29
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_PADDING = bytes(3)


def read_recordio(stream: BinaryIO, *, joint: bytes = b"", max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[bytes]:
    """Iterate over the records of a stream. Raise Corrupt, with the offset, if it ends inside a record or is invalid.

    The parts of a record are joined by `joint`: nothing, as SageMaker does, or `MAGIC.to_bytes(4, "little")` for the
    files of MXNet, which splits where the data contains the magic number.
    """
    offset = size = 0
    parts: list[bytes] = []
    while header := read_exactly(stream, _HEADER.size, offset=offset, what="the header of a RecordIO record"):
        flag, length = _parse_header(header, offset, is_inside=bool(parts))
        size += length
        if size > max_record_bytes:
            raise Corrupt(f"The RecordIO record at byte {offset} is larger than the {max_record_bytes} bytes allowed.")
        padded = length + -length % 4
        data = read_exactly(stream, padded, offset=offset + _HEADER.size, what="a RecordIO record", may_end=False)
        offset += _HEADER.size + padded
        parts.append(data[:length] if padded > length else data)
        if flag in (_WHOLE, _LAST):
            yield joint.join(parts) if len(parts) > 1 else parts[0]
            parts, size = [], 0
    if parts:
        raise Corrupt(f"The RecordIO stream ends at byte {offset}, before the last part of a record.")


def write_recordio(stream: BinaryIO, record: bytes) -> None:
    """Append one record, in several parts if it is too long for one."""
    view = memoryview(record)
    start = 0
    for header, length in record_frames(len(record)):
        stream.write(header)
        stream.write(view[start : start + length])
        start += length
    stream.write(record_padding(len(record)))


def record_frames(size: int) -> Iterator[tuple[bytes, int]]:
    """Iterate over the headers of a record of `size` bytes, each with the number of data bytes after it."""
    if size < 0:
        raise InvalidRequest(f"A record cannot have {size} bytes.")
    starts = range(0, max(size, 1), MAX_PART_BYTES)
    for number, start in enumerate(starts, start=1):
        length = min(MAX_PART_BYTES, size - start)
        flag = _WHOLE if len(starts) == 1 else _FIRST if number == 1 else _LAST if number == len(starts) else _MIDDLE
        yield _HEADER.pack(MAGIC, flag << _LENGTH_BITS | length), length


def record_padding(size: int) -> bytes:
    """Return the padding after the data of a record of `size` bytes."""
    return _PADDING[: -size % 4]


def _parse_header(header: bytes, offset: int, *, is_inside: bool) -> tuple[int, int]:
    """Return the flag and the length of a header."""
    magic, word = _HEADER.unpack(header)
    if magic != MAGIC:
        raise Corrupt(
            f"There is no RecordIO record at byte {offset}: it begins with {magic:#010x} instead of {MAGIC:#010x}."
        )
    flag = word >> _LENGTH_BITS
    if flag not in ((_MIDDLE, _LAST) if is_inside else (_WHOLE, _FIRST)):
        where = "inside a record" if is_inside else "where a record begins"
        raise Corrupt(f"The RecordIO header at byte {offset} has the flag {flag}, which cannot be {where}.")
    return flag, word & _LENGTH_MASK
