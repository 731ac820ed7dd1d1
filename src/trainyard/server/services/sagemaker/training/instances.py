"""The instances of a training job: their groups, their prices, and the warm pool they leave."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from trainyard.engines.catalog import InstanceType
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import ONLY_GROUP, InstanceGroupPlan
from trainyard.foundation.jobs.training.pools import pool_of
from trainyard.server.services.contract import Shape

MAX_INSTANCES = 100

# What must be equal for a job to reuse the warm pool of another, as AWS documents it.
_POOL_RESOURCES = ("InstanceCount", "InstanceType", "InstanceGroups", "VolumeKmsKeyId", "VolumeSizeInGB")
_POOL_MEMBERS = ("RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption", "EnableNetworkIsolation")


def groups_of(resources: Shape) -> tuple[InstanceGroupPlan, ...]:
    """Return the instance groups of a request; a single unnamed one gets the name that AWS uses."""
    if not resources.get("InstanceGroups"):
        return (_only_group(resources),)
    _refuse_single_group_members(resources)
    groups = tuple(
        InstanceGroupPlan(each["InstanceGroupName"], each["InstanceType"], each["InstanceCount"])
        for each in resources["InstanceGroups"]
    )
    names = [group.name for group in groups]
    for group in groups:
        if names.count(group.name) > 1:
            raise InvalidRequest(
                f'The InstanceGroupName "{group.name}" is used more than once; give each group its own name.'
            )
        _require_count(group.count, f'the InstanceCount of the group "{group.name}"', minimum=0)
    _require_count(sum(group.count for group in groups), "the InstanceCount of all InstanceGroups together")
    return groups


def require_known_groups(channels: Sequence[ChannelPlan], groups: Sequence[InstanceGroupPlan]) -> None:
    """Raise InvalidRequest if a channel is for a group that does not exist or has no instances."""
    sizes = {group.name: group.count for group in groups if group.name != ONLY_GROUP}
    for channel in channels:
        for name in channel.groups:
            if name not in sizes:
                known = f"the job has {', '.join(sizes)}" if sizes else "the job has no InstanceGroups"
                raise InvalidRequest(f'The channel "{channel.name}" is for the instance group "{name}"; {known}.')
        if channel.groups and not sum(sizes[name] for name in channel.groups):
            raise InvalidRequest(f'The channel "{channel.name}" is only for instance groups without instances.')


def billed_share(types: Sequence[InstanceType], *, is_spot: bool) -> float:
    """Return the price of instances relative to their on-demand price; 1 if both are zero."""
    on_demand = sum(each.on_demand_usd for each in types)
    return sum(each.price_usd(is_spot=is_spot) for each in types) / on_demand if on_demand else 1.0


def pool_key_of(shape: Shape, *, engine: str) -> str:
    """Return a key that is equal for two requests if one can reuse the warm pool of the other.

    Unlike on AWS, the image and the engine count too: a warm worker is an interpreter with the imports of the image.
    """
    values = [shape["ResourceConfig"].get(member) for member in _POOL_RESOURCES]
    values += [shape.get(member) or None for member in _POOL_MEMBERS]
    values += [shape["AlgorithmSpecification"].get("TrainingImage"), engine]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def pool_shape(job: TrainingJob, *, now: datetime) -> Shape | None:
    """Return the WarmPoolStatus of a job; None if it has no warm pool."""
    pool = pool_of(job, now=now)
    if pool is None:
        return None
    shape: Shape = {"Status": str(pool.status)}
    if pool.retained is not None:
        shape["ResourceRetainedBillableTimeInSeconds"] = int(pool.retained / timedelta(seconds=1))
    return shape | ({"ReusedByJob": pool.reused_by} if pool.reused_by else {})


def _only_group(resources: Shape) -> InstanceGroupPlan:
    for member in ("InstanceType", "InstanceCount"):
        if member not in resources:
            raise InvalidRequest(f"ResourceConfig needs an {member}.")
    _require_count(resources["InstanceCount"], "InstanceCount")
    return InstanceGroupPlan(ONLY_GROUP, resources["InstanceType"], resources["InstanceCount"])


def _refuse_single_group_members(resources: Shape) -> None:
    for member in ("InstanceType", "InstanceCount"):
        if member in resources:
            raise InvalidRequest(
                f"ResourceConfig has InstanceGroups, each with a type and a count; leave {member} out."
            )
    if resources.get("KeepAlivePeriodInSeconds"):
        raise InvalidRequest("A job with InstanceGroups cannot keep a warm pool; leave KeepAlivePeriodInSeconds out.")


def _require_count(count: int, what: str, *, minimum: int = 1) -> None:
    if not minimum <= count <= MAX_INSTANCES:
        raise InvalidRequest(f"{what[0].upper()}{what[1:]} is {count}; it must be {minimum} to {MAX_INSTANCES}.")
