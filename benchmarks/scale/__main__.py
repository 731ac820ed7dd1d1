"""A day of a large cluster: a real yard on simulated nodes.

    python -m benchmarks.scale [--nodes N] [--jobs N] [--load PART] [--seed N]

Records, control and services are the yard's own; nodes, agents and time are simulated. Ten thousand jobs of five
accounts with 1 to 100 instances, with and without GPUs, spot or on demand, arrive in a day, five hundred of them at
once; nodes fail and come back. The result is compared with first come, first served, and with a cluster that is one
large node. Times of calls are processor times.
"""

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import write_results
from benchmarks.scale.living import Day, live
from benchmarks.scale.promises import broken_promises
from benchmarks.scale.references import first_come, least_end_s, one_large_node
from benchmarks.scale.workload import Planned, nodes, outages, workload
from trainyard.engines.catalog import Catalog, InstanceType
from trainyard.engines.contract import Node
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.control.instances.demand import PREEMPTED

# Per placed job.
GOAL_MS = 10.0
SIZES = {"1": (1, 1), "2 to 16": (2, 16), "17 to 48": (17, 48), "49 to 100": (49, 100)}

Waits = Mapping[str, float]


def main() -> None:
    arguments = _arguments()
    # Warnings about failing nodes.
    logging.disable(logging.WARNING)
    cluster, catalog = nodes(arguments.nodes), Catalog.read(Path("no such file"))
    types = {name: catalog[name] for name in _TYPES}
    planned = workload(arguments.jobs, cluster=cluster, types=types, load=arguments.load, seed=arguments.seed)
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        day = live(Path(folder), planned, cluster=cluster, outages=outages(cluster, seed=arguments.seed), tell=print)
    waits = {
        "yard": {name: (job.attempts[0].placed_at - job.created_at).total_seconds() for name, job in day.jobs.items()},
        "first come": first_come(planned, cluster, types).waits_s,
        "no borders": one_large_node(planned, cluster, types).waits_s,
    }
    figures = _figures(day, planned, cluster=cluster, types=types) | {"waits_s": _waits(waits, planned)}
    _print(figures)
    path = write_results("scale", {"asked": vars(arguments), **figures})
    print(f"\nAll of it is in {path}.")
    broken = broken_promises(day.jobs, planned, cluster)
    for sentence in broken[:20]:
        print(f"BROKEN: {sentence}")
    raise SystemExit(1 if broken else 0)


_TYPES = ("ml.m5.large", "ml.m5.xlarge", "ml.c5.4xlarge", "ml.g4dn.xlarge", "ml.p3.8xlarge")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Live through a day of a simulated cluster.")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument(
        "--load", type=float, default=0.85, help="fraction of the cluster's capacity that the jobs of a day demand"
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _figures(
    day: Day, planned: Sequence[Planned], *, cluster: Sequence[Node], types: Mapping[str, InstanceType]
) -> dict[str, Any]:
    jobs = list(day.jobs.values())
    attempts = [attempt for job in jobs for attempt in job.attempts]
    ended_s = max((job.ended_at or day.began_at) - day.began_at for job in jobs).total_seconds()
    return {
        "real_s": day.real_s,
        "jobs": len(jobs),
        "instances": sum(each.count for each in planned),
        "ended": _count_by(jobs, lambda job: job.secondary.value),
        "attempts": len(attempts),
        "gave_way": sum(1 for attempt in attempts if attempt.interruption == PREEMPTED),
        "nodes_lost": sum(1 for attempt in attempts if "went away" in f"{attempt.interruption}{attempt.failure}"),
        "placing_ms": _spread(day.placing),
        "calls_ms": {name: _spread(took) for name, took in day.took.items()},
        "asked_ms": {name: _spread(took) for name, took in day.asked.items()},
        "create_ms": _spread(day.created),
        "ended_s": ended_s,
        "least_end_s": least_end_s(planned, cluster, types),
        "gpus_busy": _busy(jobs, cluster, of_node=lambda node: len(node.gpus), of_share=lambda gpus, _: gpus),
        "cores_busy": _busy(jobs, cluster, of_node=lambda node: node.cpus, of_share=lambda _, cpus: cpus),
    }


def _count_by(jobs: Sequence[TrainingJob], what: Callable[[TrainingJob], str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in jobs:
        found[what(job)] = found.get(what(job), 0) + 1
    return found


def _busy(
    jobs: Sequence[TrainingJob],
    cluster: Sequence[Node],
    *,
    of_node: Callable[[Node], float],
    of_share: Callable[[int, float], float],
) -> float:
    """Return the fraction of the capacity that jobs used, from the first job to the last."""
    used = 0.0
    for job in jobs:
        for attempt in job.attempts:
            until = attempt.ended_at or job.ended_at or attempt.placed_at
            seconds = (until - attempt.placed_at).total_seconds()
            shares = (instance.share for instance in attempt.instances)
            used += seconds * sum(of_share(len(share.gpus), share.cpus or 0.0) for share in shares)
    began, ended = min(job.created_at for job in jobs), max(job.ended_at or job.created_at for job in jobs)
    return used / (sum(map(of_node, cluster)) * (ended - began).total_seconds())


def _waits(waits: Mapping[str, Waits], planned: Sequence[Planned]) -> dict[str, dict[str, dict[str, float]]]:
    """Return waiting times by number of instances and by account. Spot jobs are left out; they run after all others."""
    firm = [each for each in planned if not each.is_spot]
    groups = {f"{size} instances": _between(firm, *ends) for size, ends in SIZES.items()}
    groups |= {account: [each.name for each in firm if each.account == account] for account in _accounts(firm)}
    groups |= {"not spot": [each.name for each in firm], "spot": [each.name for each in planned if each.is_spot]}
    return {
        group: {way: _spread([found[name] for name in names]) for way, found in waits.items()}
        for group, names in groups.items()
        if names
    }


def _between(planned: Sequence[Planned], low: int, high: int) -> list[str]:
    return [each.name for each in planned if low <= each.count <= high]


def _accounts(planned: Sequence[Planned]) -> list[str]:
    return sorted({each.account for each in planned})


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "mean": statistics.fmean(ordered),
        "median": ordered[len(ordered) // 2],
        "p95": ordered[int(len(ordered) * 0.95)],
        "p99": ordered[int(len(ordered) * 0.99)],
        "most": ordered[-1],
    }


def _print(figures: Mapping[str, Any]) -> None:
    placing = figures["placing_ms"]
    print(f"\n{figures['jobs']:,} jobs of {figures['instances']:,} instances in {figures['real_s']:.0f} s; ", end="")
    print(", ".join(f"{count:,} {status}" for status, count in figures["ended"].items()))
    print(f"{figures['attempts']:,} attempts; {figures['gave_way']:,} gave way, {figures['nodes_lost']:,} lost a node")
    print(f"busy: GPUs {figures['gpus_busy']:.0%}, cores {figures['cores_busy']:.0%}; all ended after ", end="")
    print(f"{figures['ended_s'] / 3600:.1f} h, at least {figures['least_end_s'] / 3600:.1f} h are needed")
    is_met = "met" if placing["mean"] <= GOAL_MS else "NOT met"
    print(f"\nms of the processor for each job that is placed: {_line(placing)}  goal {GOAL_MS:g}: {is_met}")
    for name, what in {"next_placements": "a scheduling pass", "place": "storing a placement"}.items():
        print(f"ms of {what}: {_line(figures['calls_ms'][name])}")
    for name, took in {**figures["asked_ms"], "CreateTrainingJob": figures["create_ms"]}.items():
        print(f"ms of {name}: {_line(took)}")
    print(f"\n{'seconds waited':18} {'way':11} {'median':>9} {'mean':>9} {'p95':>9} {'most':>9}")
    for row in _rows(figures["waits_s"]):
        print(row)


def _line(took: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {took[name]:.2f}" for name in ("mean", "median", "p99", "most"))


def _rows(waits: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    for group, ways in waits.items():
        for way, waited in ways.items():
            values = " ".join(f"{waited[name]:9,.0f}" for name in ("median", "mean", "p95", "most"))
            yield f"{group:18} {way:11} {values}"


if __name__ == "__main__":
    main()
