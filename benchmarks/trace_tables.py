"""What it costs to read a large trace of torch.profiler into tables.

    python -m benchmarks.trace_tables [--rounds N] [--megabytes N] [--peer-megabytes N]

A training is recorded, and its steps are repeated until the trace has the wanted size. It is read by our reader, by our
reader with the analysis of what it read, and by the json module of the standard library, which makes no tables, each in
its own process. torch_tb_profiler, which takes minutes for such a trace, reads a smaller one, as the others do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measurement import spread, write_results
from tests.conformance.environments import interpreter
from tests.recorded_traces import record_training

# For 500 MB.
GOAL_S, GOAL_MB = 3.0, 1200.0
OURS = ("tables", "profile")
LABELS = {
    "tables": "our tables",
    "profile": "our tables and analysis",
    "json": "json, without tables",
    "tb_profiler": "torch_tb_profiler",
}

_SCRIPT = Path(__file__).parent / "scripts" / "read_trace.py"
_REPOSITORY = Path(__file__).parents[1]
# Members of events and of their arguments that are unique in a trace.
_IDENTIFIERS = ("External id", "Ev Idx", "Sequence number", "correlation", "Record function id")

Figures = dict[str, list[dict[str, float]]]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        recorded = Path(folder) / "recorded.pt.trace.json"
        record_training(recorded, steps=20)
        sizes = {"large": arguments.megabytes, "small": arguments.peer_megabytes}
        for name, megabytes in sizes.items():
            write_trace(recorded, Path(folder) / f"{name}.pt.trace.json", size_bytes=megabytes * 10**6)
        large = _measure(Path(folder), "large", ("tables", "profile", "json"), arguments.rounds)
        small = _measure(Path(folder), "small", tuple(LABELS), 1)
    _print(large, arguments.megabytes)
    _print(small, arguments.peer_megabytes)
    told = {**vars(arguments), "large": large, "small": small, "goal_cpu_s": GOAL_S, "goal_peak_mb": GOAL_MB}
    print(f"The goals for 500 MB are {GOAL_S:g} CPU seconds and {GOAL_MB:g} MB for the tables.")
    print(f"Every round is in {write_results('trace_tables', told)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure reading a large trace.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--peer-megabytes", type=int, default=40)
    return parser.parse_args()


def write_trace(recorded: Path, path: Path, *, size_bytes: int) -> None:
    """Write a trace of about a size, in which the recorded steps follow one another again and again."""
    document = json.loads(recorded.read_text())
    events: list[dict[str, Any]] = document.pop("traceEvents")
    timed = [event for event in events if event.get("ph") in ("X", "i")]
    named = [event for event in events if event.get("ph") == "M"]
    begin = min(event["ts"] for event in timed)
    span = max(event["ts"] + event.get("dur", 0) for event in timed) - begin
    with path.open("w") as file:
        file.write(json.dumps(document)[:-1] + ', "traceEvents": [\n')
        file.write(",\n".join(json.dumps(event) for event in named))
        for repetition in count():
            for event in timed:
                file.write(",\n" + json.dumps(_repeat(event, repetition, span)))
            if file.tell() >= size_bytes:
                break
        file.write("\n]}\n")


def _repeat(event: Mapping[str, Any], repetition: int, span: float) -> dict[str, Any]:
    copy = {**event, "ts": event["ts"] + repetition * span}
    if "args" in event:
        copy["args"] = {
            name: value + repetition * 10_000_000 if name in _IDENTIFIERS else value
            for name, value in event["args"].items()
        }
    prefix, _, number = event.get("name", "").partition("#")
    if prefix == "ProfilerStep" and number.isdigit():
        copy["name"] = f"{prefix}#{int(number) + repetition * 1000}"
    return copy


def _measure(folder: Path, name: str, ways: tuple[str, ...], rounds: int) -> Figures:
    found: Figures = {way: [] for way in ways}
    for number in range(rounds):
        print(f"{name} trace, round {number + 1} of {rounds}", flush=True)
        for way in ways:
            found[way].append(_run(way, folder / f"{name}.pt.trace.json", folder / "recorded.pt.trace.json"))
    return found


def _run(way: str, trace: Path, recorded: Path) -> dict[str, float]:
    python = Path(sys.executable) if way != "tb_profiler" else interpreter("torch-tb-profiler")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONPATH": str(_REPOSITORY / "src")} if way in OURS else {}
    command = [str(python), str(_SCRIPT), way, str(trace), str(recorded)]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(json.loads(told.splitlines()[-1]))


def _print(figures: Figures, megabytes: int) -> None:
    print(f"a trace of {megabytes} MB {'CPU s':>21} {'peak MB':>9} {'times ours':>11}")
    ours = spread([each["cpu_s"] for each in figures["tables"]]).median
    for way, rounds in figures.items():
        used = spread([each["cpu_s"] for each in rounds]).median
        peak = max(each["peak_mb"] for each in rounds)
        print(f"  {LABELS[way]:32} {used:9.2f} {peak:9.0f} {used / ours:11.1f}")


if __name__ == "__main__":
    main()
