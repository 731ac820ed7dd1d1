"""The operations on traces, with the real reading process, on a trace of a GPU, and on what is none."""

import json
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes
from trainyard.server.traces import reader as reading
from trainyard.server.traces.reader import TraceReader
from trainyard.wire.fault import Fault

GPU_TRACE = Path(__file__).parents[3] / "insight/profiling/traces/gpt2_h200.pt.trace.json.gz"
BELOW = "output/mnist/profiler-output/framework/pytorch"


def put(user: As, name: str, content: bytes) -> None:
    writer = user.yard.objects.writer(Location(BucketRef(user.account, "data"), f"{BELOW}/{name}"), Attributes())
    writer.write(content)
    writer.commit(now=NOON)


def ask(user: As, operation: str, **asked: Any) -> dict[str, Any]:
    return user("trainyard", operation, TrainingJobName="mnist", **asked)


@pytest.fixture
def traced(anna: As, tmp_path: Path) -> Iterator[As]:
    """A user whose yard reads traces, with a job that has one."""
    reader = TraceReader(anna.yard.objects, tmp_path / "cache" / "traces", limit=timedelta(seconds=60))
    user = replace(anna, yard=replace(anna.yard, traces=reader))
    create(user, "mnist", ProfilerConfig={"S3OutputPath": "s3://data/output"})
    put(user, "detailed_profiling/2026070112/7/algo-1-worker_3.17.pt.trace.json.gz", GPU_TRACE.read_bytes())
    yield user
    reader.close()
    assert not (tmp_path / "cache" / "traces").exists()


@pytest.fixture
def trace(traced: As) -> str:
    trace_id: str = ask(traced, "ListTraces")["Traces"][0]["TraceId"]
    return trace_id


def test_traces_are_listed_with_the_rank_and_the_step_that_they_are_of(traced: As) -> None:
    (listed,) = ask(traced, "ListTraces")["Traces"]
    assert (listed["Instance"], listed["Worker"], listed["Step"]) == ("algo-1", "worker_3", 7)
    assert listed["SizeInBytes"] == GPU_TRACE.stat().st_size
    assert not listed["IsOfProgram"]
    put(traced, "user/algo-2/data/host_rank1.1.pt.trace.json", b"{}")
    both = ask(traced, "ListTraces", MaxResults=1)
    assert (len(both["Traces"]), both["TotalCount"]) == (1, 2)
    own = next(each for each in ask(traced, "ListTraces")["Traces"] if each["IsOfProgram"])
    assert (own["Instance"], own["Worker"], own["Step"]) == ("algo-2", "worker_1", None)


def test_a_trace_is_described_in_figures(traced: As, trace: str) -> None:
    told = ask(traced, "DescribeTrace", TraceId=trace, MaxResults=5)
    assert [each["Number"] for each in told["Steps"]] == [1, 2, 3]
    assert sum(each["Share"] for each in told["Roles"]) == pytest.approx(1)
    step = told["Steps"][0]
    assert sum(step["RoleSeconds"].values()) == pytest.approx((step["End"] - step["Start"]) / 1e9)
    assert [each["IsDevice"] for each in told["Lanes"]] == [False, False, True]
    assert sum(each["SliceCount"] for each in told["Lanes"]) == told["SliceCount"]
    assert len(told["Operators"]) == len(told["Kernels"]) == 5
    assert told["KernelCount"] > 5
    assert told["Kernels"][0]["TotalSeconds"] >= told["Kernels"][1]["TotalSeconds"] > 0
    assert "H200" in told["Gpus"][0]["Name"]
    json.dumps({name: value for name, value in told.items() if name != "StartTime"})


def test_the_memory_of_a_trace_is_a_curve_with_its_peak_and_what_was_held_then(traced: As) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1, "tid": 1, "ts": 1e15, "dur": 100}
    levels = [100, 400, 300, 0]
    changes = [level - before for before, level in zip([0, *levels], levels, strict=False)]
    memory = [
        {
            "ph": "i",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": 1e15 + 10 * number,
            "args": {"Bytes": change, "Total Allocated": level, "Addr": abs(change), "Device Type": 0, "Device Id": -1},
        }
        for number, (change, level) in enumerate(zip(changes, levels, strict=True), 1)
    ]
    put(traced, "user/algo-1/data/memory_trace.json", json.dumps({"traceEvents": [operator, *memory]}).encode())
    (own,) = [each for each in ask(traced, "ListTraces")["Traces"] if each["IsOfProgram"]]
    (cpu,) = ask(traced, "DescribeTrace", TraceId=own["TraceId"])["Memory"]
    assert (cpu["Device"], cpu["PeakBytes"], cpu["PeakAt"]) == ("CPU", 400, 20_000)
    assert {each["Name"]: each["SizeInBytes"] for each in cpu["HeldAtPeak"]} == {"aten::empty": 400}
    times, held = (array("d", cpu[name]) for name in ("Times", "Allocated"))
    assert len(times) == len(held)
    assert (max(held), held[-1]) == (400, 300)
    assert 10_000 <= min(times) <= max(times) <= 40_000
    assert cpu["Reserved"] == b""


def test_functions_of_python_have_times_of_their_own(traced: As) -> None:
    calls = [("train.py(3): main", 0, 100), ("train.py(9): load", 10, 40), ("train.py(9): load", 20, 10)]
    events = [
        {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": 1e15 + start, "dur": duration}
        for name, start, duration in calls
    ]
    put(traced, "user/algo-1/data/stacks_trace.json", json.dumps({"traceEvents": events}).encode())
    (own,) = [each for each in ask(traced, "ListTraces")["Traces"] if each["IsOfProgram"]]
    told = ask(traced, "DescribeTrace", TraceId=own["TraceId"], MaxResults=1)
    assert (len(told["PythonFunctions"]), told["PythonFunctionCount"]) == (1, 2)
    main, load = ask(traced, "DescribeTrace", TraceId=own["TraceId"])["PythonFunctions"]
    assert (main["Name"], main["Calls"]) == ("train.py(3): main", 1)
    assert (main["TotalSeconds"], main["SelfSeconds"]) == pytest.approx((100e-6, 60e-6))
    # The second call is part of the first.
    assert (load["Calls"], load["TotalSeconds"], load["SelfSeconds"]) == pytest.approx((2, 40e-6, 40e-6))


def slices(user: As, trace: str, **asked: Any) -> list[tuple[float, ...]]:
    """Return lane, depth, start, duration, count and number of each slice."""
    told = ask(user, "ReadTraceSlices", TraceId=trace, **asked)
    kinds = {"Starts": "d", "Durations": "d"}
    names = ("LaneNumbers", "Depths", "Starts", "Durations", "Counts", "SliceNumbers")
    return list(zip(*(array(kinds.get(name, "i"), told[name]) for name in names), strict=True))


def test_a_part_has_every_long_slice_and_stands_for_all_others(traced: As, trace: str) -> None:
    told = ask(traced, "DescribeTrace", TraceId=trace)
    everything = slices(traced, trace, Resolution=1)
    assert len(everything) == sum(each[4] for each in everything) == told["SliceCount"]
    coarse = slices(traced, trace, Resolution=100_000)
    assert len(coarse) < len(everything) / 3
    assert sum(each[4] for each in coarse) == told["SliceCount"]
    long = {each[5] for each in everything if each[3] >= 100_000}
    assert long
    assert long <= {each[5] for each in coarse}
    assert all(number == -1 for *_, count, number in coarse if count > 1)
    bounded = ask(traced, "ReadTraceSlices", TraceId=trace, MaxSlices=200)
    assert len(array("i", bounded["Counts"])) <= 200
    assert bounded["Resolution"] > told["Duration"] // 1000


def test_slices_of_a_row_do_not_overlap_and_lie_in_their_parents(traced: As, trace: str) -> None:
    rows: dict[tuple[float, float], list[tuple[float, ...]]] = {}
    for each in slices(traced, trace, Resolution=1):
        rows.setdefault((each[0], each[1]), []).append(each)
    for row in rows.values():
        assert all(one[2] + one[3] <= other[2] for one, other in pairwise(row))
    inner = next(each for each in slices(traced, trace, Resolution=1) if each[0] == 0 and each[1] == 3)
    details = ask(traced, "DescribeTraceSlice", TraceId=trace, SliceNumber=int(inner[5]))
    assert [each["Depth"] for each in details["Parents"]] == [0, 1, 2]
    for parent in details["Parents"]:
        assert parent["Start"] <= inner[2]
        assert parent["Start"] + parent["Duration"] >= inner[2] + inner[3]


def test_only_what_lies_in_the_stretch_is_sent(traced: As, trace: str) -> None:
    step = ask(traced, "DescribeTrace", TraceId=trace)["Steps"][1]
    part = slices(traced, trace, Start=step["Start"], End=step["End"], Resolution=1)
    assert part
    assert all(start < step["End"] and start + duration >= step["Start"] for _, _, start, duration, _, _ in part)


def test_slices_are_found_by_a_part_of_their_names_page_by_page(traced: As, trace: str) -> None:
    first = ask(traced, "SearchTraceSlices", TraceId=trace, Text="CUDALAUNCH", MaxResults=200)
    rest = ask(traced, "SearchTraceSlices", TraceId=trace, Text="cudalaunch", NextToken=first["NextToken"])
    found = first["Slices"] + rest["Slices"]
    assert len(found) == min(300, first["TotalCount"])
    assert [each["Start"] for each in found] == sorted(each["Start"] for each in found)
    assert {each["Name"] for each in found} <= {"cudaLaunchKernel", "cudaLaunchKernelExC"}
    nothing = ask(traced, "SearchTraceSlices", TraceId=trace, Text="no such thing")
    assert (nothing["Slices"], nothing["TotalCount"], nothing["TotalDuration"]) == ([], 0, 0)


def test_a_call_knows_what_it_launched_and_a_kernel_what_launched_it(traced: As, trace: str) -> None:
    (call,) = ask(traced, "SearchTraceSlices", TraceId=trace, Text="cudaLaunchKernel", MaxResults=1)["Slices"]
    (launched,) = ask(traced, "DescribeTraceSlice", TraceId=trace, SliceNumber=call["Number"])["Related"]
    kernel = ask(traced, "DescribeTraceSlice", TraceId=trace, SliceNumber=launched["Slice"]["Number"])
    assert (launched["Relation"], kernel["Kind"]) == ("launches", "kernel")
    assert [each["Slice"]["Number"] for each in kernel["Related"]] == [call["Number"]]
    facts = {each["Name"]: each["Value"] for each in kernel["Facts"]}
    assert {"Device", "Stream", "Grid", "Block", "Registers per thread"} <= set(facts)
    assert kernel["SameNameCount"] >= 1
    with pytest.raises(Fault, match="There is no slice"):
        ask(traced, "DescribeTraceSlice", TraceId=trace, SliceNumber=10**6)


def test_a_trace_is_read_once(traced: As, trace: str, tmp_path: Path) -> None:
    ask(traced, "DescribeTrace", TraceId=trace)
    (tables,) = (tmp_path / "cache" / "traces").iterdir()
    written = tables.stat().st_ino
    again = TraceReader(traced.yard.objects, tmp_path / "cache" / "traces")
    user = replace(traced, yard=replace(traced.yard, traces=again))
    assert ask(user, "DescribeTrace", TraceId=trace)["KernelCount"] > 5
    assert tables.stat().st_ino == written
    again.close()


def test_what_is_no_trace_is_described_as_empty_with_the_reason(traced: As) -> None:
    put(traced, "user/algo-1/data/my_trace.json", b"<html>")
    (wrong,) = [each for each in ask(traced, "ListTraces")["Traces"] if each["IsOfProgram"]]
    told = ask(traced, "DescribeTrace", TraceId=wrong["TraceId"])
    assert (told["SliceCount"], told["Operators"], told["Lanes"]) == (0, [], [])
    assert any("not a trace" in note for note in told["Notes"])
    assert slices(traced, wrong["TraceId"]) == []


def test_a_trace_that_ends_the_process_is_let_rest(traced: As, trace: str, tmp_path: Path) -> None:
    dying = TraceReader(traced.yard.objects, tmp_path / "dying", command=(sys.executable, "-c", "raise SystemExit(1)"))
    user = replace(traced, yard=replace(traced.yard, traces=dying))
    for reason in ("ended without an answer", "tries again in a minute"):
        with pytest.raises(Fault, match=reason):
            ask(user, "DescribeTrace", TraceId=trace)
    dying.close()


def test_a_trace_that_is_too_large_is_refused(traced: As, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TRACE_BYTES", 1000)
    with pytest.raises(Fault, match="more than the yard reads"):
        ask(traced, "DescribeTrace", TraceId=trace)


def test_others_do_not_see_the_traces(traced: As, trace: str, accounts: Accounts) -> None:
    ben = replace(accounts.ben, yard=traced.yard)
    for operation, asked in (("ListTraces", {}), ("DescribeTrace", {"TraceId": trace})):
        with pytest.raises(Fault, match="mnist"):
            ask(ben, operation, **asked)
    with pytest.raises(Fault, match="There is no trace"):
        ask(traced, "DescribeTrace", TraceId="0" * 32)
