"""Short torch jobs, one alone and many on two slots, compared with bare `python train.py` and Ray.

    python -m benchmarks.short_jobs [--rounds N] [--jobs N] [--bare-jobs N] [--ray-jobs N]

A single job is measured from the create call to the final status, in turns with the same script run bare. Many jobs are
all created at once. Fewer bare and Ray jobs are run, because they take long; jobs per minute are compared.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import Spread, spread, write_results
from benchmarks.ray_cluster import ray_cluster
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs

SCRIPT = SCRIPTS / "train.py"
SLOTS = 2

# As a fraction of the time of a bare run.
GOAL_SHARE = 1 / 8
# As a multiple of the jobs per minute of bare runs.
GOAL_TIMES = 10.0


def main() -> None:
    arguments = _arguments()
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        with open_jobs(Path(folder) / "home", python=Path(sys.executable), settings={"slots": str(SLOTS)}) as jobs:
            seconds = _one_alone(jobs, Path(folder), rounds=arguments.rounds)
            rates["yard"] = _many_on_yard(jobs, arguments.jobs)
        rates["bare python"] = _many_bare(Path(folder), arguments.bare_jobs)
        if arguments.ray_jobs:
            rates["ray job submit"] = _many_on_ray(Path(folder), arguments.ray_jobs)
    spreads = {name: spread(values) for name, values in seconds.items()}
    _print(spreads, rates)
    plain = {name: asdict(each) for name, each in spreads.items()}
    counts = {"yard": arguments.jobs, "bare python": arguments.bare_jobs, "ray job submit": arguments.ray_jobs}
    path = write_results("short_jobs", {"seconds": seconds, "spreads": plain, "jobs": counts, "jobs per minute": rates})
    print(f"\nEvery round is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure short torch jobs beside bare Python and Ray.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=200, help="jobs on two slots of the yard")
    parser.add_argument("--bare-jobs", type=int, default=20, help="jobs for xargs -P2")
    parser.add_argument("--ray-jobs", type=int, default=10, help="jobs on two CPUs of Ray; 0 skips Ray")
    return parser.parse_args()


def _one_alone(jobs: Jobs, folder: Path, *, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"bare python": [], "yard, warm": []}
    code = jobs.upload(SCRIPT)
    # The first leaves a worker, from the second it learns what such jobs import.
    for _ in range(2):
        jobs.finish(jobs.create(SCRIPT, code))
    _settle(jobs, code)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        seconds["bare python"].append(_bare(folder))
        begun = time.perf_counter()
        jobs.finish(jobs.create(SCRIPT, code))
        seconds["yard, warm"].append(time.perf_counter() - begun)
    return seconds


def _settle(jobs: Jobs, code: str) -> None:
    """Run jobs until one is no longer much faster than the one before, so that the worker has learned all imports."""
    last = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        jobs.finish(jobs.create(SCRIPT, code))
        took = time.perf_counter() - begun
        if took > last / 2:
            return
        last = took


def _bare(folder: Path) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, SCRIPT], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def _many_on_yard(jobs: Jobs, count: int) -> float:
    code = jobs.upload(SCRIPT)
    begun = time.perf_counter()
    names = [jobs.create(SCRIPT, code) for _ in range(count)]
    # Jobs run in the order of creation.
    for name in names:
        jobs.finish(name)
    return _per_minute(count, begun)


def _many_bare(folder: Path, count: int) -> float:
    """Run each job in its own folder, because each leaves a model."""
    script = f'mkdir "run-$0" && cd "run-$0" && exec "{sys.executable}" "{SCRIPT}"'
    numbers = "\n".join(map(str, range(count)))
    begun = time.perf_counter()
    subprocess.run(
        ["xargs", f"-P{SLOTS}", "-n1", "sh", "-c", script],
        input=numbers,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return _per_minute(count, begun)


def _many_on_ray(folder: Path, count: int) -> float:
    script = f'cd "$(mktemp -d "{folder}/ray-XXXXXX")" && exec "{sys.executable}" "{SCRIPT}"'
    with ray_cluster(cpus=SLOTS) as ray:
        # Start everything that is lazy.
        ray.run(["true"])
        told = ray.run(["sh", "-c", script], count=count, cpus=1)
    return count / (int(told["ended"]) - int(told["submitted"])) * 60e9


def _per_minute(count: int, begun: float) -> float:
    return count / (time.perf_counter() - begun) * 60


def _print(spreads: Mapping[str, Spread], rates: Mapping[str, float]) -> None:
    bare = spreads["bare python"].median
    share = spreads["yard, warm"].median / bare
    times = rates["yard"] / rates["bare python"]
    print(f"\n{'a whole short job':24}{'s':>26}{'of bare':>10}{'goal':>8}")
    for name, measured in spreads.items():
        print(f"{name:24}{measured!s:>26}{measured.median / bare:>10.3f}", end="")
        print(f"{GOAL_SHARE:>8.3f}{'' if share <= GOAL_SHARE else '   missed'}" if name == "yard, warm" else "")
    print(f"\n{f'many on {SLOTS} slots':24}{'jobs a minute':>26}{'of bare':>10}{'goal':>8}")
    for name, rate in rates.items():
        print(f"{name:24}{rate:>26.1f}{rate / rates['bare python']:>10.2f}", end="")
        print(f"{GOAL_TIMES:>8.0f}{'' if times >= GOAL_TIMES else '   missed'}" if name == "yard" else "")


if __name__ == "__main__":
    main()
