"""Traces become tables, whole or torn, of torch or of others."""

import gzip
import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded_traces import (
    complete,
    document,
    kernel,
    launch,
    read_bytes,
    record_training,
    step,
    trace_of,
)
from trainyard.formats.profiles.traces import chunks
from trainyard.formats.profiles.traces.contract import DistributedFacts, EventKind
from trainyard.formats.profiles.traces.reader import read_trace

BASE_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "training.json"
    record_training(path, steps=4, workers=2)
    return path


def test_a_real_trace_gives_the_events_that_json_finds_in_it(recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    expected = [each for each in document["traceEvents"] if each["ph"] == "X"]
    with recorded.open("rb") as file:
        trace = read_trace(file)
    events, base = trace.events, document["baseTimeNanoseconds"]
    assert [events.name_of(row) for row in range(len(events))] == [each["name"] for each in expected]
    assert events.starts_ns.tolist() == [base + round(each["ts"] * 1000) for each in expected]
    assert events.durations_ns.tolist() == [round(each["dur"] * 1000) for each in expected]
    assert [events.category_texts[each] for each in events.categories] == [each["cat"] for each in expected]
    assert [events.track_list[each].thread for each in events.tracks] == [str(each["tid"]) for each in expected]
    shapes = [json.dumps(each["args"]["Input Dims"]) if "Input Dims" in each["args"] else "" for each in expected]
    assert [events.shape_texts[each] for each in events.shapes] == shapes
    assert events.external_ids.tolist() == [each["args"].get("External id", 0) for each in expected]
    assert trace.notes == ()
    assert (trace.producer, trace.is_complete, trace.is_unix_time) == ("PyTorch", True, True)


def test_a_real_trace_gives_its_steps_memory_and_data_loader(recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    with recorded.open("rb") as file:
        trace = read_trace(file)
    instants = [each["args"] for each in document["traceEvents"] if each["name"] == "[memory]"]
    assert trace.steps.numbers.tolist() == [2, 3, 4, 5]
    assert (np.diff(trace.steps.starts_ns) > 0).all()
    assert trace.memory.changes_bytes.tolist() == [each["Bytes"] for each in instants]
    assert trace.memory.allocated_bytes.tolist() == [each["Total Allocated"] for each in instants]
    assert trace.memory.addresses.tolist() == [each["Addr"] for each in instants]
    assert any(name.startswith("enumerate(DataLoader)#") for name in trace.events.texts)
    assert trace.has_shapes
    assert any("3, 16, 16" in text for text in trace.events.shape_texts)


def test_times_are_unix_times(recorded: Path) -> None:
    with recorded.open("rb") as file:
        trace = read_trace(file)
    written_ns = recorded.stat().st_mtime_ns
    assert 0 < written_ns - trace.events.starts_ns.max() < 600e9


def test_a_compressed_trace_gives_the_same_tables(recorded: Path) -> None:
    data = recorded.read_bytes()
    plain, compressed = read_bytes(data), read_bytes(gzip.compress(data))
    # Programs that compress in parallel write several parts.
    parts = read_bytes(gzip.compress(data[:1000]) + gzip.compress(data[1000:]))
    for other in (compressed, parts):
        assert other.notes == ()
        assert np.array_equal(plain.events.starts_ns, other.events.starts_ns)
        assert plain.events.texts == other.events.texts


@pytest.mark.parametrize("size", [100, 1000, 4096])
def test_blocks_of_any_size_give_the_same_events(recorded: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    data = recorded.read_bytes()[:200_000]
    whole = read_bytes(data)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", size)
    cut = read_bytes(data)
    assert np.array_equal(whole.events.starts_ns, cut.events.starts_ns)
    shapes = [[each.shape_texts[shape] for shape in each.shapes] for each in (whole.events, cut.events)]
    assert shapes[0] == shapes[1]
    assert cut.notes == whole.notes


def test_kernels_have_their_launch_parameters() -> None:
    arguments = {
        "grid": [8, 12, 1],
        "block": [128, 1, 1],
        "registers per thread": 128,
        "shared memory": 13056,
        "blocks per SM": 0.727,
        "est. achieved occupancy %": 5,
    }
    copy = complete("gpu_memcpy", "Memcpy HtoD", 9, 2, 7, pid=1, args={"device": 1, "stream": 20, "bytes": 64})
    trace = trace_of([kernel("gemm", 5, 3, 77, **arguments, **{"External id": 4}), copy])
    launches = trace.launches
    assert launches.events.tolist() == [0, 1]
    assert launches.devices.tolist() == [0, 1]
    assert launches.streams.tolist() == [7, 20]
    assert [launches.extent_texts[each] for each in launches.grids] == ["[8, 12, 1]", ""]
    assert [launches.extent_texts[each] for each in launches.blocks] == ["[128, 1, 1]", ""]
    assert launches.registers.tolist() == [128, -1]
    assert launches.shared_memory_bytes.tolist() == [13056, -1]
    assert launches.blocks_per_sm[0] == pytest.approx(0.727)
    assert np.isnan(launches.blocks_per_sm[1])
    assert launches.occupancy_percent[0] == 5
    assert launches.copied_bytes.tolist() == [-1, 64]
    assert trace.events.correlations.tolist() == [77, 0]
    assert trace.events.external_ids.tolist() == [4, 0]
    assert trace.events.kinds.tolist() == [EventKind.KERNEL, EventKind.MEMCPY]


def test_collectives_have_their_sizes() -> None:
    arguments = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 8,
        "dtype": "BFloat16",
        "Process Group Name": "0",
    }
    table = trace_of([step(0, 0, 9), kernel("ncclDevKernel_AllReduce", 5, 3, 1, **arguments)]).collectives
    assert table.events.tolist() == [1]
    assert [table.texts[each[0]] for each in (table.names, table.types, table.groups)] == ["allreduce", "BFloat16", "0"]
    assert (table.group_sizes[0], table.input_elements[0], table.output_elements[0]) == (8, 1024, 1024)


def test_devices_are_described() -> None:
    gpu = {
        "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150110011392, "computeMajor": 9, "computeMinor": 0,
        "numSms": 132, "maxThreadsPerMultiprocessor": 2048, "warpSize": 32,
    }  # fmt: skip
    (found,) = trace_of([step(0, 0, 1)], deviceProperties=[gpu]).gpus
    assert (found.number, found.name, found.memory_bytes) == (0, "NVIDIA H200", 150110011392)
    assert (found.compute_major, found.compute_minor, found.sm_count, found.threads_per_sm) == (9, 0, 132, 2048)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cuda_driver", EventKind.RUNTIME),
        ("xpu_runtime", EventKind.RUNTIME),
        ("Runtime", EventKind.RUNTIME),
        ("Operator", EventKind.OPERATOR),
        ("Memset", EventKind.MEMSET),
        ("gpu_user_annotation", EventKind.DEVICE_ANNOTATION),
        ("something new", EventKind.OTHER),
    ],
)
def test_categories_of_all_versions_have_one_kind(category: str, kind: EventKind) -> None:
    assert trace_of([complete(category, "x", 0, 1)]).events.kinds.tolist() == [kind]


def test_a_step_that_is_written_twice_counts_once() -> None:
    twice = [complete("cpu_op", "ProfilerStep#7", 5, 10), step(7, 5, 10), step(8, 15, 4)]
    device = complete("gpu_user_annotation", "ProfilerStep#8", 16, 9, 7)
    steps = trace_of([*twice, device]).steps
    assert steps.numbers.tolist() == [7, 8]
    assert (steps.ends_ns - steps.starts_ns).tolist() == [10_000, 4_000]


def test_old_traces_have_unix_times_without_a_base() -> None:
    start_us = 1_623_143_089_861_000
    data = json.dumps({"schemaVersion": 1, "traceEvents": [complete("Operator", "aten::mm", start_us, 7)]})
    trace = read_bytes(data.encode())
    assert trace.is_unix_time
    assert trace.events.starts_ns.tolist() == [start_us * 1000]


# Torn and strange files.


def test_every_torn_trace_gives_the_events_before_the_tear(recorded: Path) -> None:
    data = recorded.read_bytes()
    whole = read_bytes(data)
    for end in range(50_000, len(data) - 200, len(data) // 40):
        torn = read_bytes(data[:end])
        count = len(torn.events)
        assert np.array_equal(torn.events.starts_ns, whole.events.starts_ns[:count])
        ended = data[:end].count(b'"ph": "X"')
        # The last one may be the one that is torn.
        assert count in (ended, ended - 1)
        assert not torn.is_complete
        assert len(torn.notes) == 1
        assert torn.notes[0].startswith("The trace ends")


def test_a_torn_compressed_trace_gives_what_can_be_unpacked(recorded: Path) -> None:
    data = gzip.compress(recorded.read_bytes())
    trace = read_bytes(data[: len(data) // 2])
    assert len(trace.events) > 0
    assert not trace.is_complete
    assert trace.notes[0] == "The compressed data ends early; what is there was read."
    damaged = bytearray(data)
    damaged[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
    assert any("damaged" in note for note in read_bytes(bytes(damaged)).notes)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"", "The file is empty."),
        (b"  \n", "The file is empty."),
        (b"\x00" * 5000, "The file is not a trace: it has no traceEvents."),
        (b'{"loss": [1, 2, 3]}', "The file is not a trace: it has no traceEvents."),
        (b'"traceEvents"', "The file is not a trace: it has no traceEvents."),
        (b"\x89PNG\r\n\x1a\n", "The file is not a trace: it has no traceEvents."),
        (gzip.compress(b"hello", mtime=0), "The file is not a trace: it has no traceEvents."),
        (document([]), "The trace has no events with a duration."),
        (b"[]", "The trace has no events with a duration."),
    ],
)
def test_what_is_no_trace_gives_empty_tables_and_a_note(data: bytes, note: str) -> None:
    trace = read_bytes(data)
    assert len(trace.events) == len(trace.memory) == len(trace.steps) == 0
    assert list(trace.notes) == [note]


def test_a_list_of_other_things_is_said_to_be_damaged() -> None:
    trace = read_bytes(b"[1, 2, [3]]")
    assert len(trace.events) == 0
    assert any("damaged" in note for note in trace.notes)


def test_a_trace_of_tensorflow_is_read_and_named() -> None:
    names = [
        {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 3, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
        {"ph": "M", "pid": 3, "tid": 15, "name": "thread_name", "args": {"name": "TensorFlow Ops"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
    ]
    events = [
        {"ph": "X", "pid": 3, "tid": 14, "ts": 10.5, "dur": 4.0, "name": "volta_sgemm", "args": {"bytes": "12"}},
        {"ph": "X", "pid": 3, "tid": 14, "ts": 16.5, "dur": 1.0, "name": "MemcpyH2D"},
        {"ph": "X", "pid": 3, "tid": 15, "ts": 10.5, "dur": 4.0, "name": "MatMul"},
        {"ph": "X", "pid": 701, "tid": 2, "ts": 9.0, "dur": 2.5, "name": "MatMul", "args": {"group_id": "5"}},
        {},
    ]
    data = json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": names + events})
    trace = read_bytes(gzip.compress(data.encode()))
    kinds = [EventKind.KERNEL, EventKind.MEMCPY, EventKind.DEVICE_ANNOTATION, EventKind.OPERATOR]
    assert trace.events.kinds.tolist() == kinds
    assert trace.producer == "TensorFlow"
    assert not trace.is_unix_time
    assert trace.notes[0].startswith("This is a trace of TensorFlow")


def test_steps_and_devices_of_a_trace_of_tensorflow_are_found() -> None:
    def event(process: int, thread: int, start_us: float, duration_us: float, name: str, **arguments: str) -> object:
        times = {"ts": start_us, "dur": duration_us}
        return {"ph": "X", "pid": process, "tid": thread, **times, "name": name, "args": arguments}

    def name(process: int, what: str, text: str, **thread: int) -> object:
        return {"ph": "M", "pid": process, **thread, "name": what, "args": {"name": text}}

    # As TensorFlow writes it, with an empty event at the end.
    events = [
        name(2, "process_name", "/device:GPU:1"),
        name(2, "thread_name", "Stream #14(MatMul,MemcpyH2D)", tid=14),
        name(2, "thread_name", "Steps", tid=1),
        name(701, "process_name", "/host:CPU"),
        name(701, "thread_name", "python", tid=5),
        event(701, 5, 10.0, 100.0, "train", group_id="0", step_num="3", _r="1"),
        event(701, 5, 120.0, 90.0, "train", group_id="1", step_num="4", _r="1"),
        event(701, 5, 125.0, 20.0, "FunctionRun", step_num="4"),
        event(701, 5, 12.0, 20.0, "MatMul", long_name="model/MatMul:MatMul", tf_op="MatMul"),
        event(2, 14, 15.0, 20.125, "ampere_sgemm_128x64_nn", kernel_details="regs:122 grid:1,2,1 block:128,1,1"),
        event(2, 1, 10.0, 100.0, "0", group_id="0"),
        {},
    ]
    body = ",\n".join(json.dumps(each, separators=(",", ":")) for each in events)
    text = f'{{"displayTimeUnit":"ns","metadata":{{"highres-ticks":true}},\n"traceEvents":[\n{body}]}}'
    trace = read_bytes(gzip.compress(text.encode()))
    assert trace.is_complete
    assert trace.steps.numbers.tolist() == [3, 4]
    assert trace.steps.starts_ns.tolist() == [10_000, 120_000]
    assert trace.steps.ends_ns.tolist() == [110_000, 210_000]
    (kernel_row,) = trace.launches.events.tolist()
    assert trace.events.name_of(kernel_row) == "ampere_sgemm_128x64_nn"
    assert (trace.launches.devices.tolist(), trace.launches.streams.tolist()) == ([1], [14])
    assert trace.events.durations_ns[kernel_row] == 20_125


def test_an_array_of_events_with_aws_time_is_read() -> None:
    first = {
        "ph": "M",
        "name": "process_name",
        "pid": 0,
        "args": {"start_time_since_epoch_in_micros": 1_600_000_000_000_000},
    }
    trace = read_bytes(json.dumps([first, complete("", "Step:1", 250, 10)]).encode())
    assert trace.is_unix_time
    assert trace.events.starts_ns.tolist() == [1_600_000_000_000_250_000]
    assert trace.notes == (
        "The trace is not one of torch.profiler; its events count as operators only if they say so.",
    )


def test_numbers_and_paths_that_are_no_json_are_mended() -> None:
    first = kernel("gemm", 1, 2, 3, **{"blocks per SM": 1.5})
    data = document([first, complete("cpu_op", "C:PATH", 4, 5), step(1, 0, 20)])
    data = data.replace(b"1.5", b"-nan").replace(b"C:PATH", rb"C:\Windows\x")
    trace = read_bytes(data)
    assert trace.notes == ()
    assert trace.events.texts == ["gemm", r"C:\Windows\x", "ProfilerStep#1"]
    assert np.isnan(trace.launches.blocks_per_sm[0])


def test_a_damaged_event_is_left_out_and_counted() -> None:
    data = document([complete("cpu_op", f"op{number}", number, 1) for number in range(200)])
    data = data.replace(b'"name": "op77"', b'"name": "op77')
    trace = read_bytes(data)
    assert "op76" in trace.events.texts
    assert "op79" in trace.events.texts
    assert 198 <= len(trace.events) <= 199
    assert not trace.is_complete
    assert any("damaged" in note for note in trace.notes)


def test_members_of_unexpected_types_do_not_cost_the_event() -> None:
    odd = [
        complete("cpu_op", "a", 1, 2, args="none"),
        complete("cpu_op", "b", 3, 4, args={"External id": "7", "correlation": None, "Input Dims": {"x": [{}, {}]}}),
        complete("kernel", "c", 5, 6, args={"device": "zero", "stream": 1e99, "shared memory": 10**30}),
        {"ph": "X", "name": None, "ts": "8.5", "dur": None, "pid": None, "tid": 1.5, "cat": 3},
        {"ph": "X", "name": "no time"},
        complete("cpu_op", "far", 1e300, 1),
    ]
    trace = trace_of(odd)
    assert len(trace.events) == 4
    assert trace.events.starts_ns.tolist() == [BASE_NS + each for each in (1000, 3000, 5000, 8500)]
    assert trace.events.external_ids.tolist()[1] == 7
    assert any("2 events without a usable time were left out." in note for note in trace.notes)


def test_borders_inside_events_do_not_end_them() -> None:
    inner = {"list": [{"a": 1}, {"b": 2}], "text": '}, {"ph": "X"}, {'}
    events = [complete("cpu_op", f"op}},{{{number}", number, 1, args=inner) for number in range(500)]
    data = document(events)
    trace = read_bytes(data)
    assert len(trace.events) == 500
    assert trace.notes == ()


@pytest.mark.parametrize("size", [64, 333])
def test_borders_inside_events_do_not_end_them_at_the_end_of_a_block(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(chunks, "BLOCK_BYTES", size)
    test_borders_inside_events_do_not_end_them()


def test_a_trace_says_how_its_program_was_distributed() -> None:
    given = {"backend": "nccl", "rank": 3, "world_size": 8, "nccl_version": "2.27.5", "pg_config": [{}]}
    found = trace_of([step(0, 1, 2)], distributedInfo=given).distributed
    assert found == DistributedFacts("nccl", 3, 8, "2.27.5")


def test_what_follows_the_events_is_read() -> None:
    data = json.dumps({"traceEvents": [step(0, 1, 2)], "deviceProperties": [{"id": 3}, {"id": 4}], "schemaVersion": 1})
    assert [gpu.number for gpu in read_bytes(data.encode()).gpus] == [3, 4]


def test_a_trace_with_too_many_events_is_read_in_part() -> None:
    data = document([complete("cpu_op", "op", number, 1) for number in range(100)])
    trace = read_trace(io.BytesIO(data), max_events=10)
    assert not trace.is_complete
    assert any("more than 10 events" in note for note in trace.notes)


def test_memory_does_not_grow_with_what_is_not_kept() -> None:
    """The arguments that are not read are most of a trace; their size must not matter."""
    long = {"Concrete Inputs": ["x" * 20_000]}
    data = document([complete("cpu_op", "op", number, 1, args=long) for number in range(2000)])
    assert len(data) > 40e6
    file = io.BytesIO(data)
    tracemalloc.start()
    try:
        assert len(read_trace(file).events) == 2000
        assert tracemalloc.get_traced_memory()[1] < 6e6
    finally:
        tracemalloc.stop()


def test_a_compression_bomb_is_refused_in_bounded_memory() -> None:
    data = gzip.compress(b'{"a": "' + bytes(200 << 20))
    tracemalloc.start()
    try:
        assert read_bytes(data).notes == ("The file is not a trace: it has no traceEvents.",)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300), st.integers(0, 10_000), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_damage_raises(noise: bytes, place: int, is_compressed: bool) -> None:
    data = document([launch(1, 2, 3), kernel("k", 4, 5, 3), step(1, 0, 90)], deviceProperties=[{"id": 0}])
    data = gzip.compress(data) if is_compressed else data
    place %= len(data)
    trace = read_bytes(data[:place] + noise + data[place + len(noise) :])
    assert all(note.endswith(".") for note in trace.notes)
