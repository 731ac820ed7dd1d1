"""FlatBuffers, as far as Arrow messages need them: tables, vectors, strings and structs of 64-bit numbers.

A buffer is built from its end to its start. An offset is the distance from the end, which stays the same while more is
prepended.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import Corrupt

_WIDTHS = {"b": 1, "B": 1, "?": 1, "h": 2, "i": 4, "I": 4, "q": 8}
_OFFSET = "I"


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a table; `kind` is its format character of `struct`."""

    kind: str
    value: int


@dataclass(frozen=True, slots=True)
class BufferOffset:
    """The offset of a table, vector or string from the end of the buffer."""

    from_end: int


Member = Number | BufferOffset


class Builder:
    """Builds one buffer; an object is built before those that refer to it."""

    def __init__(self) -> None:
        # In reverse order: the last part comes first in the buffer.
        self._parts: list[bytes] = []
        self._size = 0

    def text(self, text: str) -> BufferOffset:
        return self._vector_of(text.encode() + b"\0", count=len(text.encode()), width=1)

    def offsets(self, places: Sequence[BufferOffset]) -> BufferOffset:
        """Add a vector of offsets."""
        self._align(4, 4 * len(places))
        for place in reversed(places):
            self._push_offset(place)
        return self._count(len(places))

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> BufferOffset:
        """Add a vector of structs of two 64-bit numbers."""
        flat = [number for pair in pairs for number in pair]
        return self._vector_of(struct.pack(f"<{len(flat)}q", *flat), count=len(pairs), width=8)

    def table(self, members: Mapping[int, Member]) -> BufferOffset:
        """Add a table of the given members, by their number in the schema."""
        end = self._size
        places = {}
        for number, member in sorted(members.items(), key=lambda item: _width(item[1])):
            places[number] = self._push(member)
        self._align(4, 4)
        # A table starts with the offset of its vtable.
        start = self._size + 4
        slots = [start - places[number] if number in places else 0 for number in range(max(places, default=-1) + 1)]
        vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), start - end, *slots)
        self._prepend(struct.pack("<i", len(vtable)))
        self._prepend(vtable)
        return BufferOffset(start)

    def finish(self, root: BufferOffset) -> bytes:
        """Return the buffer, padded to a multiple of 8 bytes."""
        self._align(8, 4)
        self._push_offset(root)
        return b"".join(reversed(self._parts))

    def _vector_of(self, data: bytes, *, count: int, width: int) -> BufferOffset:
        self._align(max(4, width), len(data))
        self._prepend(data)
        return self._count(count)

    def _count(self, count: int) -> BufferOffset:
        self._prepend(struct.pack("<I", count))
        return BufferOffset(self._size)

    def _push(self, member: Member) -> int:
        if isinstance(member, BufferOffset):
            self._align(4, 4)
            self._push_offset(member)
        else:
            self._align(_width(member), _width(member))
            self._prepend(struct.pack(f"<{member.kind}", member.value))
        return self._size

    def _push_offset(self, place: BufferOffset) -> None:
        self._prepend(struct.pack("<I", self._size + 4 - place.from_end))

    def _align(self, width: int, coming: int) -> None:
        """Pad so that after `coming` more bytes the offset is a multiple of `width`."""
        self._prepend(b"\0" * (-(self._size + coming) % width))

    def _prepend(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)


class FlatBufferTable:
    """A table in a buffer, read in place. Raises Corrupt if it refers outside the buffer."""

    def __init__(self, buffer: bytes, start: int) -> None:
        self._buffer, self._start = buffer, start
        self._vtable = start - self._read("i", start)

    @classmethod
    def root(cls, buffer: bytes) -> "FlatBufferTable":
        return cls(buffer, _unpack(buffer, _OFFSET, 0))

    def number(self, member: int, kind: str, default: int = 0) -> int:
        place = self._place(member)
        return default if place is None else self._read(kind, place)

    def table(self, member: int) -> "FlatBufferTable | None":
        place = self._place(member)
        return None if place is None else FlatBufferTable(self._buffer, self._follow(place))

    def text(self, member: int) -> str:
        place = self._place(member)
        if place is None:
            return ""
        start = self._follow(place)
        return self._buffer[start + 4 : start + 4 + self._read(_OFFSET, start)].decode()

    def tables(self, member: int) -> list["FlatBufferTable"]:
        start, count = self._vector(member)
        return [FlatBufferTable(self._buffer, self._follow(start + 4 * each)) for each in range(count)]

    def pairs(self, member: int) -> list[tuple[int, int]]:
        start, count = self._vector(member)
        if start + 16 * count > len(self._buffer):
            raise Corrupt("An Arrow message announces more data than it has.")
        flat = struct.unpack_from(f"<{2 * count}q", self._buffer, start)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def _vector(self, member: int) -> tuple[int, int]:
        place = self._place(member)
        if place is None:
            return 0, 0
        start = self._follow(place)
        count = self._read(_OFFSET, start)
        if count > len(self._buffer):
            raise Corrupt("An Arrow message announces more data than it has.")
        return start + 4, count

    def _place(self, member: int) -> int | None:
        slot = 4 + 2 * member
        if slot >= self._read("H", self._vtable):
            return None
        offset = self._read("H", self._vtable + slot)
        return self._start + offset if offset else None

    def _follow(self, place: int) -> int:
        return place + self._read(_OFFSET, place)

    def _read(self, kind: str, place: int) -> int:
        return _unpack(self._buffer, kind, place)


def _unpack(buffer: bytes, kind: str, place: int) -> int:
    if place < 0:
        raise Corrupt("An Arrow message refers to bytes outside of itself.")
    try:
        (value,) = struct.unpack_from(f"<{kind}", buffer, place)
    except struct.error as error:
        raise Corrupt("An Arrow message refers to bytes outside of itself.") from error
    return int(value)


def _width(member: Member) -> int:
    return 4 if isinstance(member, BufferOffset) else _WIDTHS[member.kind]
