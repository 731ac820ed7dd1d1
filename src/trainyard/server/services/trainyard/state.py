"""DescribeYard: the machine, and what runs on it."""

from collections.abc import Sequence

from trainyard import __version__
from trainyard.engines.contract import Node
from trainyard.foundation.jobs import Share, TrainingJob
from trainyard.link.warm import WarmWorker, warm_workers
from trainyard.objects.contract import CountsStorage
from trainyard.server.quotas import ANY
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.line import Line, lines_now, machine_now
from trainyard.server.services.trainyard.shares import shares_of


def describe_yard(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - it has no members
    """Capacity and use of the machine, and the jobs on it that the caller may see."""
    workshop = call.yard.workshop
    first, load, lines = workshop.engines.first, workshop.load.now(), lines_now(call.yard)
    machine, line = machine_now(first), next(line for line in lines if first.name in line.engines)
    workers = warm_workers(workshop.warm) if workshop.warm else []
    running = sorted((job for line in lines for job in line.running), key=lambda job: job.created_at)
    seen = [job for job in running if call.caller.is_admin or job.account == call.account]
    return {
        "Version": __version__,
        "Engine": first.name,
        "Slots": machine.slots,
        "SlotsInUse": min(machine.slots, line.instances),
        "Cpus": machine.cpus,
        "MemoryBytes": machine.memory_bytes,
        "Gpus": list(machine.gpus),
        "CpuUse": load.cpus,
        "MemoryUse": load.memory_bytes,
        "QueuedJobs": sum(line.waiting for line in lines),
        "RunningJobs": [_running(call, job) for job in seen],
        "Lines": [_line(call, each) for each in lines],
        "Storage": _storage(call),
        "WarmWorkers": [_worker(each) for each in workers if call.caller.is_admin or each.account == call.account],
    }


OPERATIONS: Operations = {"DescribeYard": describe_yard}


def _storage(call: Call) -> Shape | None:
    """Room for objects as the caller may know it; None where another S3 keeps them."""
    objects = call.yard.objects
    if not isinstance(objects, CountsStorage):
        return None
    reserve, used, limits = objects.reserve, objects.usage(), objects.limits()
    return {
        "FreeBytes": reserve.free_bytes,
        "ReserveBytes": reserve.bytes,
        "ReserveIsTouched": reserve.is_touched,
        "UsedBytes": sum(used.values()) if call.caller.is_admin else used.get(call.account, 0),
        "LimitBytes": limits.get(call.account, limits.get(ANY)),
    }


def _worker(worker: WarmWorker) -> Shape:
    return {
        "Python": worker.python,
        "Pid": worker.pid,
        "MemoryBytes": worker.memory_bytes,
        "LastUsed": worker.last_used,
    }


def _line(call: Call, line: Line) -> Shape:
    machine, shares = machine_now(call.yard.workshop.engines[line.engines[0]]), line.shares
    nodes = [_node(node, [share for share in shares if share.node == node.name]) for node in machine.nodes]
    return {
        "Engines": list(line.engines),
        "QueuedJobs": line.waiting,
        "Obstacle": machine.obstacle or None,
        "Nodes": nodes,
    }


def _node(node: Node, shares: Sequence[Share]) -> Shape:
    cpus, memory_bytes = sum(each.cpus or 0 for each in shares), sum(each.memory_bytes or 0 for each in shares)
    return {
        "Name": node.name,
        "Slots": node.slots,
        "SlotsInUse": min(node.slots, len(shares)),
        "Cpus": node.cpus,
        "CpusInUse": round(cpus, 2) if node.reserves else None,
        "MemoryBytes": node.memory_bytes,
        "MemoryBytesInUse": memory_bytes if node.reserves else None,
        "Gpus": len(node.gpus),
        "GpusInUse": sum(len(each.gpus) for each in shares),
        "Spot": node.is_spot,
    }


def _running(call: Call, job: TrainingJob) -> Shape:
    return {
        "TrainingJobName": job.name,
        "UserName": call.yard.records.user(job.account).name,
        "SecondaryStatus": job.secondary,
        "StartTime": job.attempts[-1].placed_at,
        "Engine": job.plan.engine or call.yard.workshop.engines.first.name,
        "Shares": shares_of(job),
    }
