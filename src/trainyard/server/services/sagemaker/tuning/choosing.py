"""Which of several instance types a trial gets: the first in the order of the request that can be had."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.engines.catalog import InstanceType
from trainyard.engines.choosing import Wanted
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import fit
from trainyard.foundation.errors import LimitExceeded
from trainyard.server.quotas import CapacityKind, Quotas
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.assignment import engine_for
from trainyard.server.services.sagemaker.creation import Owner
from trainyard.server.services.sagemaker.resources import groups_of
from trainyard.server.services.sagemaker.tuning.trials import resource_choices


def chosen(owner: Owner, definition: Mapping[str, Any], *, tags: Mapping[str, str]) -> Shape:
    """The first that its engine has in full and the quotas have room for now.

    Where there is none, the first that the quotas have room for, or just the first. InvalidRequest when an instance
    type is unknown, or its engine is, be it the last one.
    """
    choices = resource_choices(definition)
    if len(choices) == 1:
        return choices[0]
    types = [_types(owner, choice) for choice in choices]
    numbers, is_spot = range(len(choices)), definition.get("EnableManagedSpotTraining", False)
    having_room = [number for number in numbers if _has_room(owner, types[number], is_spot=is_spot)]
    image = definition["AlgorithmSpecification"].get("TrainingImage", "")
    machines = [_machine(owner, Wanted(image, [each[0].name], tags)) for each in types]
    fits = [fit(each, machine, is_spot=is_spot) for each, machine in zip(types, machines, strict=True)]
    in_full = [number for number in having_room if fits[number].nodes and not fits[number].shortfalls]
    return choices[next(iter(in_full or having_room or numbers))]


def _types(owner: Owner, choice: Shape) -> Sequence[InstanceType]:
    """One for each instance, of which there is one type."""
    (group,) = groups_of(choice)
    return [owner.yard.workshop.catalog[group.instance_type]] * group.count


def _machine(owner: Owner, wanted: Wanted) -> Capacity:
    workshop = owner.yard.workshop
    return workshop.engines[engine_for(workshop, wanted).engine].capacity()


def _has_room(owner: Owner, types: Sequence[InstanceType], *, is_spot: bool) -> bool:
    kind = CapacityKind.SPOT if is_spot else CapacityKind.ON_DEMAND
    try:
        Quotas(owner.yard.records).check(owner.account, types[0].name, len(types), kind=kind)
    except LimitExceeded:
        return False
    return True
