"""A profile in AWS's layout, made up: two instances with two cores and a GPU, and steps on one of them."""

import cProfile
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

START_S = 1_700_000_000 // 60 * 60
START_US = START_S * 1_000_000
END_US = START_US + 120_000_000
# Every half second a step of 400 ms, from 10 s on.
FIRST_STEP_US = START_US + 10_000_000
STEPS = 200
STEP_US, STEP_EVERY_US = 400_000, 500_000
EVAL_STEPS = 5
NODES = ("algo-1", "algo-2")


def write_profile(root: Path) -> Path:
    """Write the profile below a folder, and return the folder."""
    for minute in range(2):
        start_s = START_S + 60 * minute
        for node in NODES:
            lines = list(system_lines(node, start_s, 60))
            write(root / f"system/incremental/{hour(start_s)}/{start_s}.{node}.json", "\n".join(lines) + "\n")
    events = trace_events()
    for number in range(2):
        part = events[number * len(events) // 2 : (number + 1) * len(events) // 2]
        end_us = START_US + part[-1]["ts"] + part[-1]["dur"]
        name = f"{end_us}_77-algo-1_pythontimeline.json"
        write(root / f"framework/pevents/{hour(START_S)}/{name}", json.dumps([*headings(), *part]))
    return root


def system_lines(node: str, start_s: int, seconds: int) -> Iterator[str]:
    """Two samples a second: core 0 is busy, core 1 idle, and the GPU is used every second sample."""
    for number in range(2 * seconds):
        at = start_s + number / 2
        values = {
            ("cpu", "cpu0", "CPUUtilization"): 90.0,
            ("cpu", "cpu1", "CPUUtilization"): 10.0,
            ("gpu", "gpu0", "GPUUtilization"): 100.0 * (number % 2),
            ("memory", "MemoryUsedPercent", ""): 40.0,
            ("network", "ReceiveBytesPerSecond", "Algorithm"): 1e6,
        }
        for (kind, name, dimension), value in values.items():
            line = {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": node, "Timestamp": at}
            yield json.dumps(line)


def headings() -> list[dict[str, Any]]:
    first = {"start_time_since_epoch_in_micros": START_US}
    names = ("Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL", "Forward", "DataLoaderIter::GetNext")
    named = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}} for pid, name in enumerate(names, 1)
    ]
    return [{"name": "process_name", "ph": "M", "pid": 0, "args": first}, *named]


def trace_events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(STEPS):
        mode, pid = ("EVAL", 2) if number >= STEPS - EVAL_STEPS else ("TRAIN", 1)
        at = FIRST_STEP_US - START_US + number * STEP_EVERY_US
        step, loader = {"step_num": str(number)}, {"num_workers": 8, "pin_memory": False}
        # One wait is far longer than the others.
        wait = 90_000 if number == 50 else 30_000
        found += [
            span(f"Step:ModeKeys.{mode}", pid, at, STEP_US, step),
            span("SingleProcessDataLoaderIter::GetNext", 4, at + 1_000, wait, loader),
            span("Forward-SubModuleInternal", 3, at + 100_000, 100_000, {}),
        ]
    return found


def span(name: str, pid: int, at: int, duration: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": 5, "ts": at, "dur": duration, "args": arguments}


def write_trace(root: Path) -> Path:
    """Write a trace of torch of the second step, and return its path."""
    base_us = FIRST_STEP_US + STEP_EVERY_US
    events = [
        {"ph": "M", "name": "process_name", "pid": 77, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 77, "tid": 77, "ts": base_us + 0.25, "dur": 50.5},
        {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "pid": 77, "tid": 77, "ts": base_us + 60, "dur": 10},
    ]
    path = (
        root
        / f"framework/pytorch/detailed_profiling/{hour(START_S)}/000000001/algo-1-worker_0.{base_us}.pt.trace.json.gz"
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return path


def write_python_profiles(root: Path) -> Path:
    """Write profiles of Python functions of steps 9 and 10, and return their folder."""
    folder = root / "framework/pytorch/cProfile"
    for step in (9, 10):
        at_us = FIRST_STEP_US + step * STEP_EVERY_US
        window = f"train-{step}-stepstart-{at_us}_train-{step + 1}-stepstart-{at_us + STEP_US}"
        path = folder / "77-algo-1" / window / "python_stats"
        path.parent.mkdir(parents=True)
        profile = cProfile.Profile()
        profile.runcall(sorted, [3, 1, 2])
        profile.dump_stats(path)
    return folder


def hour(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y%m%d%H}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
