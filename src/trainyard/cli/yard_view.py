"""What runs on a yard and on its machine at one moment, as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.cli.console import size
from trainyard.cli.drawing import bar
from trainyard.cli.shares import share_text
from trainyard.showing import clock_text, inert

Yard = Mapping[str, Any]  # what DescribeYard answers
Job = Mapping[str, Any]

_BAR = 24
_LONGEST_NAME = 45


def yard_lines(yard: Yard, waiting: Sequence[Job], *, now: datetime, filled: str) -> list[str]:
    """The machine, then the jobs that run on it, then those of `waiting`, which wait for room."""
    return [*_machine(yard, now=now, filled=filled), "", *_jobs(yard, waiting, now=now)]


def warm_text(yard: Yard) -> str:
    """The interpreters that are kept with their frameworks imported."""
    workers = yard["WarmWorkers"]
    if not workers:
        return "no worker"
    taken = sum(worker.get("MemoryBytes") or 0 for worker in workers)
    return f"{len(workers)} {'worker' if len(workers) == 1 else 'workers'}" + (f", {size(taken)}" if taken else "")


def _machine(yard: Yard, *, now: datetime, filled: str) -> Iterator[str]:
    yield f"trainyard {yard['Version']} on the {yard['Engine']} engine, {now.astimezone():%H:%M:%S}"
    yield _slots(yard["Slots"], yard["SlotsInUse"], filled=filled)
    for line in yard["Lines"]:
        if yard["Engine"] not in line["Engines"]:
            slots, used = (sum(node[name] for node in line["Nodes"]) for name in ("Slots", "SlotsInUse"))
            yield f"{_slots(slots, used, filled=filled)} on {' and '.join(line['Engines'])}"
    if (busy := yard.get("CpuUse")) is not None:
        yield f"cpu     {bar(busy / yard['Cpus'], _BAR, filled=filled)}  {busy:.1f} of {yard['Cpus']:g} cores"
    if (taken := yard.get("MemoryUse")) is not None:
        whole = yard["MemoryBytes"]
        yield f"memory  {bar(taken / whole, _BAR, filled=filled)}  {size(taken)} of {size(whole)}"
    if yard["Gpus"]:
        held = sum(len(share.get("Gpus") or ()) for job in yard["RunningJobs"] for share in job["Shares"])
        yield f"gpus    {bar(held / len(yard['Gpus']), _BAR, filled=filled)}  {held} of {len(yard['Gpus'])}"
    queued = yard["QueuedJobs"]
    yield f"queue   {queued} {'job waits' if queued == 1 else 'jobs wait'}; warm: {warm_text(yard)}"


def _slots(slots: int, used: int, *, filled: str) -> str:
    return f"slots   {bar(used / slots if slots else 0, _BAR, filled=filled)}  {used} of {slots}"


def _jobs(yard: Yard, waiting: Sequence[Job], *, now: datetime) -> Iterator[str]:
    first = yard["Engine"]
    running = (_running(job, now, elsewhere=job["Engine"] != first) for job in yard["RunningJobs"])
    rows = [*running, *(_waiting(job, now) for job in waiting)]
    if not rows:
        yield "No job runs."
        return
    table = [("job", "user", "status", "elapsed", "instances", "share of each"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _running(job: Job, now: datetime, *, elsewhere: bool) -> tuple[str, ...]:
    """One that runs; on which engine is told where it is not the yard's first one."""
    shares = job["Shares"]
    kind = shares[0].get("InstanceType", "") if shares else ""
    share = share_text(shares[0]) if shares else ""
    instances = f"{len(shares)} x {kind}".rstrip(" x") + (f" on {job['Engine']}" if elsewhere else "")
    return (
        _name(job),
        inert(job["UserName"]),
        job["SecondaryStatus"],
        _elapsed(job["StartTime"], now),
        instances,
        share,
    )


def _waiting(job: Job, now: datetime) -> tuple[str, ...]:
    return _name(job), "", job["SecondaryStatus"], _elapsed(job["CreationTime"], now), "", ""


def _name(job: Job) -> str:
    name: str = job["TrainingJobName"]
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _elapsed(since: datetime, now: datetime) -> str:
    return clock_text(int(max((now - since).total_seconds(), 0)))
