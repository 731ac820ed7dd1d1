"""What instances have of the machine, in the words of the wire."""

from trainyard.foundation.jobs import InstanceState, Share, TrainingJob
from trainyard.server.services.contract import Shape


def shares_of(job: TrainingJob) -> list[Shape]:
    """Of the instances of the last attempt."""
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
