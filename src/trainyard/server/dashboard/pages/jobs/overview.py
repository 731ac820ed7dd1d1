"""The capacity of the yard, its queue, and money: what stands above the list of jobs."""

import asyncio
from collections.abc import Iterable
from typing import Any

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.visit import Visit

# For how many days back costs are summed up: the first of these that does not have too many jobs.
MONEY_DAYS = (30, 7, 1)
# Waiting jobs that are listed, of each owner's the ones that start first.
SHOWN_WAITING = 20


async def read_capacity(visit: Visit) -> dict[str, Any]:
    """Return how much there is of the machine or cluster, how much is in use, and how many jobs wait."""
    yard = await visit.api.call("trainyard", "DescribeYard")
    nodes = [node for queue in yard["Lines"] for node in queue["Nodes"]]
    return {
        "slots": [yard["SlotsInUse"], yard["Slots"]],
        # Without a measurement of the machine, what is allocated of all nodes.
        "cpus": [yard.get("CpuUse", _sum(nodes, "CpusInUse")), yard["Cpus"]],
        "memory": [yard.get("MemoryUse", _sum(nodes, "MemoryBytesInUse")), yard["MemoryBytes"]],
        "gpus": [_sum(nodes, "GpusInUse"), _sum(nodes, "Gpus")],
        "waiting": yard["QueuedJobs"],
        "obstacles": [queue["Obstacle"] for queue in yard["Lines"] if "Obstacle" in queue],
        "nodes": [_node(node) for node in nodes],
        "running": [_running(each) for each in yard["RunningJobs"]],
    }


async def read_overview(visit: Visit) -> dict[str, Any]:
    """Return the capacity, and the waiting jobs with why they wait."""
    asked = {"Filter": "kind:training status:waiting", "SortBy": "created", "MaxResults": SHOWN_WAITING}
    capacity, waiting = await asyncio.gather(read_capacity(visit), visit.api.call("trainyard", "ListJobs", asked))
    queue = [
        {"name": job["Name"], "position": job.get("QueuePosition"), "reason": job.get("WaitReason")}
        for job in waiting["Jobs"]
    ]
    return capacity | {"queue": sorted(queue, key=lambda each: each["position"] or 0)}


async def prices_are_set(visit: Visit) -> bool:
    """Whether the yard has prices of its own. Costs at the prices of AWS would mislead those who pay for machines."""
    return bool((await visit.api.call("trainyard", "DescribeSpot"))["PriceIsSet"])


async def read_money(visit: Visit) -> dict[str, Any] | None:
    """Return what jobs cost; None if no prices are set, or if there are too many jobs to sum up."""
    spot = await visit.api.call("trainyard", "DescribeSpot")
    if not spot["PriceIsSet"]:
        return None
    for days in MONEY_DAYS:
        asked = {"Filter": f"kind:training modified>{days}d", "Summarize": True, "MaxResults": 1}
        try:
            summary = (await visit.api.call("trainyard", "ListJobs", asked))["Summary"]
        except ApiFault:
            continue
        return {
            "days": days,
            "jobs": summary["Jobs"],
            "cost": summary["Cost"],
            "perHour": summary["CostPerHour"],
            "saved": spot["Total"]["Saved"],
        }
    return None


def _sum(nodes: Iterable[dict[str, Any]], member: str) -> float | None:
    """Return what nodes have together; None if none of them says."""
    values = [node[member] for node in nodes if member in node]
    return sum(values) if values else None


def _node(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": node["Name"],
        "slots": [node["SlotsInUse"], node["Slots"]],
        "cpus": [node.get("CpusInUse"), node["Cpus"]],
        "memory": [node.get("MemoryBytesInUse"), node["MemoryBytes"]],
        "gpus": [node["GpusInUse"], node["Gpus"]],
        "spot": node["Spot"],
    }


def _running(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": job["TrainingJobName"],
        "user": job["UserName"],
        "cpu": job.get("CpuPercent"),
        "memory": job.get("MemoryPercent"),
        "gpu": job.get("GpuPercent"),
    }
