"""The time from the create call to the first line of the script, beyond that of a bare `python script.py`.

    python -m benchmarks.start_latency [--rounds N] [--without-ray]

Cold jobs start their own Python, with the setting `warm` off; warm ones are forked from a worker that an earlier job of
the same user left. For several instances, the last one counts. The yards and a bare Python take turns. Ray comes last,
because even an idle Ray uses part of the machine. It also measures how long `fit` takes for a script of one second.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import Spread, in_turns, spread, write_results
from benchmarks.ray_cluster import ray_cluster
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs

SCRIPT = SCRIPTS / "first_line.py"
FIT = Path(__file__).with_name("fit_client.py")

GOALS = {"yard, cold": 0.3, "yard, warm": 0.1}  # seconds beyond a bare Python
FIT_GOAL_S = 2.0

Measure = Callable[[], float]


def main() -> None:
    arguments = _arguments()
    python = Path(sys.executable)
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        seconds = _measure_yards(Path(folder), python, rounds=arguments.rounds)
    if not arguments.without_ray:
        with ray_cluster(cpus=2) as ray:
            command = [str(python), str(SCRIPT)]
            seconds["ray job submit"] = [
                (int(told["logs"][0].split()[-1]) - told["submitted"]) / 1e9
                for told in (ray.run(command) for _ in range(arguments.rounds))
            ]
    spreads = {name: spread(values) for name, values in seconds.items()}
    _print(spreads)
    path = write_results("start_latency", {"seconds": seconds, "spreads": _plain(spreads), "goals": GOALS})
    print(f"\nEvery round is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the start of jobs beside a bare Python and Ray.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without-ray", action="store_true")
    return parser.parse_args()


def _measure_yards(folder: Path, python: Path, *, rounds: int) -> dict[str, list[float]]:
    with (
        open_jobs(folder / "cold", python=python, settings={"warm": "false"}) as cold,
        open_jobs(folder / "warm", python=python) as warm,
    ):
        measures: dict[str, Measure] = {
            "bare python": lambda: _bare(python),
            "yard, cold": _job(cold),
            "yard, warm": _job(warm),
            "yard, warm, isolated": _job(warm, is_isolated=True),
            "two instances, warm": _job(warm, instances=2),
            "the same, isolated": _job(warm, instances=2, is_isolated=True),
            "fit of one second": lambda: _fit(warm),
        }
        # Load everything that is lazy, and leave a worker.
        for name in ("yard, cold", "yard, warm", "the same, isolated"):
            measures[name]()
        return in_turns(measures, rounds=rounds)


def _bare(python: Path) -> float:
    begun = time.time_ns()
    printed = subprocess.run([python, SCRIPT], stdout=subprocess.PIPE, text=True, check=True).stdout
    return (int(printed) - begun) / 1e9


def _job(jobs: Jobs, *, instances: int = 1, is_isolated: bool = False) -> Measure:
    code = jobs.upload(SCRIPT)

    def measure() -> float:
        begun = time.time_ns()
        name = jobs.create(SCRIPT, code, instances=instances, is_isolated=is_isolated)
        jobs.finish(name)
        return (max(int(line) for line in jobs.lines(name) if line.isdigit()) - begun) / 1e9

    return measure


def _fit(jobs: Jobs) -> float:
    run = subprocess.run(
        [sys.executable, FIT, SCRIPTS / "one_second.py"],
        env=jobs.yard.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(run.stdout.splitlines()[-1])


def _print(spreads: Mapping[str, Spread]) -> None:
    bare = spreads["bare python"].median
    print(f"\n{'s to the first line':24}{'':>26}{'beyond bare':>14}{'goal':>8}")
    for name, measured in spreads.items():
        if name == "fit of one second":
            continue
        beyond, goal = measured.median - bare, GOALS.get(name)
        verdict = "" if goal is None or beyond <= goal else "   missed"
        print(f"{name:24}{measured!s:>26}{beyond:>14.3f}{goal or '':>8}{verdict}")
    fit = spreads["fit of one second"]
    print(f"\nfit of a script of one second returns after {fit} s; goal {FIT_GOAL_S:g} s", end="")
    print("" if fit.median <= FIT_GOAL_S else "   missed")


def _plain(spreads: Mapping[str, Spread]) -> dict[str, object]:
    return {name: asdict(each) for name, each in spreads.items()}


if __name__ == "__main__":
    main()
