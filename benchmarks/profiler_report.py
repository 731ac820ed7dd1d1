"""What writing the profiler report of a long job costs: CPU seconds, and the size of its files.

    python -m benchmarks.profiler_report [--rounds N] [--hours N] [--steps N]

The job runs for ten hours on one instance with 61 series of its hardware, sampled every second, has 100,000 rows of
step times and three traces of 1,000 steps. Its rules and its verdict are judged beforehand; that is not measured.
"""

import argparse
import gzip
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.measurement import write_results
from tests.profiles import at_us, gpu_hardware, job, step_times
from tests.reported_jobs import WAITING, checked_rules, gpu_trace, slow_loading_job, slow_loading_verdict
from trainyard.insight.profiling.report.contract import NOTEBOOK, PAGE, ReportSource
from trainyard.insight.profiling.report.writer import write_report

GOAL_S = 2.0
TRACES = 3
CORES = 12


def main() -> None:
    arguments = _arguments()
    source = _make_source(arguments.hours * 3600.0, arguments.steps)
    times, files = [], dict[str, bytes]()
    for _ in range(arguments.rounds):
        began = time.process_time()
        files = dict(write_report(source))
        times.append(time.process_time() - began)
    sizes = _sizes(files)
    print(f"{median(times):.2f} s of CPU time ({min(times):.2f} to {max(times):.2f}); the goal is {GOAL_S:g} s")
    print(", ".join(f"{name} {size / 1e3:,.0f} kB" for name, size in sizes.items()))
    values = {"seconds": times, "bytes": sizes, "goal_s": GOAL_S, **vars(arguments)}
    print(f"All of it is in {write_results('profiler_report', values)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure writing the profiler report of a long job.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=100_000)
    return parser.parse_args()


def _make_source(seconds: float, steps: int) -> ReportSource:
    known = slow_loading_job()
    hardware = gpu_hardware(seconds, gpus=2, cores=CORES, gpu_busy=55.0, starting_s=95.0)
    durations = np.full(steps, (seconds - 100) / steps)
    ranks = [
        replace(known.ranks[0], steps=step_times(seconds, step_s=durations, shares=WAITING, begin_s=95, noise=0.1))
    ]
    profile = job(seconds, hardware, *ranks, cores=CORES, gpus=2)
    traces = {f"worker_{number}.json.gz": gpu_trace(steps=1000) for number in range(TRACES)}
    written = at_us(seconds)
    return ReportSource(profile, slow_loading_verdict(), written, rules=checked_rules(profile), traces=traces)


def _sizes(files: Mapping[str, bytes]) -> dict[str, int]:
    page = files[PAGE]
    return {"page": len(page), "page, compressed": len(gzip.compress(page)), "notebook": len(files[NOTEBOOK])}


if __name__ == "__main__":
    main()
