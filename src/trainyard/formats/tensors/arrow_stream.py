"""The streaming format of Apache Arrow for columns of numbers and of lists of equally many numbers, none of them null.

A stream is a schema and batches after it, each complete in itself; whoever finds the end of the file inside a message
has all batches before it. Batches of one schema with equally many rows have the same metadata, byte for byte, so that
each kind is encoded and decoded once, and a row of equal batches is read as one array with strides.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.flatbuffers import Builder, Member, Number, Place, Table
from trainyard.foundation.errors import Corrupt

END = b"\xff\xff\xff\xff\0\0\0\0"

_PREFIX = struct.Struct("<Ii")  # the mark of a message, and how long its metadata is
_MARK = 0xFFFFFFFF
_ALIGNMENT = 8
_VERSION = 4  # which Arrow calls V5
_SCHEMA, _BATCH = 1, 3  # kinds of messages
_INT, _FLOAT, _LIST = 2, 3, 16  # kinds of types
_FLOATS = {2: 0, 4: 1, 8: 2}  # Arrow's precisions by bytes
_FLOAT_NAMES = {precision: f"float{8 * size}" for size, precision in _FLOATS.items()}
_DTYPES = {*_FLOAT_NAMES.values(), *(f"{sign}int{8 * size}" for sign in ("", "u") for size in (1, 2, 4, 8))}

_NO_MORE_THAN = 1 << 31  # bytes of metadata

Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A column: numbers of a kind that numpy names, or with a width, lists of so many of them."""

    name: str
    dtype: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    fields: tuple[Field, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in the body of a batch each column begins."""

    rows: int
    body_bytes: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Batches of one layout, one behind the other: the body of the first begins at `start`, the next after `stride`."""

    layout: Layout
    start: int
    stride: int
    count: int = 1

    @property
    def rows(self) -> int:
        return self.layout.rows * self.count


def encode_schema(schema: Schema) -> bytes:
    """The message that begins a stream."""
    builder = Builder()
    fields = [_put_field(builder, each) for each in schema.fields]
    entries = [_put_entry(builder, name, text) for name, text in schema.metadata.items()]
    header = builder.table({1: builder.offsets(fields), 2: builder.offsets(entries)})
    return _message(builder, _SCHEMA, header, body_bytes=0)


def encode_batch(schema: Schema, columns: Sequence[Column]) -> list[bytes | memoryview]:
    """The message of rows of as many columns as the schema has, as pieces to be written one behind the other."""
    rows = len(columns[0])
    pieces: list[bytes | memoryview] = [_batch_metadata(schema.fields, rows)]
    for each, column in zip(schema.fields, columns, strict=True):
        data = np.ascontiguousarray(column, dtype=each.dtype)
        assert data.size == rows * max(1, each.width), f"the column {each.name} has {data.size} numbers in {rows} rows"
        pieces.append(data.data.cast("B") if data.size else b"")
        pieces.append(b"\0" * (-data.nbytes % _ALIGNMENT))
    return pieces


class Scanner:
    """Finds the batches of a stream that may still grow. What it has found stays where it is."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self.offset = 0  # behind the last message that is complete
        self.has_ended = False
        self.damage = ""  # why nothing can be read from the offset on, though there is more
        self._layouts: dict[bytes, Layout] = {}

    def scan(self, buffer: memoryview) -> list[Run]:
        """The batches that are complete now and were not before."""
        runs: list[Run] = []
        try:
            while not (self.has_ended or self.damage) and self._take(buffer, runs):
                pass
        except (Corrupt, ValueError, LookupError) as error:
            self.damage = str(error)
        return runs

    def _take(self, buffer: memoryview, runs: list[Run]) -> bool:
        """Take the next message, if it is complete."""
        metadata = _metadata_at(buffer, self.offset)
        if metadata is None:
            return False
        if not metadata:
            self.offset, self.has_ended = self.offset + _PREFIX.size, True
            return True
        if self.schema is None:
            self.schema = _decode_schema(metadata)
            self.offset += _PREFIX.size + len(metadata)
            return True
        run = self._batch(metadata, len(buffer))
        if run is not None:
            self.offset = run.start + run.layout.body_bytes
            _append(runs, run)
        return run is not None

    def _batch(self, metadata: bytes, available: int) -> Run | None:
        layout = self._layouts.get(metadata)
        if layout is None:
            assert self.schema is not None, "a batch comes after its schema"
            layout = self._layouts[metadata] = _decode_batch(metadata, self.schema.fields)
        start = self.offset + _PREFIX.size + len(metadata)
        if start + layout.body_bytes > available:
            return None
        return Run(layout, start, stride=_PREFIX.size + len(metadata) + layout.body_bytes)


def column(buffer: memoryview, run: Run, place: int, *, of: Field) -> Column:
    """A column of the batches of a run, where it lies: batches x rows, and x width for lists."""
    dtype = np.dtype(of.dtype).newbyteorder("<")
    row_bytes = dtype.itemsize * max(1, of.width)
    shape: tuple[int, ...] = (run.count, run.layout.rows)
    strides: tuple[int, ...] = (run.stride, row_bytes)
    if of.width:
        shape, strides = (*shape, of.width), (*strides, dtype.itemsize)
    return np.ndarray(shape, dtype, buffer, run.start + run.layout.columns[place], strides)


def joined(runs: Iterable[Run], more: Iterable[Run]) -> list[Run]:
    """Runs and those that come behind them, with as few as possible."""
    result = list(runs)
    for run in more:
        _append(result, run)
    return result


def _append(runs: list[Run], run: Run) -> None:
    last = runs[-1] if runs else None
    is_next = last is not None and (last.layout, last.stride) == (run.layout, run.stride)
    if last is not None and is_next and last.start + last.count * last.stride == run.start:
        runs[-1] = replace(last, count=last.count + run.count)
    else:
        runs.append(run)


def _metadata_at(buffer: memoryview, offset: int) -> bytes | None:
    """The metadata of the message there, empty at the end of a stream; None where it is not complete."""
    start = offset + _PREFIX.size
    if start > len(buffer):
        return None
    mark, size = _PREFIX.unpack_from(buffer, offset)
    if mark == 0 and size == 0:  # a file that a power cut left longer than what was written
        return None
    if mark != _MARK or not 0 <= size < _NO_MORE_THAN:
        raise Corrupt(f"There is no message of Arrow at byte {offset}.")
    if start + size > len(buffer):
        return None
    return bytes(buffer[start : start + size])


def _message(builder: Builder, kind: int, header: Place, *, body_bytes: int) -> bytes:
    members: dict[int, Member] = {0: Number("h", _VERSION), 1: Number("B", kind), 2: header}
    metadata = builder.finish(builder.table({**members, 3: Number("q", body_bytes)}))
    return _PREFIX.pack(_MARK, len(metadata)) + metadata


@lru_cache(maxsize=512)
def _batch_metadata(fields: tuple[Field, ...], rows: int) -> bytes:
    nodes, buffers, offset = [], [], 0
    for each in fields:
        size = np.dtype(each.dtype).itemsize * rows * max(1, each.width)
        if each.width:
            nodes.append((rows, 0))
            buffers.append((offset, 0))  # no row is null
        nodes.append((rows * max(1, each.width), 0))
        buffers += [(offset, 0), (offset, size)]
        offset += size + -size % _ALIGNMENT
    builder = Builder()
    members: dict[int, Member] = {1: builder.pairs(nodes), 2: builder.pairs(buffers)}
    header = builder.table({0: Number("q", rows), **members})
    return _message(builder, _BATCH, header, body_bytes=offset)


def _put_field(builder: Builder, each: Field) -> Place:
    if not each.width:
        return _put_numbers(builder, each.name, each.dtype)
    item = _put_numbers(builder, "item", each.dtype)
    children = builder.offsets([item])
    kind = builder.table({0: Number("i", each.width)})
    return builder.table({0: builder.text(each.name), 2: Number("B", _LIST), 3: kind, 5: children})


def _put_numbers(builder: Builder, name: str, dtype: str) -> Place:
    numpy_type = np.dtype(dtype)
    if numpy_type.kind == "f":
        number, kind = _FLOAT, builder.table({0: Number("h", _FLOATS[numpy_type.itemsize])})
    else:
        bits = Number("i", 8 * numpy_type.itemsize)
        number, kind = _INT, builder.table({0: bits, 1: Number("?", numpy_type.kind == "i")})
    return builder.table({0: builder.text(name), 2: Number("B", number), 3: kind, 5: builder.offsets([])})


def _put_entry(builder: Builder, name: str, text: str) -> Place:
    return builder.table({0: builder.text(name), 1: builder.text(text)})


def _decode_schema(metadata: bytes) -> Schema:
    header = _header(metadata, _SCHEMA)
    entries = {entry.text(0): entry.text(1) for entry in header.tables(2)}
    return Schema(tuple(_decode_field(each) for each in header.tables(1)), entries)


def _decode_field(told: Table) -> Field:
    if told.number(2, "B") != _LIST:
        return Field(told.text(0), _decode_type(told))
    kind, (item,) = told.table(3), told.tables(5)
    width = kind.number(0, "i") if kind else 0
    if width < 1:
        raise Corrupt(f'The lists of the column "{told.text(0)}" have no length.')
    return Field(told.text(0), _decode_type(item), width)


def _decode_type(told: Table) -> str:
    kind, number = told.table(3), told.number(2, "B")
    found = ""
    if kind is not None and number == _FLOAT:
        found = _FLOAT_NAMES.get(kind.number(0, "h"), "")
    elif kind is not None and number == _INT:
        found = f"{'int' if kind.number(1, '?') else 'uint'}{kind.number(0, 'i')}"
    if found not in _DTYPES:
        raise Corrupt(f'The column "{told.text(0)}" is of a kind that no trial has.')
    return found


def _decode_batch(metadata: bytes, fields: Sequence[Field]) -> Layout:
    header = _header(metadata, _BATCH)
    rows, buffers = header.number(0, "q"), iter(header.pairs(2))
    body_bytes = Table.root(metadata).number(3, "q")
    columns = []
    for each in fields:
        for _ in range(2 if each.width else 1):
            next(buffers, None)  # of what is null
        start, size = next(buffers, (0, -1))
        needed = np.dtype(each.dtype).itemsize * rows * max(1, each.width)
        if rows < 1 or start < 0 or start + size > body_bytes or size < needed:
            raise Corrupt(f'The column "{each.name}" of a batch is shorter than its rows.')
        columns.append(start)
    return Layout(rows, body_bytes, tuple(columns))


def _header(metadata: bytes, kind: int) -> Table:
    message = Table.root(metadata)
    header = message.table(2)
    if header is None or message.number(1, "B") != kind:
        raise Corrupt("A message of Arrow is of another kind than a trial has.")
    return header
