"""RecordIO: records of bytes one after another, as MXNet and SageMaker's Pipe channels have them.

A record is the magic number, a number of 32 bits, and the data, filled up to a multiple of four. Of that number, the
lower 29 bits are the length and the upper three a flag: 0 is a whole record, and 1, 2 and 3 are the first, a middle and
the last part of one. All numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from trainyard.formats.streams import read_exactly
from trainyard.foundation.errors import Corrupt, InvalidRequest

MAGIC = 0xCED7230A
MAX_PART_BYTES = (1 << 29) - 4  # a multiple of four, so that only the last part of a record is filled up
MAX_RECORD_BYTES = 1 << 31

_HEADER = struct.Struct("<II")
_LENGTH_BITS = 29
_LENGTH = (1 << _LENGTH_BITS) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_FILLING = bytes(3)


def read_recordio(stream: BinaryIO, *, joint: bytes = b"", max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[bytes]:
    """The records of a stream, until it ends; Corrupt, with the offset, when it ends inside one or is something else.

    The parts of a record are put together with `joint` between them: nothing, as SageMaker does, or for the files of
    MXNet, which cuts where the data holds the magic number, `MAGIC.to_bytes(4, "little")`.
    """
    offset = size = 0
    parts: list[bytes] = []
    while header := read_exactly(stream, _HEADER.size, offset=offset, what="the header of a RecordIO record"):
        flag, length = _opened(header, offset, is_inside=bool(parts))
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
    """Append one record, in parts if it is longer than one part can be."""
    view = memoryview(record)
    start = 0
    for header, length in record_frames(len(record)):
        stream.write(header)
        stream.write(view[start : start + length])
        start += length
    stream.write(record_filling(len(record)))


def record_frames(size: int) -> Iterator[tuple[bytes, int]]:
    """For a record of `size` bytes: each header, and how many bytes of the data come after it."""
    if size < 0:
        raise InvalidRequest(f"A record cannot have {size} bytes.")
    starts = range(0, max(size, 1), MAX_PART_BYTES)
    for number, start in enumerate(starts, start=1):
        length = min(MAX_PART_BYTES, size - start)
        flag = _WHOLE if len(starts) == 1 else _FIRST if number == 1 else _LAST if number == len(starts) else _MIDDLE
        yield _HEADER.pack(MAGIC, flag << _LENGTH_BITS | length), length


def record_filling(size: int) -> bytes:
    """What comes after the data of a record of `size` bytes."""
    return _FILLING[: -size % 4]


def _opened(header: bytes, offset: int, *, is_inside: bool) -> tuple[int, int]:
    """Flag and length."""
    magic, word = _HEADER.unpack(header)
    if magic != MAGIC:
        raise Corrupt(
            f"There is no RecordIO record at byte {offset}: it begins with {magic:#010x} instead of {MAGIC:#010x}."
        )
    flag = word >> _LENGTH_BITS
    if flag not in ((_MIDDLE, _LAST) if is_inside else (_WHOLE, _FIRST)):
        where = "inside a record" if is_inside else "where a record begins"
        raise Corrupt(f"The RecordIO header at byte {offset} has the flag {flag}, which cannot be {where}.")
    return flag, word & _LENGTH
