"""The time of steps is divided into roles that exclude each other and add up to it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded_traces import (
    Event,
    complete,
    kernel,
    launch,
    record_training,
    step,
    trace_of,
)
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.intervals import union_of
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace

BASE_NS = 1_700_000_000_000_000_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

KERNEL, MEMCPY, MEMSET, COMMUNICATION, RUNTIME, LOADING, CPU, OTHER = range(8)


def profiled(events: list[Event]) -> TraceProfile:
    return profile_trace(trace_of(events))


def microseconds(profile: TraceProfile) -> list[list[float]]:
    return [[float(each) / 1000 for each in row] for row in profile.roles.times_ns]


def test_each_moment_goes_to_the_first_role() -> None:
    events = [
        step(0, 0, 100),
        complete("user_annotation", LOADER, 0, 20),
        complete("cpu_op", "aten::stack", 10, 25),  # 20 to 35 is its own
        launch(30, 10, 1, operator=5),  # 35 to 40; and 30 to 35 before the operator
        kernel("gemm", 38, 20, 1),  # 38 to 58
        complete("gpu_memcpy", "Memcpy HtoD", 50, 15, 8, args={"device": 0}),  # 58 to 65
        complete("gpu_memset", "Memset", 60, 10, 9, args={"device": 0}),  # 65 to 70
        kernel("ncclDevKernel_AllReduce_Sum_f32", 66, 14, 2),  # 70 to 80
    ]
    (times,) = microseconds(profiled(events))
    assert times[KERNEL] == 20
    assert times[MEMCPY] == 7
    assert times[MEMSET] == 5
    assert times[COMMUNICATION] == 10
    assert times[RUNTIME] == 8
    assert times[LOADING] == 20
    assert times[CPU] == 10
    assert times[OTHER] == 20
    assert sum(times) == 100


def test_a_step_lasts_until_the_work_that_it_launched_has_ended() -> None:
    events = [
        step(3, 0, 10),
        step(4, 10, 10),
        launch(5, 1, 1),
        launch(15, 1, 2),
        kernel("a", 8, 7, 1),  # until 15, in the next step
        kernel("b", 16, 14, 2),  # until 30
    ]
    profile = profiled(events)
    windows = profile.windows
    assert windows.numbers.tolist() == [3, 4]
    assert ((windows.starts_ns - BASE_NS) / 1000).tolist() == [0, 15]
    assert ((windows.ends_ns - BASE_NS) / 1000).tolist() == [15, 30]
    # 5 to 6 is a call, 8 to 15 a kernel; then 15 to 16 a call, 16 to 30 a kernel.
    assert [row[KERNEL] for row in microseconds(profile)] == [7, 14]
    assert [row[RUNTIME] for row in microseconds(profile)] == [1, 1]
    assert [row[OTHER] for row in microseconds(profile)] == [7, 0]


def test_work_launched_before_the_first_step_is_not_of_it() -> None:
    events = [
        complete("cuda_runtime", "cudaLaunchKernel", 1, 1, args={"correlation": 1}),
        kernel("before", 3, 9, 1),  # until 12
        step(7, 10, 20),
        launch(15, 1, 2),
        kernel("own", 17, 3, 2),
    ]
    windows = profiled(events).windows
    assert ((windows.starts_ns - BASE_NS) / 1000).tolist() == [12]


def test_a_last_step_without_any_kernel_is_left_out_and_said_to_be() -> None:
    events = [step(1, 0, 10), launch(2, 1, 1), kernel("a", 4, 2, 1), step(2, 10, 10)]
    profile = profiled(events)
    assert profile.windows.numbers.tolist() == [1]
    assert profile.notes == ("The last 1 steps launched nothing on a device and were left out.",)


def test_without_marks_of_steps_the_whole_trace_is_one_window() -> None:
    profile = profiled([complete("cpu_op", "aten::mm", 10, 20), kernel("gemm", 25, 35, 1)])
    assert not profile.windows.are_steps
    assert microseconds(profile) == [[35, 0, 0, 0, 0, 0, 15, 0]]
    assert profile.notes[0].startswith("The trace marks no steps")


def test_a_loader_in_another_thread_holds_no_step_up() -> None:
    ahead = complete("user_annotation", LOADER, 2, 6, 99)
    (times,) = microseconds(profiled([step(0, 0, 10), ahead]))
    assert times[LOADING] == 0
    assert times[OTHER] == 10


def test_the_loader_of_torch_1_is_recognised() -> None:
    events = [complete("Operator", "ProfilerStep#1", 0, 10), complete("Operator", LOADER, 1, 4)]
    (times,) = microseconds(profiled(events))
    assert times[LOADING] == 4
    assert times[CPU] == 0


def test_an_empty_trace_has_no_windows() -> None:
    profile = profiled([])
    assert len(profile.windows) == 0
    assert sum(profile.roles.shares.values()) == 0
    assert len(profile.operators) == len(profile.kernels) == 0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> TraceProfile:
    path = tmp_path_factory.mktemp("traces") / "training.json"
    record_training(path, steps=4, workers=2)
    with path.open("rb") as file:
        return profile_trace(read_trace(file))


def test_the_steps_of_a_real_training_add_up(real: TraceProfile) -> None:
    roles = real.roles
    assert len(real.windows) == 4
    assert (roles.times_ns >= 0).all()
    assert roles.times_ns.sum(axis=1).tolist() == real.windows.durations_ns.tolist()
    assert (roles.times_ns[:, LOADING] > 0).all()
    assert (roles.times_ns[:3, CPU] > 0).all()
    assert not roles.times_ns[:, :LOADING].any()
    assert sum(roles.shares.values()) == pytest.approx(1)


def test_a_real_training_without_a_schedule_gets_answers(tmp_path: Path) -> None:
    path = tmp_path / "training.json"
    record_training(path, steps=2, is_scheduled=False)
    with path.open("rb") as file:
        profile = profile_trace(read_trace(file))
    assert profile.operators
    assert int(profile.roles.times_ns.sum()) == int(profile.windows.durations_ns.sum()) > 0
    assert profile.roles.times_ns[:, LOADING].sum() > 0


CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op", "user_annotation", "other")
NAMES = ("aten::mm", LOADER, "ncclKernel", "gloo:all_reduce", "cudaLaunchKernel")
TIMES = st.floats(0, 1000, allow_nan=False).map(lambda value: round(value, 3))
EVENTS = st.lists(
    st.tuples(st.sampled_from(CATEGORIES), st.sampled_from(NAMES), TIMES, TIMES, st.integers(1, 3), st.integers(0, 5)),
    max_size=40,
)


@given(EVENTS, st.lists(st.tuples(TIMES, TIMES), max_size=4))
def test_roles_add_up_to_the_wall_time_whatever_the_events(
    drawn: list[tuple[str, str, float, float, int, int]], steps: list[tuple[float, float]]
) -> None:
    events = [
        complete(category, name, start, duration, tid, args={"correlation": correlation, "device": 0})
        for category, name, start, duration, tid, correlation in drawn
    ]
    events += [step(number, start, duration) for number, (start, duration) in enumerate(steps)]
    profile = profiled(events)
    roles = profile.roles.times_ns
    assert (roles >= 0).all()
    assert roles.sum(axis=1).tolist() == profile.windows.durations_ns.tolist()
    starts, ends = profile.windows.starts_ns, profile.windows.ends_ns
    assert (ends >= starts).all()
    assert (starts[1:] >= ends[:-1]).all()
    overlap = profile.overlap
    assert (overlap.exposed_ns >= 0).all()
    assert (overlap.other_ns >= 0).all()


SETS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(SETS, st.integers(-5, 90), st.integers(0, 40))
def test_the_length_of_a_union_is_that_of_the_moments_in_it(
    drawn: list[tuple[int, int]], start: int, length: int
) -> None:
    starts = np.array([each[0] for each in drawn], np.int64)
    ends = starts + np.array([each[1] for each in drawn], np.int64)
    moments = {moment for begin, size in drawn for moment in range(begin, begin + size)}
    union = union_of(starts, ends)
    assert union.length == len(moments)
    window = np.array([start]), np.array([start + length])
    assert union.length_within(*window).tolist() == [len(moments & set(range(start, start + length)))]
