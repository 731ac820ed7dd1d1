"""The machine, nodes, jobs and shares of a yard as text."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard._sdk.training.console import duration_text, terminal_safe
from trainyard.cli.terminal.blocks import Bar, Block, Table, Title
from trainyard.cli.terminal.charts import bar, block
from trainyard.cli.terminal.console import size_text

# The response of DescribeYard, and a job in it.
Yard = Mapping[str, Any]
Job = Mapping[str, Any]

_JOB_COLUMNS = ("job", "user", "status", "elapsed", "instances", "share of each")
# Gauges of what the running jobs use, each shown if one of them has it.
_GAUGES = {"cpu": "CpuPercent", "memory": "MemoryPercent", "gpu": "GpuPercent", "gpu memory": "GpuMemoryPercent"}
_GAUGE_WIDTH = 8
_NODE_COLUMNS = ("node", "slots", "cores", "memory", "gpus", "kind")
_MAX_NAME_WIDTH = 45


def yard_blocks(yard: Yard, waiting: Sequence[Job], *, now: datetime) -> list[Block]:
    """Return the machine, the running jobs, and the waiting jobs."""
    return [*_machine(yard, now=now), "", _jobs(yard, waiting, now=now)]


def warm_text(yard: Yard) -> str:
    """Return the number and the memory of the warm workers."""
    workers = yard["WarmWorkers"]
    if not workers:
        return "no workers"
    memory = sum(worker.get("MemoryBytes") or 0 for worker in workers)
    return f"{len(workers)} {'worker' if len(workers) == 1 else 'workers'}" + (
        f", {size_text(memory)}" if memory else ""
    )


def _machine(yard: Yard, *, now: datetime) -> Iterator[Block]:
    yield Title(f"trainyard {yard['Version']} on the {yard['Engine']} engine, {now.astimezone():%H:%M:%S}")
    yield _slots(yard["Slots"], yard["SlotsInUse"])
    for line in yard["Lines"]:
        if yard["Engine"] not in line["Engines"]:
            slots, used = (sum(node[name] for node in line["Nodes"]) for name in ("Slots", "SlotsInUse"))
            yield _slots(slots, used, where=f" on {' and '.join(line['Engines'])}")
    if (busy := yard.get("CpuUse")) is not None:
        yield Bar("cpu", busy / yard["Cpus"], f"{busy:.1f} of {yard['Cpus']:g} cores")
    if (taken := yard.get("MemoryUse")) is not None:
        whole = yard["MemoryBytes"]
        yield Bar("memory", taken / whole, f"{size_text(taken)} of {size_text(whole)}")
    if yard["Gpus"]:
        held = sum(len(share.get("Gpus") or ()) for job in yard["RunningJobs"] for share in job["Shares"])
        yield Bar("gpus", held / len(yard["Gpus"]), f"{held} of {len(yard['Gpus'])}")
    queued = yard["QueuedJobs"]
    yield f"queue   {queued} {'job' if queued == 1 else 'jobs'} waiting; warm: {warm_text(yard)}"


def _slots(slots: int, used: int, *, where: str = "") -> Bar:
    return Bar("slots", used / slots if slots else 0, f"{used} of {slots}{where}")


def _jobs(yard: Yard, waiting: Sequence[Job], *, now: datetime) -> Block:
    first, running = yard["Engine"], yard["RunningJobs"]
    gauges = {title: member for title, member in _GAUGES.items() if any(member in job for job in running)}
    rows = [
        (*_running_row(job, now, names_engine=job["Engine"] != first), *(_gauge(job, each) for each in gauges.values()))
        for job in running
    ]
    rows += [(*_waiting_row(job, now), *("" for _ in gauges)) for job in waiting]
    return Table((*_JOB_COLUMNS, *gauges), rows) if rows else "No jobs are running."


def _gauge(job: Job, member: str) -> str:
    if member not in job:
        return ""
    share = job[member] / 100
    return f"{bar(min(share, 1.0), _GAUGE_WIDTH, filled=block())} {share:4.0%}"


def _running_row(job: Job, now: datetime, *, names_engine: bool) -> tuple[str, ...]:
    """Return the row of a running job, with its engine if that is not the default engine."""
    shares = job["Shares"]
    kind = shares[0].get("InstanceType", "") if shares else ""
    share = share_text(shares[0]) if shares else ""
    instances = f"{len(shares)} x {kind}".rstrip(" x") + (f" on {job['Engine']}" if names_engine else "")
    return (
        _name(job),
        terminal_safe(job["UserName"]),
        job["SecondaryStatus"],
        _elapsed_text(job["StartTime"], now),
        instances,
        share,
    )


def _waiting_row(job: Job, now: datetime) -> tuple[str, ...]:
    return _name(job), "", job["SecondaryStatus"], _elapsed_text(job["CreationTime"], now), "", ""


def _name(job: Job) -> str:
    name: str = job["TrainingJobName"]
    return name if len(name) <= _MAX_NAME_WIDTH else f"{name[: _MAX_NAME_WIDTH - 1]}…"


def _elapsed_text(since: datetime, now: datetime) -> str:
    return duration_text(int(max((now - since).total_seconds(), 0)))


Line = Mapping[str, Any]
Node = Mapping[str, Any]


def node_blocks(yard: Mapping[str, Any]) -> Iterator[Block]:
    """Yield each queue with its nodes; nothing if the yard's own machine is the only node."""
    lines = yard["Lines"]
    if all(node["Name"] == "" for line in lines for node in line["Nodes"]) and len(lines) == 1:
        return
    for line in lines:
        yield ""
        yield Title(_title(line))
        if line.get("Obstacle"):
            yield line["Obstacle"]
        if line["Nodes"]:
            yield Table(_NODE_COLUMNS, [(node["Name"] or "this machine", *_uses(node)) for node in line["Nodes"]])


def _title(line: Line) -> str:
    count, queued = len(line["Nodes"]), line["QueuedJobs"]
    nodes, jobs = "node" if count == 1 else "nodes", "job" if queued == 1 else "jobs"
    return f"{' and '.join(line['Engines'])}: {count} {nodes}, {queued} {jobs} waiting"


def _uses(node: Node) -> tuple[str, ...]:
    """Return the resources of a node with their use. Shared cores and memory are shown without it."""
    cpus, memory = node.get("CpusInUse"), node.get("MemoryBytesInUse")
    return (
        f"{node['SlotsInUse']} of {node['Slots']}",
        f"{node['Cpus']:g}" if cpus is None else f"{cpus:g} of {node['Cpus']:g}",
        size_text(node["MemoryBytes"])
        if memory is None
        else f"{size_text(memory)} of {size_text(node['MemoryBytes'])}",
        f"{node['GpusInUse']} of {node['Gpus']}" if node["Gpus"] else "",
        "spot" if node["Spot"] else "",
    )


Share = Mapping[str, Any]


def share_text(share: Share) -> str:
    """Return a share as text, such as `2 cores, 3.9 GiB, GPU 0 on node-7`. Unlimited resources are left out."""
    words = [f"{share['Cpus']:g} {'core' if share['Cpus'] == 1 else 'cores'}"] if share.get("Cpus") is not None else []
    words += [size_text(share["MemoryBytes"])] if share.get("MemoryBytes") is not None else []
    gpus = share.get("Gpus") or ()
    words += [f"{'GPU' if len(gpus) == 1 else 'GPUs'} {', '.join(map(str, gpus))}"] if gpus else []
    where = f" on {terminal_safe(share['Node'])}" if share.get("Node") else ""
    return (", ".join(words) or "not limited") + where


def shares_text(shares: Sequence[Share]) -> list[str]:
    """Return the shares of the instances of a job: one line if they are equal, else one line for each."""
    texts = [share_text(share) for share in shares]
    if len(texts) > 1 and len(set(texts)) == 1:
        return [f"{texts[0]}, each of {len(texts)}"]
    if len(texts) < 2:
        return texts
    return [f"{share.get('Instance', '')}  {text}".strip() for share, text in zip(shares, texts, strict=True)]
