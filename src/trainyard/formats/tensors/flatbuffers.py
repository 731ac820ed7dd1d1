"""FlatBuffers, as much of them as the messages of Arrow need: tables, vectors, texts and structs of 64-bit numbers.

A buffer is built from its end to its start. The place of a thing is told as its distance from the end, which stays
the same while more comes in front of it.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import Corrupt

_WIDTHS = {"b": 1, "B": 1, "?": 1, "h": 2, "i": 4, "I": 4, "q": 8}
_OFFSET = "I"


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a table, by the letter that `struct` has for its kind."""

    kind: str
    value: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table, vector or text lies, from the end of the buffer."""

    from_end: int


Member = Number | Place


class Builder:
    """Builds one buffer; what is pointed to is made before what points to it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the last is the first of the buffer
        self._size = 0

    def text(self, text: str) -> Place:
        return self._vector_of(text.encode() + b"\0", count=len(text.encode()), width=1)

    def offsets(self, places: Sequence[Place]) -> Place:
        """A vector of things."""
        self._align(4, 4 * len(places))
        for place in reversed(places):
            self._push_offset(place)
        return self._count(len(places))

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Place:
        """A vector of structs of two 64-bit numbers."""
        flat = [number for pair in pairs for number in pair]
        return self._vector_of(struct.pack(f"<{len(flat)}q", *flat), count=len(pairs), width=8)

    def table(self, members: Mapping[int, Member]) -> Place:
        """A table of the members that are there, by their number in the schema."""
        end = self._size
        places = {}
        for number, member in sorted(members.items(), key=lambda item: _width(item[1])):
            places[number] = self._push(member)
        self._align(4, 4)
        start = self._size + 4  # of the table: the offset of its list of members comes first
        slots = [start - places[number] if number in places else 0 for number in range(max(places, default=-1) + 1)]
        vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), start - end, *slots)
        self._prepend(struct.pack("<i", len(vtable)))
        self._prepend(vtable)
        return Place(start)

    def finish(self, root: Place) -> bytes:
        """The buffer, a multiple of 8 bytes long."""
        self._align(8, 4)
        self._push_offset(root)
        return b"".join(reversed(self._parts))

    def _vector_of(self, data: bytes, *, count: int, width: int) -> Place:
        self._align(max(4, width), len(data))
        self._prepend(data)
        return self._count(count)

    def _count(self, count: int) -> Place:
        self._prepend(struct.pack("<I", count))
        return Place(self._size)

    def _push(self, member: Member) -> int:
        if isinstance(member, Place):
            self._align(4, 4)
            self._push_offset(member)
        else:
            self._align(_width(member), _width(member))
            self._prepend(struct.pack(f"<{member.kind}", member.value))
        return self._size

    def _push_offset(self, place: Place) -> None:
        self._prepend(struct.pack("<I", self._size + 4 - place.from_end))

    def _align(self, width: int, coming: int) -> None:
        """Pad so that after `coming` bytes more the place is a multiple of `width` from the end."""
        self._prepend(b"\0" * (-(self._size + coming) % width))

    def _prepend(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)


class Table:
    """A table in a buffer, read where it lies. Corrupt where the buffer is too short for what it says."""

    def __init__(self, buffer: bytes, start: int) -> None:
        self._buffer, self._start = buffer, start
        self._members = start - self._read("i", start)

    @classmethod
    def root(cls, buffer: bytes) -> "Table":
        return cls(buffer, _unpack(buffer, _OFFSET, 0))

    def number(self, member: int, kind: str, default: int = 0) -> int:
        place = self._place(member)
        return default if place is None else self._read(kind, place)

    def table(self, member: int) -> "Table | None":
        place = self._place(member)
        return None if place is None else Table(self._buffer, self._follow(place))

    def text(self, member: int) -> str:
        place = self._place(member)
        if place is None:
            return ""
        start = self._follow(place)
        return self._buffer[start + 4 : start + 4 + self._read(_OFFSET, start)].decode()

    def tables(self, member: int) -> list["Table"]:
        start, count = self._vector(member)
        return [Table(self._buffer, self._follow(start + 4 * each)) for each in range(count)]

    def pairs(self, member: int) -> list[tuple[int, int]]:
        start, count = self._vector(member)
        if start + 16 * count > len(self._buffer):
            raise Corrupt("A message of Arrow tells of more than it holds.")
        flat = struct.unpack_from(f"<{2 * count}q", self._buffer, start)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def _vector(self, member: int) -> tuple[int, int]:
        place = self._place(member)
        if place is None:
            return 0, 0
        start = self._follow(place)
        count = self._read(_OFFSET, start)
        if count > len(self._buffer):
            raise Corrupt("A message of Arrow tells of more than it holds.")
        return start + 4, count

    def _place(self, member: int) -> int | None:
        slot = 4 + 2 * member
        if slot >= self._read("H", self._members):
            return None
        offset = self._read("H", self._members + slot)
        return self._start + offset if offset else None

    def _follow(self, place: int) -> int:
        return place + self._read(_OFFSET, place)

    def _read(self, kind: str, place: int) -> int:
        return _unpack(self._buffer, kind, place)


def _unpack(buffer: bytes, kind: str, place: int) -> int:
    if place < 0:
        raise Corrupt("A message of Arrow points outside of itself.")
    try:
        (value,) = struct.unpack_from(f"<{kind}", buffer, place)
    except struct.error as error:
        raise Corrupt("A message of Arrow points outside of itself.") from error
    return int(value)


def _width(member: Member) -> int:
    return 4 if isinstance(member, Place) else _WIDTHS[member.kind]
