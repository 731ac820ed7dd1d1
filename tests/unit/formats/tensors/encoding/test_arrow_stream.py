"""Streams of Arrow: pyarrow reads what we write, we read what pyarrow writes, and a torn end costs only itself."""

from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainyard.formats.tensors.encoding.arrow_stream import (
    END,
    BatchRun,
    Field,
    Scanner,
    Schema,
    Statistic,
    column,
    encode_batch,
    encode_schema,
    merge_runs,
)

DTYPES = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"]

fields = st.builds(Field, st.text(min_size=1, max_size=9), st.sampled_from(DTYPES), st.integers(0, 5))
schemas = st.builds(
    Schema,
    st.lists(fields, min_size=1, max_size=6, unique_by=lambda each: each.name).map(tuple),
    st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3),
)

SMALL = Schema((Field("step", "int64"), Field("saved", "uint8", 3), Field("statistics", "float32", 4)), {"table": "ä"})


def columns_of(schema: Schema, rows: int, seed: int = 0) -> list[Statistic]:
    random = np.random.default_rng(seed)
    shapes = [(rows, each.width) if each.width else (rows,) for each in schema.fields]
    return [(random.random(shape) * 100).astype(each.dtype) for each, shape in zip(schema.fields, shapes, strict=True)]


def stream_of(schema: Schema, batches: list[list[Statistic]], *, end: bytes = END) -> bytes:
    pieces = [encode_schema(schema), *(bytes(piece) for each in batches for piece in encode_batch(schema, each))]
    return b"".join(pieces) + end


def rows_of(data: bytes, runs: list[BatchRun], schema: Schema, name: str) -> NDArray[Any]:
    place = [each.name for each in schema.fields].index(name)
    views = [column(memoryview(data), run, place, of=schema.fields[place]) for run in runs]
    return np.concatenate([view.reshape(-1, *view.shape[2:]) for view in views])


@given(schemas, st.lists(st.integers(1, 9), max_size=6))
def test_pyarrow_reads_what_we_write(schema: Schema, sizes: list[int]) -> None:
    batches = [columns_of(schema, rows, seed) for seed, rows in enumerate(sizes)]
    table = arrow.ipc.open_stream(stream_of(schema, batches)).read_all()
    table.validate(full=True)
    assert {name.decode(): text.decode() for name, text in (table.schema.metadata or {}).items()} == schema.metadata
    for place, each in enumerate(schema.fields):
        wanted = [row for batch in batches for row in batch[place].tolist()]
        assert table.column(each.name).to_pylist() == wanted


@given(schemas, st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_we_read_what_pyarrow_writes(schema: Schema, sizes: list[int]) -> None:
    batches = [columns_of(schema, rows, seed) for seed, rows in enumerate(sizes)]
    table = arrow.ipc.open_stream(stream_of(schema, batches)).read_all()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    scanner = Scanner()
    runs = scanner.scan(memoryview(data))
    assert scanner.schema == schema
    assert scanner.has_ended
    for place, each in enumerate(schema.fields):
        wanted = np.concatenate([batch[place] for batch in batches])
        assert np.array_equal(rows_of(data, runs, schema, each.name), wanted)


def test_equal_batches_are_one_run() -> None:
    batches = [columns_of(SMALL, rows, seed) for seed, rows in enumerate([5, 5, 5, 2, 5])]
    data = stream_of(SMALL, batches)
    runs = Scanner().scan(memoryview(data))
    assert [(run.count, run.layout.rows) for run in runs] == [(3, 5), (1, 2), (1, 5)]
    assert np.array_equal(rows_of(data, runs, SMALL, "statistics"), np.concatenate([each[2] for each in batches]))


def test_a_stream_that_grows_is_read_from_where_it_ended() -> None:
    batches = [columns_of(SMALL, 4, seed) for seed in range(6)]
    whole = stream_of(SMALL, batches)
    scanner = Scanner()
    runs: list[BatchRun] = []
    for size in range(0, len(whole) + 1, 7):
        runs = merge_runs(runs, scanner.scan(memoryview(whole)[:size]))
    runs = merge_runs(runs, scanner.scan(memoryview(whole)))
    assert [(run.count, run.layout.rows) for run in runs] == [(6, 4)]
    assert np.array_equal(rows_of(whole, runs, SMALL, "step"), np.concatenate([each[0] for each in batches]))
    assert scanner.has_ended


def test_a_stream_cut_at_any_byte_gives_every_complete_batch() -> None:
    batches = [columns_of(SMALL, rows, seed) for seed, rows in enumerate([3, 1, 4])]
    ends = [len(stream_of(SMALL, batches[:count], end=b"")) for count in range(4)]
    data = stream_of(SMALL, batches)
    for size in range(len(data)):
        scanner = Scanner()
        runs = scanner.scan(memoryview(data)[:size])
        complete = sum(size >= end for end in ends[1:])
        assert sum(run.rows for run in runs) == sum([3, 1, 4][:complete])
        assert scanner.damage == ""


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=40))
def test_damage_to_a_stream_costs_only_what_follows_it(place: int, noise: bytes) -> None:
    batches = [columns_of(SMALL, rows, seed) for seed, rows in enumerate([3, 1, 4])]
    whole = stream_of(SMALL, batches)
    place %= len(whole)
    data = (whole[:place] + noise + whole[place + len(noise) :])[: len(whole)]
    ends = [len(stream_of(SMALL, batches[:count], end=b"")) for count in range(4)]
    runs = Scanner().scan(memoryview(data))
    untouched = sum([3, 1, 4][: sum(place >= end for end in ends[1:])])
    assert sum(run.rows for run in runs) >= untouched


def test_zeros_that_a_power_cut_left_are_no_damage() -> None:
    batches = [columns_of(SMALL, 3)]
    scanner = Scanner()
    runs = scanner.scan(memoryview(stream_of(SMALL, batches, end=b"\0" * 4096)))
    assert [run.rows for run in runs] == [3]
    assert (scanner.damage, scanner.has_ended) == ("", False)


def test_other_bytes_than_a_stream_are_damaged_from_the_first() -> None:
    scanner = Scanner()
    assert scanner.scan(memoryview(b"PAR1" * 10)) == []
    assert "no Arrow message at byte 0" in scanner.damage


def test_a_column_of_another_length_is_a_mistake_of_ours() -> None:
    columns = columns_of(SMALL, 3)
    with pytest.raises(AssertionError, match="the column saved has 6 numbers in 3 rows"):
        encode_batch(SMALL, [columns[0], columns[1][:2], columns[2]])
