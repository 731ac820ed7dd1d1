"""DescribeYard: the machine and what runs on it."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import fmean

from trainyard import __version__
from trainyard.engines.contract import Node
from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.formats.profiles.hardware_summary import latest_values
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.attempts import Share
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.link.warm import WarmWorker, warm_workers
from trainyard.objects.contract import CountsStorage
from trainyard.server.jobs.quotas import ANY
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.queues import (
    QueueSnapshot,
    RunningJob,
    current_capacity,
    load_queues,
    shares_of,
)


def describe_yard(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """Describe the capacity and use of the machine, and the jobs that the caller can see."""
    compute = call.yard.compute
    default, load, queues = compute.engines.default, compute.load.measure(), load_queues(call.yard)
    capacity = current_capacity(default)
    queue = next(queue for queue in queues if default.name in queue.engines)
    workers = warm_workers(compute.warm) if compute.warm else []
    running = sorted((each for queue in queues for each in queue.running), key=lambda each: each.job.created_at)
    visible = [each for each in running if call.caller.is_admin or each.job.account == call.account]
    return {
        "Version": __version__,
        "Engine": default.name,
        "Slots": capacity.slots,
        "SlotsInUse": min(capacity.slots, queue.instances),
        "Cpus": capacity.cpus,
        "MemoryBytes": capacity.memory_bytes,
        "Gpus": list(capacity.gpus),
        "CpuUse": load.cpus,
        "MemoryUse": load.memory_bytes,
        "QueuedJobs": sum(queue.waiting for queue in queues),
        "RunningJobs": [_running(call, each) for each in visible],
        "Lines": [_queue(call, each) for each in queues],
        "Storage": _storage(call),
        "WarmWorkers": [_worker(each) for each in workers if call.caller.is_admin or each.account == call.account],
    }


OPERATIONS: Operations = {"DescribeYard": describe_yard}

# Samples of jobs with a longer interval are shown with their job only.
_JUST_NOW = timedelta(seconds=10)
_USES = {
    HardwareMetric.JOB_CPU_PERCENT: "CpuPercent",
    HardwareMetric.JOB_MEMORY_PERCENT: "MemoryPercent",
    HardwareMetric.GPU_PERCENT: "GpuPercent",
    HardwareMetric.GPU_MEMORY_PERCENT: "GpuMemoryPercent",
}


def _storage(call: Call) -> Shape | None:
    """Return the storage that the caller can see; None if another S3 stores the objects."""
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


def _queue(call: Call, queue: QueueSnapshot) -> Shape:
    capacity, shares = current_capacity(call.yard.compute.engines[queue.engines[0]]), queue.shares
    nodes = [_node(node, [share for share in shares if share.node == node.name]) for node in capacity.nodes]
    return {
        "Engines": list(queue.engines),
        "QueuedJobs": queue.waiting,
        "Obstacle": capacity.obstacle or None,
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


def _running(call: Call, running: RunningJob) -> Shape:
    job = running.job
    return {
        "TrainingJobName": job.name,
        "UserName": call.yard.records.user(job.account).name,
        "SecondaryStatus": job.secondary,
        "StartTime": job.attempts[-1].placed_at,
        "Engine": job.plan.engine or call.yard.compute.engines.default.name,
        "Shares": shares_of(job),
        **_hardware_use(call, running),
    }


def _hardware_use(call: Call, running: RunningJob) -> Shape:
    """Return the mean use of the hardware over the instances and their GPUs; only what was sampled just now."""
    attempt = running.job.attempts[-1]
    since_us = to_micros(call.now - _JUST_NOW)
    values: dict[str, list[float]] = {}
    for instance in attempt.instances:
        ref = InstanceRef(AttemptRef(running.id, attempt.number), instance.name)
        for series, value in latest_values(ref.folder(call.yard.compute.jobs).hardware, since_us=since_us).items():
            if series.metric in _USES:
                values.setdefault(_USES[series.metric], []).append(value)
    return {member: fmean(found) for member, found in values.items()}
