"""The Apache Arrow streaming format, for columns of numbers and of fixed-size lists of numbers, without nulls.

A stream is a schema followed by self-contained batches; if the file ends inside a message, all batches before it are
readable. Batches of one schema with the same number of rows have the same metadata, byte for byte. So the metadata is
encoded and decoded once, and consecutive equal batches are read as one strided array.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.encoding.flatbuffers import BufferOffset, Builder, FlatBufferTable, Member, Number
from trainyard.foundation.errors import Corrupt

END = b"\xff\xff\xff\xff\0\0\0\0"

# The continuation marker of a message, and the length of its metadata.
_PREFIX = struct.Struct("<Ii")
_CONTINUATION = 0xFFFFFFFF
_ALIGNMENT = 8
# Arrow calls it V5.
_VERSION = 4
# Kinds of messages.
_SCHEMA, _BATCH = 1, 3
# Kinds of types.
_INT, _FLOAT, _LIST = 2, 3, 16
# Arrow's precisions, by size in bytes.
_FLOATS = {2: 0, 4: 1, 8: 2}
_FLOAT_NAMES = {precision: f"float{8 * size}" for size, precision in _FLOATS.items()}
_DTYPES = {*_FLOAT_NAMES.values(), *(f"{sign}int{8 * size}" for sign in ("", "u") for size in (1, 2, 4, 8))}

_MAX_METADATA_BYTES = 1 << 31

Statistic = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of numbers of a numpy dtype or, with a width, of lists of that many numbers."""

    name: str
    dtype: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    fields: tuple[Field, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The offset of each column in the body of a batch."""

    rows: int
    body_bytes: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Consecutive batches of one layout: the first body begins at `start`, each next one `stride` bytes later."""

    layout: BatchLayout
    start: int
    stride: int
    count: int = 1

    @property
    def rows(self) -> int:
        return self.layout.rows * self.count


def encode_schema(schema: Schema) -> bytes:
    """Encode the message that begins a stream."""
    builder = Builder()
    fields = [_put_field(builder, each) for each in schema.fields]
    entries = [_put_entry(builder, name, text) for name, text in schema.metadata.items()]
    header = builder.table({1: builder.offsets(fields), 2: builder.offsets(entries)})
    return _message(builder, _SCHEMA, header, body_bytes=0)


def encode_batch(schema: Schema, columns: Sequence[Statistic]) -> list[bytes | memoryview]:
    """Encode the columns of a batch, as pieces to be written one after another."""
    rows = len(columns[0])
    pieces: list[bytes | memoryview] = [_batch_metadata(schema.fields, rows)]
    for each, column in zip(schema.fields, columns, strict=True):
        data = np.ascontiguousarray(column, dtype=each.dtype)
        assert data.size == rows * max(1, each.width), f"the column {each.name} has {data.size} numbers in {rows} rows"
        pieces.append(data.data.cast("B") if data.size else b"")
        pieces.append(b"\0" * (-data.nbytes % _ALIGNMENT))
    return pieces


class Scanner:
    """Finds the batches of a stream that may still grow. Batches never move."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        # The end of the last complete message.
        self.offset = 0
        self.has_ended = False
        # Why the bytes from the offset on cannot be read.
        self.damage = ""
        self._layouts: dict[bytes, BatchLayout] = {}

    def scan(self, buffer: memoryview) -> list[BatchRun]:
        """Return the batches that have become complete since the last scan."""
        runs: list[BatchRun] = []
        try:
            while not (self.has_ended or self.damage) and self._read_message(buffer, runs):
                pass
        except (Corrupt, ValueError, LookupError) as error:
            self.damage = str(error)
        return runs

    def _read_message(self, buffer: memoryview, runs: list[BatchRun]) -> bool:
        """Read the next message; return False if it is not complete."""
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

    def _batch(self, metadata: bytes, available: int) -> BatchRun | None:
        layout = self._layouts.get(metadata)
        if layout is None:
            assert self.schema is not None, "a batch comes after its schema"
            layout = self._layouts[metadata] = _decode_batch(metadata, self.schema.fields)
        start = self.offset + _PREFIX.size + len(metadata)
        if start + layout.body_bytes > available:
            return None
        return BatchRun(layout, start, stride=_PREFIX.size + len(metadata) + layout.body_bytes)


def column(buffer: memoryview, run: BatchRun, place: int, *, of: Field) -> Statistic:
    """Return a view of a column over the batches of a run: batches x rows, and x width for lists."""
    dtype = np.dtype(of.dtype).newbyteorder("<")
    row_bytes = dtype.itemsize * max(1, of.width)
    shape: tuple[int, ...] = (run.count, run.layout.rows)
    strides: tuple[int, ...] = (run.stride, row_bytes)
    if of.width:
        shape, strides = (*shape, of.width), (*strides, dtype.itemsize)
    return np.ndarray(shape, dtype, buffer, run.start + run.layout.columns[place], strides)


def merge_runs(runs: Iterable[BatchRun], more: Iterable[BatchRun]) -> list[BatchRun]:
    """Concatenate runs and merge those that are contiguous."""
    result = list(runs)
    for run in more:
        _append(result, run)
    return result


def _append(runs: list[BatchRun], run: BatchRun) -> None:
    last = runs[-1] if runs else None
    is_next = last is not None and (last.layout, last.stride) == (run.layout, run.stride)
    if last is not None and is_next and last.start + last.count * last.stride == run.start:
        runs[-1] = replace(last, count=last.count + run.count)
    else:
        runs.append(run)


def _metadata_at(buffer: memoryview, offset: int) -> bytes | None:
    """Return the metadata of the message at an offset, empty at the end of a stream; None if it is incomplete."""
    start = offset + _PREFIX.size
    if start > len(buffer):
        return None
    marker, size = _PREFIX.unpack_from(buffer, offset)
    # A power cut may leave a file longer than what was written.
    if marker == 0 and size == 0:
        return None
    if marker != _CONTINUATION or not 0 <= size < _MAX_METADATA_BYTES:
        raise Corrupt(f"There is no Arrow message at byte {offset}.")
    if start + size > len(buffer):
        return None
    return bytes(buffer[start : start + size])


def _message(builder: Builder, kind: int, header: BufferOffset, *, body_bytes: int) -> bytes:
    members: dict[int, Member] = {0: Number("h", _VERSION), 1: Number("B", kind), 2: header}
    metadata = builder.finish(builder.table({**members, 3: Number("q", body_bytes)}))
    return _PREFIX.pack(_CONTINUATION, len(metadata)) + metadata


@lru_cache(maxsize=512)
def _batch_metadata(fields: tuple[Field, ...], rows: int) -> bytes:
    nodes, buffers, offset = [], [], 0
    for each in fields:
        size = np.dtype(each.dtype).itemsize * rows * max(1, each.width)
        if each.width:
            nodes.append((rows, 0))
            # The validity buffer is empty: no row is null.
            buffers.append((offset, 0))
        nodes.append((rows * max(1, each.width), 0))
        buffers += [(offset, 0), (offset, size)]
        offset += size + -size % _ALIGNMENT
    builder = Builder()
    members: dict[int, Member] = {1: builder.pairs(nodes), 2: builder.pairs(buffers)}
    header = builder.table({0: Number("q", rows), **members})
    return _message(builder, _BATCH, header, body_bytes=offset)


def _put_field(builder: Builder, each: Field) -> BufferOffset:
    if not each.width:
        return _put_numbers(builder, each.name, each.dtype)
    item = _put_numbers(builder, "item", each.dtype)
    children = builder.offsets([item])
    kind = builder.table({0: Number("i", each.width)})
    return builder.table({0: builder.text(each.name), 2: Number("B", _LIST), 3: kind, 5: children})


def _put_numbers(builder: Builder, name: str, dtype: str) -> BufferOffset:
    numpy_type = np.dtype(dtype)
    if numpy_type.kind == "f":
        number, kind = _FLOAT, builder.table({0: Number("h", _FLOATS[numpy_type.itemsize])})
    else:
        bits = Number("i", 8 * numpy_type.itemsize)
        number, kind = _INT, builder.table({0: bits, 1: Number("?", numpy_type.kind == "i")})
    return builder.table({0: builder.text(name), 2: Number("B", number), 3: kind, 5: builder.offsets([])})


def _put_entry(builder: Builder, name: str, text: str) -> BufferOffset:
    return builder.table({0: builder.text(name), 1: builder.text(text)})


def _decode_schema(metadata: bytes) -> Schema:
    header = _header(metadata, _SCHEMA)
    entries = {entry.text(0): entry.text(1) for entry in header.tables(2)}
    return Schema(tuple(_decode_field(each) for each in header.tables(1)), entries)


def _decode_field(encoded: FlatBufferTable) -> Field:
    if encoded.number(2, "B") != _LIST:
        return Field(encoded.text(0), _decode_type(encoded))
    kind, (item,) = encoded.table(3), encoded.tables(5)
    width = kind.number(0, "i") if kind else 0
    if width < 1:
        raise Corrupt(f'The lists of the column "{encoded.text(0)}" have no length.')
    return Field(encoded.text(0), _decode_type(item), width)


def _decode_type(encoded: FlatBufferTable) -> str:
    kind, number = encoded.table(3), encoded.number(2, "B")
    dtype = ""
    if kind is not None and number == _FLOAT:
        dtype = _FLOAT_NAMES.get(kind.number(0, "h"), "")
    elif kind is not None and number == _INT:
        dtype = f"{'int' if kind.number(1, '?') else 'uint'}{kind.number(0, 'i')}"
    if dtype not in _DTYPES:
        raise Corrupt(f'The column "{encoded.text(0)}" has a type that trials do not use.')
    return dtype


def _decode_batch(metadata: bytes, fields: Sequence[Field]) -> BatchLayout:
    header = _header(metadata, _BATCH)
    rows, buffers = header.number(0, "q"), iter(header.pairs(2))
    body_bytes = FlatBufferTable.root(metadata).number(3, "q")
    columns = []
    for each in fields:
        for _ in range(2 if each.width else 1):
            # Skip the validity buffers.
            next(buffers, None)
        start, size = next(buffers, (0, -1))
        needed = np.dtype(each.dtype).itemsize * rows * max(1, each.width)
        if rows < 1 or start < 0 or start + size > body_bytes or size < needed:
            raise Corrupt(f'The column "{each.name}" of a batch is shorter than its rows.')
        columns.append(start)
    return BatchLayout(rows, body_bytes, tuple(columns))


def _header(metadata: bytes, kind: int) -> FlatBufferTable:
    message = FlatBufferTable.root(metadata)
    header = message.table(2)
    if header is None or message.number(1, "B") != kind:
        raise Corrupt("An Arrow message has an unexpected kind.")
    return header
