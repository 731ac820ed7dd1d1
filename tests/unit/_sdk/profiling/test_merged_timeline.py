"""One timeline of samples, steps and traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit._sdk.profiling.recorded_profile import (
    END_US,
    FIRST_STEP_US,
    START_US,
    STEP_EVERY_US,
    STEPS,
    write_profile,
    write_trace,
)
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import MergedTimeline, MergeUnit


def entries(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(path).read_text())["traceEvents"]
    return found


def test_samples_steps_and_traces_are_on_one_clock(recorded: Path, tmp_path: Path) -> None:
    merged = MergedTimeline(str(recorded), output_directory=str(tmp_path / "out"))
    path = merged.merge_timeline(START_US, END_US)
    assert path == f"{tmp_path}/out/{END_US}_merged_timeline.json"
    found = entries(path)
    kinds = {kind: [entry for entry in found if entry["ph"] == kind] for kind in "XCiM"}
    assert len(kinds["C"]) == 2400
    assert len(kinds["X"]) == 3 * STEPS + 2
    # The GPU of each instance was idle in half of its samples.
    assert len(kinds["i"]) == 240
    (operator,) = (entry for entry in kinds["X"] if entry["name"] == "aten::mm")
    (step,) = (entry for entry in kinds["X"] if entry.get("args") == {"step_num": "1"})
    assert step["ts"] <= operator["ts"] < step["ts"] + step["dur"]
    assert f'"ts": {FIRST_STEP_US + STEP_EVERY_US}.250, "dur": 50.500' in Path(path).read_text()
    assert merged.notes == []


def test_headings_and_threads_have_names_before_their_first_entry(recorded: Path, tmp_path: Path) -> None:
    path = MergedTimeline(str(recorded), output_directory=str(tmp_path)).merge_timeline(START_US, END_US)
    named: dict[int, str] = {}
    threads: set[tuple[int, int]] = set()
    for entry in entries(path):
        if entry["name"] == "process_name":
            named[entry["pid"]] = entry["args"]["name"]
        elif entry["name"] == "thread_name":
            threads.add((entry["pid"], entry["tid"]))
        else:
            assert entry["pid"] in named
            assert entry["ph"] != "X" or (entry["pid"], entry["tid"]) in threads
    order = [named[number] for number in sorted(named)]
    assert order[:3] == ["Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL", "Forward"]
    assert {"hardware of algo-1", "hardware of algo-2", "algo-1-worker_0: python 77"} <= set(order)


def test_a_part_can_be_chosen_by_steps_by_files_and_without_samples(recorded: Path, tmp_path: Path) -> None:
    merged = MergedTimeline(str(recorded), ["pythontimeline.json"], str(tmp_path))
    path = merged.merge_timeline(2, 4, unit=MergeUnit.STEP, sys_metrics_filter=None)
    slices = [entry for entry in entries(path) if entry["ph"] == "X"]
    assert {entry["args"]["step_num"] for entry in slices if "step_num" in entry.get("args", {})} == {"2", "3"}
    assert {entry["ph"] for entry in entries(path)} == {"X", "M"}
    with pytest.raises(InvalidRequest, match="There are no events of the steps 2 and 10000"):
        merged.merge_timeline(2, 10_000, unit="step")


def test_a_trace_that_is_torn_or_foreign_is_noted(tmp_path: Path) -> None:
    root = write_profile(tmp_path)
    trace = write_trace(root)
    trace.write_bytes(trace.read_bytes()[:40])
    other = trace.with_name("other.json")
    other.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": 1}]}))
    (trace.with_name("empty.pt.trace.json")).write_bytes(b"")
    merged = MergedTimeline(str(root))
    path = merged.merge_timeline(START_US, END_US)
    assert len([entry for entry in entries(path) if entry["ph"] == "X"]) == 3 * STEPS
    assert any("not on the clock" in note for note in merged.notes)
    assert not list(tmp_path.glob("*.partial"))
