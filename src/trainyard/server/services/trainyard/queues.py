"""The queues of the engines: running and waiting jobs, positions, and the shares of instances."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.engines.contract import Capacity, Engine
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.attempts import InstanceState, Share
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.server.control.scheduling.queue_order import engines_by_queue, record_queues_of
from trainyard.server.jobs.instance_job_kinds import RECORD_KINDS, instance_job_of
from trainyard.server.jobs.instance_jobs import priority_of
from trainyard.server.records.contract import QueueState, ResourceId
from trainyard.server.services.contract import Shape, Yard


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has been placed, with the id of its record."""

    id: ResourceId
    job: InstanceJob


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The running jobs of a queue, oldest first, and how many jobs wait."""

    engines: Sequence[str]
    running: Sequence[RunningJob]
    waiting: int

    @property
    def instances(self) -> int:
        """How many instances run."""
        return len(self.shares)

    @property
    def shares(self) -> Sequence[Share]:
        """The shares of the running instances."""
        return [each.share for running in self.running for each in running.job.attempts[-1].instances]


def current_capacity(engine: Engine) -> Capacity:
    """Return the capacity of an engine; none, with the reason, while it is unavailable."""
    try:
        return engine.capacity()
    except Unavailable as error:
        return Capacity((), obstacle=error.message)


def load_queues(yard: Yard) -> Sequence[QueueSnapshot]:
    """Return the queues as they are now. Running jobs are read, waiting jobs are counted by an index."""
    engines, found = yard.compute.engines, engines_by_queue(yard.compute.engines)
    found_placed = (each for kind in RECORD_KINDS.values() for each in yard.records.in_state(kind, QueueState.PLACED))
    placed = (RunningJob(each.id, instance_job_of(each)) for each in found_placed)
    running = sorted((each for each in placed if each.job.attempt is not None), key=lambda each: each.id)
    return [
        QueueSnapshot(
            names,
            [each for each in running if engines.queue_of(each.job.plan.engine) == name],
            _count_waiting(yard, name),
        )
        for name, names in found.items()
    ]


def load_queue(yard: Yard, engine: str) -> QueueSnapshot:
    """Return the queue of an engine."""
    return next(queue for queue in load_queues(yard) if engine in queue.engines)


def queue_position(yard: Yard, job: InstanceJob) -> int:
    """Return the position of a waiting job; the next to be placed is 1.

    Accounts take turns, so a job with n earlier jobs of its own account is at most at (n + 1) times the accounts.
    """
    engines, records, before = yard.compute.engines, yard.records, (priority_of(job), job.created_at)
    keys = record_queues_of(engines.queue_of(job.plan.engine), engines, site=job.site)
    kinds = RECORD_KINDS.values()
    all_before = sum(records.count_waiting(kind, keys, before=before) for kind in kinds)
    own = sum(records.count_waiting(kind, keys, before=before, account=job.account) for kind in kinds)
    accounts = {head.account for kind in kinds for head in records.heads(kind, keys)} | {job.account}
    return min(all_before + 1, (own + 1) * len(accounts))


def shares_of(job: InstanceJob) -> list[Shape]:
    """Return the shares of the instances of the last attempt."""
    instances: tuple[InstanceState, ...] = job.attempts[-1].instances if job.attempts else ()
    types = dict(zip(job.plan.hosts, job.plan.instance_types, strict=True))
    return [share_shape(each.name, types[each.name], share=each.share) for each in instances]


def share_shape(instance: str, instance_type: str, *, share: Share) -> Shape:
    node = {"Node": share.node} if share.node else {}
    return node | {
        "Instance": instance,
        "InstanceType": instance_type,
        "Cpus": share.cpus,
        "MemoryBytes": share.memory_bytes,
        "Gpus": list(share.gpus),
    }


def _count_waiting(yard: Yard, name: str) -> int:
    keys = record_queues_of(name, yard.compute.engines, site=yard.compute.site)
    return sum(yard.records.count_waiting(kind, keys) for kind in RECORD_KINDS.values())
