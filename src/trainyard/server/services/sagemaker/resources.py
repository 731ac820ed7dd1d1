"""On how many instances of which types a training job runs: read from the request, and weighed by their prices."""

from collections.abc import Sequence

from trainyard.engines.catalog import InstanceType
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import ONLY_GROUP, ChannelPlan, InstanceGroup
from trainyard.server.services.contract import Shape

MAX_INSTANCES = 100  # of a job


def groups_of(resources: Shape) -> tuple[InstanceGroup, ...]:
    """The groups that a request asks for; the only one has a name of AWS's. InvalidRequest when they make no sense."""
    if not resources.get("InstanceGroups"):
        return (_only_group(resources),)
    _require_nothing_beside(resources)
    groups = tuple(
        InstanceGroup(each["InstanceGroupName"], each["InstanceType"], each["InstanceCount"])
        for each in resources["InstanceGroups"]
    )
    names = [group.name for group in groups]
    for group in groups:
        if names.count(group.name) > 1:
            raise InvalidRequest(f'The InstanceGroupName "{group.name}" is used more than once; give each its own.')
        _require_number(group.count, f'the InstanceCount of the group "{group.name}"', least=0)
    _require_number(sum(group.count for group in groups), "the InstanceCount of all InstanceGroups together")
    return groups


def require_known_groups(channels: Sequence[ChannelPlan], groups: Sequence[InstanceGroup]) -> None:
    """InvalidRequest when a channel is for a group that the job does not have, or that has no instance."""
    sizes = {group.name: group.count for group in groups if group.name != ONLY_GROUP}
    for channel in channels:
        for name in channel.groups:
            if name not in sizes:
                known = f"the job has {', '.join(sizes)}" if sizes else "the job has no InstanceGroups"
                raise InvalidRequest(f'The channel "{channel.name}" is for the instance group "{name}"; {known}.')
        if channel.groups and not sum(sizes[name] for name in channel.groups):
            raise InvalidRequest(f'The channel "{channel.name}" is only for instance groups without instances.')


def billed_share(types: Sequence[InstanceType], *, is_spot: bool) -> float:
    """What instances cost over what they cost on demand; 1 where both are nothing."""
    on_demand = sum(each.on_demand_usd for each in types)
    return sum(each.price_usd(is_spot=is_spot) for each in types) / on_demand if on_demand else 1.0


def _only_group(resources: Shape) -> InstanceGroup:
    for member in ("InstanceType", "InstanceCount"):
        if member not in resources:
            raise InvalidRequest(f"ResourceConfig needs an {member}.")
    _require_number(resources["InstanceCount"], "InstanceCount")
    return InstanceGroup(ONLY_GROUP, resources["InstanceType"], resources["InstanceCount"])


def _require_nothing_beside(resources: Shape) -> None:
    for member in ("InstanceType", "InstanceCount"):
        if member in resources:
            raise InvalidRequest(f"ResourceConfig has InstanceGroups, which have types and counts; leave {member} out.")
    if resources.get("KeepAlivePeriodInSeconds"):
        raise InvalidRequest("A job with InstanceGroups keeps no warm pool; leave KeepAlivePeriodInSeconds out.")


def _require_number(count: int, what: str, *, least: int = 1) -> None:
    if not least <= count <= MAX_INSTANCES:
        raise InvalidRequest(f"{what[0].upper()}{what[1:]} is {count}; it must be {least} to {MAX_INSTANCES}.")
