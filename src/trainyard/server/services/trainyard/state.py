"""DescribeYard: the machine, and what runs on it."""

from trainyard import __version__
from trainyard.foundation.jobs import TrainingJob
from trainyard.link.warm import WarmWorker, warm_workers
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.line import line_of
from trainyard.server.services.trainyard.shares import shares_of


def describe_yard(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - it has no members
    """Capacity and use of the machine, and the jobs on it that the caller may see."""
    workshop = call.yard.workshop
    machine, load, line = workshop.engines.first.capacity(), workshop.load.now(), line_of(call.yard.records)
    workers = warm_workers(workshop.warm) if workshop.warm else []
    seen = [job for job in line.running if call.caller.is_admin or job.account == call.account]
    return {
        "Version": __version__,
        "Engine": workshop.engines.first.name,
        "Slots": machine.slots,
        "SlotsInUse": min(machine.slots, line.instances),
        "Cpus": machine.cpus,
        "MemoryBytes": machine.memory_bytes,
        "Gpus": list(machine.gpus),
        "CpuUse": load.cpus,
        "MemoryUse": load.memory_bytes,
        "QueuedJobs": line.waiting,
        "RunningJobs": [_running(call, job) for job in seen],
        "WarmWorkers": [_worker(each) for each in workers if call.caller.is_admin or each.account == call.account],
    }


OPERATIONS: Operations = {"DescribeYard": describe_yard}


def _worker(worker: WarmWorker) -> Shape:
    return {
        "Python": worker.python,
        "Pid": worker.pid,
        "MemoryBytes": worker.memory_bytes,
        "LastUsed": worker.last_used,
    }


def _running(call: Call, job: TrainingJob) -> Shape:
    return {
        "TrainingJobName": job.name,
        "UserName": call.yard.records.user(job.account).name,
        "SecondaryStatus": job.secondary,
        "StartTime": job.attempts[-1].placed_at,
        "Shares": shares_of(job),
    }
