"""What it costs to look at a large trace: to arrange it, and to cut out what a screen shows.

    python -m benchmarks.trace_timeline [--events N]

A trace with so many nested events on several threads is arranged into lanes, and parts of it are cut out, from all of
it to a few events. `benchmarks.dashboard` measures how a browser draws them.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measurement import write_results
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.timeline import Timeline

GOAL_PART_MS = 200.0
_THREADS, _DEPTH = 8, 10
_SCREEN = 2000  # pixels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        parts = measure_parts(Path(folder), arguments.events)
    for name, value in parts.items():
        print(f"{name:32} {value:10.1f}")
    print(f"The goal is a part in {GOAL_PART_MS:g} ms.")
    print(f"The figures are in {write_results('trace_timeline', {**vars(arguments), **parts})}.")


def measure_parts(folder: Path, events: int) -> dict[str, float]:
    """Return how long arranging takes, and the parts of a trace at several zooms."""
    path = folder / "large.pt.trace.json"
    write_nested_trace(path, events)
    with path.open("rb") as file:
        trace = read_trace(file, max_events=2 * events)
    figures: dict[str, float] = {"events": float(len(trace.events))}
    began = time.perf_counter()
    timeline = Timeline(trace)
    figures["arranging, ms"] = 1000 * (time.perf_counter() - began)
    whole_ns = timeline.end_ns - timeline.start_ns
    for share in (1.0, 0.1, 0.001):
        first, last = int(whole_ns * (0.5 - share / 2)), int(whole_ns * (0.5 + share / 2))
        began = time.perf_counter()
        part = timeline.cut(first, last, resolution_ns=max(1, (last - first) // _SCREEN), most=50_000)
        figures[f"part of {share:g}, ms"] = 1000 * (time.perf_counter() - began)
        figures[f"part of {share:g}, slices"] = float(len(part))
    began = time.perf_counter()
    timeline.find("operator_7", after=0, most=100)
    figures["search, ms"] = 1000 * (time.perf_counter() - began)
    return figures


def write_nested_trace(path: Path, events: int) -> None:
    """Write a trace whose threads have stacks of operators, each as long as its children."""
    leaf_us = 3.0
    stacks = events // (_THREADS * (_DEPTH + 10))
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        separator = ""
        for thread in range(_THREADS):
            for stack in range(stacks):
                start = stack * 10 * leaf_us * 1.2
                inner = [(start + depth * 0.01, 10 * leaf_us - depth * 0.02) for depth in range(_DEPTH)]
                leaves = [(start + 0.2 + leaf * leaf_us * 0.98, leaf_us * 0.9) for leaf in range(10)]
                for number, (at, duration) in enumerate(inner + leaves):
                    event: dict[str, Any] = {
                        "ph": "X",
                        "cat": "cpu_op",
                        "name": f"aten::operator_{(number + stack) % 97}",
                        "pid": 1,
                        "tid": thread,
                        "ts": 1.7e15 + round(at, 3),
                        "dur": round(duration, 3),
                    }
                    file.write(separator + json.dumps(event))
                    separator = ","
        file.write("]}")


if __name__ == "__main__":
    main()
