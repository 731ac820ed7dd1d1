"""Jobs on a warm Ray cluster: the yard's Ray engine beside `ray job submit` on the same cluster.

    python -m benchmarks.cluster [--rounds N] [--jobs N] [--ray-jobs N]

The cluster has three simulated machines with two cores each, and a fourth for its head, the yard and the clients. Each
has its own network and processes; they share the cores of this machine. It measures the time from the create call to
the first line of the script, or that of the last instance, and then short torch jobs that are all created at once. The
yard's job of three instances is an ordinary one; Ray's is a driver that requests a placement group with an actor on
each node.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import Spread, in_turns, spread, write_results
from benchmarks.ray_cluster import submit
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs
from tests.conformance.environments import interpreter
from tests.ray_cluster import ray_cluster

FIRST_LINE, TRAINING, GANG = SCRIPTS / "first_line.py", SCRIPTS / "train.py", SCRIPTS / "ray_gang.py"
NODES, CPUS = 3, 2
DASHBOARD = "http://127.0.0.1:8265"
INSIDE = "TRAINYARD_BENCH_ON_CLUSTER"

Measure = Callable[[], float]


def main() -> None:
    arguments = _arguments()
    if INSIDE in os.environ:
        _measure(rounds=arguments.rounds, jobs=arguments.jobs, ray_jobs=arguments.ray_jobs)
        return
    with ray_cluster(nodes=NODES, cpus=CPUS, of_head=("--include-dashboard=true",)) as cluster:
        command = cluster.head.command_beside(sys.executable, "-m", "benchmarks.cluster", *sys.argv[1:])
        subprocess.run(command, env={**os.environ, **cluster.settings, INSIDE: "1"}, check=True)


def _measure(*, rounds: int, jobs: int, ray_jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        with open_jobs(Path(folder) / "home", python=Path(sys.executable)) as yard:
            seconds = _starts(yard, rounds=rounds)
            rates = {"yard": _many_on_yard(yard, jobs)}
        if ray_jobs:
            rates["ray job submit"] = _many_on_ray(Path(folder), ray_jobs)
    spreads = {name: spread(values) for name, values in seconds.items()}
    _print(spreads, rates)
    plain = {name: asdict(each) for name, each in spreads.items()}
    counts = {"yard": jobs, "ray job submit": ray_jobs}
    told = {"seconds": seconds, "spreads": plain, "jobs": counts, "jobs per minute": rates}
    print(f"\nEvery round is in {write_results('cluster', told)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure jobs on a Ray cluster beside those that Ray submits.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=60, help="jobs on the yard")
    parser.add_argument("--ray-jobs", type=int, default=12, help="jobs on Ray; 0 skips them")
    return parser.parse_args()


def _starts(jobs: Jobs, *, rounds: int) -> dict[str, list[float]]:
    """Time starts in turns, after one of each for everything that starts lazily."""
    code = jobs.upload(FIRST_LINE)
    gang = [str(interpreter("ray")), str(GANG), str(NODES), str(CPUS)]
    measures: dict[str, Measure] = {
        "yard, 1 instance": lambda: _on_yard(jobs, code, instances=1),
        "ray job submit, 1": lambda: _on_ray([sys.executable, str(FIRST_LINE)], cpus=CPUS),
        f"yard, {NODES} instances": lambda: _on_yard(jobs, code, instances=NODES),
        f"ray job submit, {NODES}": lambda: _on_ray(gang, cpus=0),
    }
    for name in (f"yard, {NODES} instances", *measures):
        measures[name]()
    return in_turns(measures, rounds=rounds)


def _on_yard(jobs: Jobs, code: str, *, instances: int) -> float:
    begun = time.time_ns()
    name = jobs.create(FIRST_LINE, code, instances=instances)
    jobs.finish(name)
    return (max(int(line) for line in jobs.lines(name) if line.isdigit()) - begun) / 1e9


def _on_ray(command: list[str], *, cpus: int) -> float:
    told = submit(DASHBOARD, command, environment=_client_environment(), cpus=cpus)
    lines = [line for log in told["logs"] for line in log.split()]
    return (max(int(line) for line in lines if line.isdigit()) - int(told["submitted"])) / 1e9


def _many_on_yard(jobs: Jobs, count: int) -> float:
    code = jobs.upload(TRAINING)
    # Warm up: a worker on each node, and what such jobs import.
    for _ in range(NODES):
        for name in [jobs.create(TRAINING, code) for _ in range(NODES)]:
            jobs.finish(name)
    begun = time.perf_counter()
    for name in [jobs.create(TRAINING, code) for _ in range(count)]:
        jobs.finish(name)
    return count / (time.perf_counter() - begun) * 60


def _many_on_ray(folder: Path, count: int) -> float:
    """Run each job in its own folder, because each leaves a model."""
    script = f'cd "$(mktemp -d "{folder}/ray-XXXXXX")" && exec "{sys.executable}" "{TRAINING}"'
    told = submit(DASHBOARD, ["sh", "-c", script], environment=_client_environment(), count=count, cpus=CPUS)
    return count / (int(told["ended"]) - int(told["submitted"])) * 60e9


def _client_environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.environ["TRAINYARD_SERVER_RAY_TOKEN"],
    }


def _print(spreads: Mapping[str, Spread], rates: Mapping[str, float]) -> None:
    print(f"\n{'s to the first line':24}{'':>26}")
    for name, measured in spreads.items():
        print(f"{name:24}{measured!s:>26}")
    print(f"\n{f'short jobs, {NODES} at once':24}{'jobs a minute':>26}")
    for name, rate in rates.items():
        print(f"{name:24}{rate:>26.1f}")


if __name__ == "__main__":
    main()
