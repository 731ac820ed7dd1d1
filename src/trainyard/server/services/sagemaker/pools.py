"""Warm pools in the words of the wire."""

import hashlib
import json
from datetime import datetime, timedelta

from trainyard.foundation.jobs import TrainingJob
from trainyard.foundation.pools import pool_of
from trainyard.server.services.contract import Shape

# What must be the same for a job to take over the pool of another, as AWS documents it.
_RESOURCES = ("InstanceCount", "InstanceType", "InstanceGroups", "VolumeKmsKeyId", "VolumeSizeInGB")
_MEMBERS = ("RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption", "EnableNetworkIsolation")


def pool_key_of(shape: Shape, *, engine: str) -> str:
    """The same for two requests of which one can take over what the other has kept warm.

    The image counts too, which on AWS it does not: what is kept here is an interpreter with the imports of that image,
    by the engine of the job.
    """
    values = [shape["ResourceConfig"].get(member) for member in _RESOURCES]
    values += [shape.get(member) or None for member in _MEMBERS]
    values += [shape["AlgorithmSpecification"].get("TrainingImage"), engine]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def pool_shape(job: TrainingJob, *, now: datetime) -> Shape | None:
    """What DescribeTrainingJob and ListTrainingJobs tell of a job's warm pool; None when it has none."""
    pool = pool_of(job, now=now)
    if pool is None:
        return None
    shape: Shape = {"Status": str(pool.status)}
    if pool.retained is not None:
        shape["ResourceRetainedBillableTimeInSeconds"] = int(pool.retained / timedelta(seconds=1))
    return shape | ({"ReusedByJob": pool.reused_by} if pool.reused_by else {})
