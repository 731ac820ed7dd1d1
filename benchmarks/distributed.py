"""A job of three ranks in the yard, compared with torchrun with three processes on the same machine.

    python -m benchmarks.distributed [--rounds N] [--turns N]

It measures all-reduce and the steps of a small network once the ranks have met: a job and a torchrun run side by side
and take turns of a second, so that the turns of a pair are close together. It also measures how long the ranks take to
meet, from the create call or the start of torchrun to the line that rank 0 prints after init_process_group: one after
the other, also in turns, on a yard with a warm worker and on one without. Ratios are medians over the pairs, with their
quartiles. Every process uses one thread, as torchrun does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.measurement import spread, write_results
from benchmarks.scripts.ranks_together import REDUCED_BYTES, SLOT_S
from benchmarks.yard_jobs import BUCKET, SCRIPTS, Jobs, open_jobs

SCRIPT = SCRIPTS / "ranks_together.py"
RANKS = 3
# The limit for the yard, as a multiple of the time of torchrun.
GOALS = {"all_reduce_s": 1.03, "step_s": 1.03, "start_s": 1.0, "cold_start_s": 1.0}

# Time for both to start before the first turn.
_PREPARED_S = 20

Told = list[dict[str, Any]]  # by rank 0
Pairs = list[tuple[float, float]]  # yard, torchrun


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a job of three ranks beside torchrun.")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of starts")
    parser.add_argument("--turns", type=int, default=60, help="pairs of turns")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
        _yard(Path(folder) / "warm", warm="true") as warm,
        _yard(Path(folder) / "cold", warm="false") as cold,
    ):
        found = _starts(warm, cold, arguments.rounds) | _turns(warm, arguments.turns)
    _print(found)
    path = write_results("distributed", {"pairs": found, "goals": GOALS})
    print(f"\nEvery pair is in {path}.")


@contextmanager
def _yard(folder: Path, *, warm: str) -> Iterator[Jobs]:
    settings = {"slots": str(RANKS), "warm": warm}
    with open_jobs(folder, python=Path(sys.executable), settings=settings) as jobs:
        jobs.upload(SCRIPT)
        yield jobs


def _starts(warm: Jobs, cold: Jobs, rounds: int) -> dict[str, Pairs]:
    ways: dict[str, Callable[[], float]] = {
        "warm": lambda: _start_s(_job, warm),
        "cold": lambda: _start_s(_job, cold),
        "torchrun": lambda: _start_s(_torchrun),
    }
    # Warm up the worker that ranks are forked from, and the disk cache.
    for way in ways.values():
        way()
    took: list[dict[str, float]] = []
    for number in range(rounds):
        print(f"start {number + 1} of {rounds}", flush=True)
        took.append({name: ways[name]() for name in (ways if number % 2 else reversed(ways))})
    return {
        "start_s": [(each["warm"], each["torchrun"]) for each in took],
        "cold_start_s": [(each["cold"], each["torchrun"]) for each in took],
    }


def _turns(jobs: Jobs, turns: int) -> dict[str, Pairs]:
    """Return the pairs of turns of which neither was late."""
    print(f"{turns} turns of {SLOT_S:g} s each", flush=True)
    first = int((time.time() + _PREPARED_S) / SLOT_S)
    with ThreadPoolExecutor(2) as threads:
        ours = threads.submit(_job, jobs, turns=turns, first=first)
        theirs = threads.submit(_torchrun, turns=turns, first=first + 1)
        told = [[turn for turn in each.result()[1:] if not turn["is_late"]] for each in (ours, theirs)]
    by_slot = {turn["slot"]: turn for each in told for turn in each}
    both = [
        (by_slot[slot], by_slot[slot + 1])
        for slot in range(first, first + 2 * turns, 2)
        if {slot, slot + 1} <= by_slot.keys()
    ]
    return {name: [(our[name], their[name]) for our, their in both] for name in ("all_reduce_s", "step_s")}


def _start_s(way: Callable[..., Told], *arguments: Any) -> float:
    begun = time.time_ns()
    met_ns: int = way(*arguments)[0]["met_ns"]
    return (met_ns - begun) / 1e9


def _job(jobs: Jobs, **options: int) -> Told:
    launch = {"sagemaker_torch_distributed_enabled": "true"} | {name: str(value) for name, value in options.items()}
    name = jobs.create(SCRIPT, f"s3://{BUCKET}/{SCRIPT.stem}.tar.gz", arguments=launch, instances=RANKS)
    jobs.finish(name)
    return _parse_ranks(jobs.lines(name))


def _torchrun(**options: int) -> Told:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    # torchrun sets it too, with a warning.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([*command, SCRIPT, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return _parse_ranks(run.stdout.splitlines())


def _parse_ranks(lines: Sequence[str]) -> Told:
    told: Told = [json.loads(line) for line in lines if line.startswith("{")]
    assert told[0]["size"] == RANKS, f"{told[0]['size']} ranks have met, not {RANKS}"
    return told


def _print(found: Mapping[str, Pairs]) -> None:
    print(f"\n{'seconds':14}{'pairs':>6}{'yard':>28}{'torchrun':>28}{'ratio':>8}{'quartiles':>16}{'goal':>7}")
    for figure, goal in GOALS.items():
        ours, theirs = zip(*found[figure], strict=True)
        lower, ratio, upper = quantiles(our / their for our, their in found[figure])
        told = f"{figure:14}{len(ours):6}{spread(ours)!s:>28}{spread(theirs)!s:>28}"
        verdict = "" if ratio <= goal else "   missed"
        print(f"{told}{ratio:8.3f}{f'{lower:.3f} to {upper:.3f}':>16}{goal:7}{verdict}")
    for number, name in enumerate(("yard", "torchrun")):
        gigabytes = REDUCED_BYTES / 1e9 / median(pair[number] for pair in found["all_reduce_s"])
        print(f"all-reduce of {REDUCED_BYTES >> 20} MiB, {name}: {gigabytes:.2f} GB/s")


if __name__ == "__main__":
    main()
