"""Which of several instance types a trial gets: the first in the order of the request that can be had."""

from collections.abc import Sequence

from trainyard.engines.catalog import InstanceType
from trainyard.engines.placement import fit
from trainyard.foundation.errors import LimitExceeded
from trainyard.server.quotas import CapacityKind, Quotas
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.creation import Owner
from trainyard.server.services.sagemaker.resources import groups_of


def chosen(owner: Owner, choices: Sequence[Shape], *, is_spot: bool) -> Shape:
    """The first that the machine has in full and the quotas have room for now.

    Where there is none, the first that the quotas have room for, or just the first. InvalidRequest when an instance
    type is unknown, be it the last one.
    """
    if len(choices) == 1:
        return choices[0]
    types = [_types(owner, choice) for choice in choices]
    numbers = range(len(choices))
    having_room = [number for number in numbers if _has_room(owner, types[number], is_spot=is_spot)]
    machine = owner.yard.workshop.engines.first.capacity()
    in_full = [number for number in having_room if not fit(types[number], machine).shortfalls]
    return choices[next(iter(in_full or having_room or numbers))]


def _types(owner: Owner, choice: Shape) -> Sequence[InstanceType]:
    """One for each instance, of which there is one type."""
    (group,) = groups_of(choice)
    return [owner.yard.workshop.catalog[group.instance_type]] * group.count


def _has_room(owner: Owner, types: Sequence[InstanceType], *, is_spot: bool) -> bool:
    kind = CapacityKind.SPOT if is_spot else CapacityKind.ON_DEMAND
    try:
        Quotas(owner.yard.records).check(owner.account, types[0].name, len(types), kind=kind)
    except LimitExceeded:
        return False
    return True
