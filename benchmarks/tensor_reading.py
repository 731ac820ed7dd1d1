"""Reading statistics of tensors: with `trainyard.trial`, with smdebug, and with TensorBoard's reader.

    python -m benchmarks.tensor_reading [--rounds N] [--steps N] [--tensors N]

Each library reads five statistics of each tensor at each step, in the format that it writes itself and in its own
process: one series, for the first time and again, then all series, for the first time and again. A process that reads
one series and ends is measured from outside, including its start and imports. All figures are CPU seconds; smdebug also
waits, which is not counted.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.measurement import write_results
from tests.conformance.environments import interpreter

READER = Path(__file__).with_name("tensor_reader.py")
PEERS = ("smdebug", "tensorboard")  # names of their environments too
OURS = "trainyard"

# How many times faster than smdebug ours must be.
GOALS = {"one_first": 50, "one_warm": 50, "all_first": 1000, "all_warm": 1000}
LABELS = {
    "process": "a process that reads one series",
    "import": "of it, imports",
    "one_first": "open, and read one series",
    "one_warm": "one series, again",
    "all_first": "all series, the first time",
    "all_warm": "all series, again",
}

Figures = dict[str, dict[str, list[float]]]  # by library and what is read


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        figures, sizes = _measure(Path(folder), arguments)
    _print(figures, sizes)
    told = {**vars(arguments), "cpu_seconds": figures, "bytes_per_step": sizes}
    print(f"\nEvery round is in {write_results('tensor_reading', told)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure reading statistics beside smdebug and TensorBoard.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tensors", type=int, default=150)
    return parser.parse_args()


def _measure(folder: Path, arguments: argparse.Namespace) -> tuple[Figures, dict[str, float]]:
    pythons = {OURS: Path(sys.executable)} | {peer: interpreter(peer) for peer in PEERS}
    for library, python in pythons.items():
        place = folder / library
        place.mkdir()
        _run(python, library, "write", place, arguments.steps, arguments.tensors)
    figures: Figures = {library: {what: [] for what in LABELS} for library in pythons}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
        sums = set()
        for library, python in pythons.items():
            before = _cpu_of_children()
            _run(python, library, "one", folder / library)
            figures[library]["process"].append(_cpu_of_children() - before)
            told = json.loads(_run(python, library, "read", folder / library))
            sums.add((round(told.pop("one_sum"), 6), round(told.pop("all_sum"), 3)))
            for what, seconds in told.items():
                figures[library][what].append(seconds)
        assert len(sums) == 1, f"not all have read the same: {sums}"
    return figures, {library: _bytes_below(folder / library) / arguments.steps for library in pythons}


def _run(python: Path, *arguments: object) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [str(python), str(READER), *(str(each) for each in arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _print(figures: Figures, sizes: Mapping[str, float]) -> None:
    print(f"\n{'milliseconds of the CPU':36}" + "".join(f"{each:>24}" for each in figures) + f"{'goal':>10}")
    for what, label in LABELS.items():
        middle = {library: median(told[what]) for library, told in figures.items()}
        cells = [f"{1e3 * middle[OURS]:24.3f}"]
        cells += [f"{1e3 * middle[peer]:14.3f} {_ratio(middle, peer):>9}" for peer in PEERS]
        goal = f"{GOALS[what]}x" if what in GOALS else ""
        print(f"{label:36}{''.join(cells)}{goal:>10}")
    print(f"{'bytes a step':36}" + "".join(f"{sizes[each]:24,.0f}" for each in figures))


def _ratio(middle: Mapping[str, float], peer: str) -> str:
    ratio = middle[peer] / max(middle[OURS], 1e-9)
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


if __name__ == "__main__":
    main()
