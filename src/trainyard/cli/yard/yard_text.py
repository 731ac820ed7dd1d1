"""The machine, nodes, jobs and shares of a yard as text."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard._sdk.training.console import duration_text, terminal_safe
from trainyard.cli.terminal.charts import bar
from trainyard.cli.terminal.console import size_text

# The response of DescribeYard, and a job in it.
Yard = Mapping[str, Any]
Job = Mapping[str, Any]

_BAR_WIDTH = 24
_MAX_NAME_WIDTH = 45


def yard_lines(yard: Yard, waiting: Sequence[Job], *, now: datetime, filled: str) -> list[str]:
    """Return lines for the machine, for the running jobs, and for the waiting jobs."""
    return [*_machine(yard, now=now, filled=filled), "", *_jobs(yard, waiting, now=now)]


def warm_text(yard: Yard) -> str:
    """Return the number and the memory of the warm workers."""
    workers = yard["WarmWorkers"]
    if not workers:
        return "no workers"
    memory = sum(worker.get("MemoryBytes") or 0 for worker in workers)
    return f"{len(workers)} {'worker' if len(workers) == 1 else 'workers'}" + (
        f", {size_text(memory)}" if memory else ""
    )


def _machine(yard: Yard, *, now: datetime, filled: str) -> Iterator[str]:
    yield f"trainyard {yard['Version']} on the {yard['Engine']} engine, {now.astimezone():%H:%M:%S}"
    yield _slots(yard["Slots"], yard["SlotsInUse"], filled=filled)
    for line in yard["Lines"]:
        if yard["Engine"] not in line["Engines"]:
            slots, used = (sum(node[name] for node in line["Nodes"]) for name in ("Slots", "SlotsInUse"))
            yield f"{_slots(slots, used, filled=filled)} on {' and '.join(line['Engines'])}"
    if (busy := yard.get("CpuUse")) is not None:
        yield f"cpu     {bar(busy / yard['Cpus'], _BAR_WIDTH, filled=filled)}  {busy:.1f} of {yard['Cpus']:g} cores"
    if (taken := yard.get("MemoryUse")) is not None:
        whole = yard["MemoryBytes"]
        yield f"memory  {bar(taken / whole, _BAR_WIDTH, filled=filled)}  {size_text(taken)} of {size_text(whole)}"
    if yard["Gpus"]:
        held = sum(len(share.get("Gpus") or ()) for job in yard["RunningJobs"] for share in job["Shares"])
        yield f"gpus    {bar(held / len(yard['Gpus']), _BAR_WIDTH, filled=filled)}  {held} of {len(yard['Gpus'])}"
    queued = yard["QueuedJobs"]
    yield f"queue   {queued} {'job' if queued == 1 else 'jobs'} waiting; warm: {warm_text(yard)}"


def _slots(slots: int, used: int, *, filled: str) -> str:
    return f"slots   {bar(used / slots if slots else 0, _BAR_WIDTH, filled=filled)}  {used} of {slots}"


def _jobs(yard: Yard, waiting: Sequence[Job], *, now: datetime) -> Iterator[str]:
    first = yard["Engine"]
    running = (_running_row(job, now, names_engine=job["Engine"] != first) for job in yard["RunningJobs"])
    rows = [*running, *(_waiting_row(job, now) for job in waiting)]
    if not rows:
        yield "No jobs are running."
        return
    table = [("job", "user", "status", "elapsed", "instances", "share of each"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


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


def node_lines(yard: Mapping[str, Any]) -> Iterator[str]:
    """Yield each queue with its nodes; nothing if the yard's own machine is the only node."""
    lines = yard["Lines"]
    if all(node["Name"] == "" for line in lines for node in line["Nodes"]) and len(lines) == 1:
        return
    for line in lines:
        yield ""
        yield _title(line)
        if line.get("Obstacle"):
            yield f"  {terminal_safe(line['Obstacle'])}"
        rows = [(terminal_safe(node["Name"]) or "this machine", *_uses(node)) for node in line["Nodes"]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _title(line: Line) -> str:
    count, queued = len(line["Nodes"]), line["QueuedJobs"]
    nodes, jobs = "node" if count == 1 else "nodes", "job" if queued == 1 else "jobs"
    return f"{' and '.join(line['Engines'])}: {count} {nodes}, {queued} {jobs} waiting"


def _uses(node: Node) -> tuple[str, ...]:
    """Return the resources of a node with their use. Shared cores and memory are shown without it."""
    cpus, memory = node.get("CpusInUse"), node.get("MemoryBytesInUse")
    return (
        f"{node['SlotsInUse']} of {node['Slots']} slots",
        f"{node['Cpus']:g} cores" if cpus is None else f"{cpus:g} of {node['Cpus']:g} cores",
        size_text(node["MemoryBytes"])
        if memory is None
        else f"{size_text(memory)} of {size_text(node['MemoryBytes'])}",
        f"{node['GpusInUse']} of {node['Gpus']} GPUs" if node["Gpus"] else "",
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
