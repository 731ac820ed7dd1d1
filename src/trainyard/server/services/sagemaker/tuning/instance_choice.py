"""Choose among several instance types for a trial: the first in the request that is available."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import fit_types
from trainyard.engines.selection import SelectionRequest
from trainyard.foundation.errors import LimitExceeded
from trainyard.server.jobs.quotas import CapacityKind, Quotas
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.creation import JobOwner
from trainyard.server.services.sagemaker.training.engine_assignment import select_job_engine
from trainyard.server.services.sagemaker.training.instances import groups_of
from trainyard.server.services.sagemaker.tuning.trial_requests import resource_choices


def choose_resources(owner: JobOwner, definition: Mapping[str, Any], *, tags: Mapping[str, str]) -> Shape:
    """Return the first choice that its engine provides in full and the quotas allow now.

    If there is none, return the first that the quotas allow, or else the first. Raises InvalidRequest if any instance
    type or its engine is unknown.
    """
    choices = resource_choices(definition)
    if len(choices) == 1:
        return choices[0]
    types = [_types(owner, choice) for choice in choices]
    numbers, is_spot = range(len(choices)), definition.get("EnableManagedSpotTraining", False)
    within_quota = [number for number in numbers if _is_within_quota(owner, types[number], is_spot=is_spot)]
    image = definition["AlgorithmSpecification"].get("TrainingImage", "")
    capacities = [_capacity(owner, SelectionRequest(image, [each[0].name], tags)) for each in types]
    fits = [fit_types(each, capacity, is_spot=is_spot) for each, capacity in zip(types, capacities, strict=True)]
    in_full = [number for number in within_quota if fits[number].nodes and not fits[number].shortfalls]
    return choices[next(iter(in_full or within_quota or numbers))]


def _types(owner: JobOwner, choice: Shape) -> Sequence[InstanceType]:
    """Return the type of each instance; all have the same."""
    (group,) = groups_of(choice)
    return [owner.yard.compute.catalog[group.instance_type]] * group.count


def _capacity(owner: JobOwner, selection: SelectionRequest) -> Capacity:
    compute = owner.yard.compute
    return compute.engines[select_job_engine(compute, selection).engine].capacity()


def _is_within_quota(owner: JobOwner, types: Sequence[InstanceType], *, is_spot: bool) -> bool:
    kind = CapacityKind.SPOT if is_spot else CapacityKind.ON_DEMAND
    try:
        Quotas(owner.yard.records).check(owner.account, types[0].name, len(types), kind=kind)
    except LimitExceeded:
        return False
    return True
