"""The invariants of a day, checked on the records that the yard has of its jobs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from benchmarks.scale.workload import Planned
from trainyard.engines.contract import Node
from trainyard.foundation.jobs.attempts import Share
from trainyard.foundation.jobs.training.job import TrainingJob


@dataclass(frozen=True, slots=True)
class _Stay:
    """An instance on a node."""

    job: str
    share: Share
    since: datetime
    until: datetime


def broken_promises(jobs: Mapping[str, TrainingJob], planned: Sequence[Planned], cluster: Sequence[Node]) -> list[str]:
    """Return a sentence for each violated invariant."""
    found = list(_of_ends(jobs, planned))
    nodes = {node.name: node for node in cluster}
    stays = list(_stays(jobs.values()))
    found += _of_spot(stays, jobs, nodes=nodes)
    for name, node in nodes.items():
        found += _of_node(node, [each for each in stays if each.share.node == name])
    return found


def _of_ends(jobs: Mapping[str, TrainingJob], planned: Sequence[Planned]) -> Iterator[str]:
    """Check that every job ended as it had to, and that its attempts did not overlap."""
    for each in planned:
        job = jobs.get(each.name)
        if job is None:
            yield f"{each.name} was lost."
            continue
        wanted = "Failed" if each.code else "Completed"
        if job.status.value != wanted:
            yield f"{each.name} is {job.status.value} and should be {wanted}: {job.failure[:100]}"
        if any(
            before.ended_at is None or before.ended_at > after.placed_at for before, after in pairwise(job.attempts)
        ):
            yield f"{each.name} had two attempts at one time."
        if job.attempts and (job.ended_at or job.created_at) < job.attempts[-1].placed_at:
            yield f"{each.name} was placed after it had ended."
        placed = [instance.share.node for instance in job.attempts[-1].instances] if job.attempts else []
        if len(placed) != each.count:
            yield f"{each.name} had {len(placed)} of {each.count} instances."


def _stays(jobs: Iterable[TrainingJob]) -> Iterator[_Stay]:
    for job in jobs:
        for attempt in job.attempts:
            until = attempt.ended_at or job.ended_at or attempt.placed_at
            for instance in attempt.instances:
                yield _Stay(job.name, instance.share, attempt.placed_at, until)


def _of_spot(stays: Sequence[_Stay], jobs: Mapping[str, TrainingJob], *, nodes: Mapping[str, Node]) -> Iterator[str]:
    for stay in stays:
        if nodes[stay.share.node].is_spot and not jobs[stay.job].plan.is_spot:
            yield f"{stay.job} is not spot and was placed on the spot node {stay.share.node}."


def _of_node(node: Node, stays: Sequence[_Stay]) -> Iterator[str]:
    """Check that a node never gave away more than it has, or a GPU twice."""
    moments = [(stay.until, 0, stay) for stay in stays] + [(stay.since, 1, stay) for stay in stays]
    slots, cpus, memory_bytes, gpus = 0, 0.0, 0, dict[int, str]()
    for _, is_start, stay in sorted(moments, key=lambda each: each[:2]):
        if stay.since == stay.until:
            continue
        sign = 1 if is_start else -1
        slots += sign
        cpus += sign * (stay.share.cpus or 0)
        memory_bytes += sign * (stay.share.memory_bytes or 0)
        for gpu in stay.share.gpus:
            if is_start and gpu in gpus:
                yield f"GPU {gpu} of {node.name} was given to {gpus[gpu]} and {stay.job} at one time."
            if is_start:
                gpus[gpu] = stay.job
            else:
                gpus.pop(gpu, None)
        if is_start and (slots > node.slots or cpus > node.cpus + 1e-6 or memory_bytes > node.memory_bytes):
            yield f"{node.name} gave {slots} slots, {cpus:g} cores and {memory_bytes} bytes when {stay.job} came."
