"""Memory: the curve of each device, what operators allocate, and what is held at the peak."""

from pathlib import Path

import numpy as np

from tests.recorded_traces import Event, complete, record_training, trace_of
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.memory import OUTSIDE
from trainyard.insight.profiling.traces.trace_profile import profile_trace

BASE_US = 1_700_000_000_000_000


def change(at_us: float, size: int, address: int, total: int, *, kind: int = 0, tid: int = 1) -> Event:
    arguments = {"Bytes": size, "Addr": address, "Device Type": kind, "Device Id": -1 if kind == 0 else 0}
    counts = {"Total Allocated": total, "Total Reserved": 4096 if kind else 0}
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 10, "tid": tid, "ts": at_us,
        "args": arguments | counts,
    }  # fmt: skip


def test_memory_is_told_by_device_and_operator() -> None:
    events = [
        complete("cpu_op", "aten::linear", 10, 50),
        complete("cpu_op", "aten::empty", 20, 10),
        complete("cpu_op", "aten::copy_", 70, 10),
        change(5, 100, 1, 100),  # outside
        change(25, 1000, 2, 1100),  # by empty, in linear
        change(40, 200, 3, 1300),  # by linear
        change(45, -1000, 2, 300),
        change(75, 64, 9, 64, kind=1),
        change(90, -64, 9, 0, kind=1),
        change(75, 7, 5, 307, tid=2),  # in a thread without operators
    ]
    cpu, gpu = profile_trace(trace_of(events)).memory
    assert (cpu.device, gpu.device) == ("CPU", "GPU0")
    assert (cpu.curve.times_us - BASE_US).tolist() == [5, 25, 40, 45, 75]
    assert cpu.curve.allocated_bytes.tolist() == [100, 1100, 1300, 300, 307]
    assert (cpu.curve.peak_bytes, cpu.curve.peak_at_us - BASE_US) == (1300, 40)
    assert gpu.curve.reserved_bytes.tolist() == [4096, 4096]
    assert cpu.held_at_peak == {"aten::empty": 1000, "aten::linear": 200, OUTSIDE: 100}
    empty, linear = cpu.operators
    assert (empty.name, empty.calls, empty.allocations, empty.self_allocated_bytes) == ("aten::empty", 1, 1, 1000)
    assert (empty.self_increase_bytes, empty.allocated_bytes, empty.increase_bytes) == (1000, 1000, 1000)
    assert (linear.name, linear.allocations, linear.self_allocated_bytes) == ("aten::linear", 1, 200)
    assert (linear.self_increase_bytes, linear.allocated_bytes, linear.increase_bytes) == (-800, 1200, 200)
    assert [(each.name, each.self_allocated_bytes) for each in gpu.operators] == [("aten::copy_", 64)]


def test_what_was_released_before_the_peak_is_not_held() -> None:
    events = [change(1, 10, 1, 10), change(2, -10, 1, 0), change(3, 30, 1, 30), change(4, 5, 2, 35)]
    (cpu,) = profile_trace(trace_of(events)).memory
    assert cpu.held_at_peak == {OUTSIDE: 35}


def test_a_trace_without_totals_is_summed() -> None:
    events = [change(1, 10, 1, 10), change(2, -4, 2, 0)]
    for event in events:
        del event["args"]["Total Allocated"]
    (cpu,) = profile_trace(trace_of(events)).memory
    assert cpu.curve.allocated_bytes.tolist() == [10, 6]


def test_the_memory_of_a_real_training_is_that_of_its_operators(tmp_path: Path) -> None:
    path = tmp_path / "training.json"
    record_training(path, steps=3)
    with path.open("rb") as file:
        trace = read_trace(file)
    (cpu,) = profile_trace(trace).memory
    changes = trace.memory.changes_bytes
    assert cpu.curve.peak_bytes > 0
    assert (np.diff(cpu.curve.times_us) >= 0).all()
    by_name = {each.name: each for each in cpu.operators}
    # Most tensors come from here.
    assert by_name["aten::empty"].self_allocated_bytes > 0
    own = sum(each.self_allocated_bytes for each in cpu.operators)
    assert own <= int(changes[changes > 0].sum())
    # Each batch has 8 images of 3 x 16 x 16 floats, and the network's first layer makes 8 x 14 x 14 of each.
    assert by_name["aten::convolution"].allocated_bytes >= 8 * 8 * 14 * 14 * 4
    assert sum(cpu.held_at_peak.values()) <= cpu.curve.peak_bytes + int(changes[changes > 0].max())
