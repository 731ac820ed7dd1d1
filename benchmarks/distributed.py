"""A job of three ranks in the yard beside plain torchrun with three processes on the same machine.

    python -m benchmarks.distributed [--rounds N] [--count N]

How fast all-reduce and steps of a small network are once the ranks have met, and how long it takes until they have:
from the create call, or from the start of torchrun, to the line that rank 0 prints after init_process_group. The yard
and torchrun take turns, and which of them is first changes; the ratios are those of the pairs. Every process uses one
thread, as torchrun has it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import spread, write_results
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs

SCRIPT = SCRIPTS / "ranks_together.py"
RANKS = 3
REDUCED_BYTES = 16 << 20  # as the script has it
# The most that the yard may take, as a multiple of what torchrun takes.
GOALS = {"all_reduce_s": 1.03, "step_s": 1.03, "start_s": 1.0}

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a job of three ranks beside torchrun.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=60, help="how many all-reduces and steps each run takes")
    arguments = parser.parse_args()
    found = _measure(arguments.rounds, arguments.count)
    ratios = {name: [ours[name] / theirs[name] for ours, theirs in zip(*found.values(), strict=True)] for name in GOALS}
    _print(found, ratios)
    path = write_results("distributed", {"rounds": found, "ratios": ratios, "goals": GOALS})
    print(f"\nEvery round is in {path}.")


def _measure(rounds: int, count: int) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {"yard": [], "torchrun": []}
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
        open_jobs(Path(folder) / "yard", python=Path(sys.executable), settings={"slots": str(RANKS)}) as jobs,
    ):
        code = jobs.upload(SCRIPT)
        ways: dict[str, Callable[[], Figures]] = {
            "yard": lambda: _job(jobs, code, count),
            "torchrun": lambda: _torchrun(count),
        }
        for way in ways.values():  # the worker that ranks are forked from, and the caches of the disk
            way()
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            for name in list(ways) if number % 2 else reversed(ways):
                found[name].append(ways[name]())
    return found


def _job(jobs: Jobs, code: str, count: int) -> Figures:
    begun = time.time_ns()
    launch = {"sagemaker_torch_distributed_enabled": "true", "count": str(count)}
    name = jobs.create(SCRIPT, code, arguments=launch, instances=RANKS)
    jobs.finish(name)
    return _figures(jobs.lines(name), begun)


def _torchrun(count: int) -> Figures:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    begun = time.time_ns()
    run = subprocess.run([*command, SCRIPT, "--count", str(count)], stdout=subprocess.PIPE, text=True, check=True)
    return _figures(run.stdout.splitlines(), begun)


def _figures(lines: Sequence[str], begun_ns: int) -> Figures:
    told: dict[str, Any] = {}
    for line in lines:
        told |= json.loads(line) if line.startswith("{") else {}
    assert told["size"] == RANKS, f"{told['size']} ranks have met, not {RANKS}"
    started_s = (told["met_ns"] - begun_ns) / 1e9
    return {"all_reduce_s": told["all_reduce_s"], "step_s": told["step_s"], "start_s": started_s}


def _print(found: Mapping[str, Sequence[Figures]], ratios: Mapping[str, Sequence[float]]) -> None:
    print(f"\n{'seconds':16}" + "".join(f"{name:>26}" for name in found) + f"{'ratio':>10}{'goal':>8}")
    for figure, goal in GOALS.items():
        spreads = "".join(f"{spread([each[figure] for each in rounds])!s:>26}" for rounds in found.values())
        ratio = median(ratios[figure])
        print(f"{figure:16}{spreads}{ratio:10.3f}{goal:8}" + ("" if ratio <= goal else "   missed"))
    for name, rounds in found.items():
        gigabytes = REDUCED_BYTES / 1e9 / median(each["all_reduce_s"] for each in rounds)
        print(f"all-reduce of {REDUCED_BYTES >> 20} MiB, {name}: {gigabytes:.2f} GB/s")


if __name__ == "__main__":
    main()
