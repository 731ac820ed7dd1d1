"""The queues of the engines: running and waiting jobs, positions, and the shares of instances."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.engines.contract import Capacity, Engine
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.attempts import InstanceState, Share
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.control.scheduling.queue_order import engines_by_queue, record_queues_of
from trainyard.server.jobs.training import KIND, job_of, priority_of
from trainyard.server.records.contract import QueueState, ResourceId
from trainyard.server.services.contract import Shape, Yard


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has been placed, with the id of its record."""

    id: ResourceId
    job: TrainingJob


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
    placed = (RunningJob(each.id, job_of(each)) for each in yard.records.in_state(KIND, QueueState.PLACED))
    running = [each for each in placed if each.job.attempt is not None]
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


def queue_position(yard: Yard, job: TrainingJob) -> int:
    """Return the position of a waiting job; the next to be placed is 1.

    Accounts take turns, so a job with n earlier jobs of its own account is at most at (n + 1) times the accounts.
    """
    engines, records, before = yard.compute.engines, yard.records, (priority_of(job), job.created_at)
    keys = record_queues_of(engines.queue_of(job.plan.engine), engines, site=job.site)
    all_before = records.count_waiting(KIND, keys, before=before)
    own = records.count_waiting(KIND, keys, before=before, account=job.account)
    accounts = {head.account for head in records.heads(KIND, keys)} | {job.account}
    return min(all_before + 1, (own + 1) * len(accounts))


def shares_of(job: TrainingJob) -> list[Shape]:
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
    return yard.records.count_waiting(KIND, keys)
