"""Places single jobs, for tests."""

from collections.abc import Iterable, Sequence

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share


def place(
    types: Sequence[InstanceType],
    machine: Capacity,
    *,
    running: Iterable[Share],
    is_spot: bool = False,
    is_spread: bool = False,
) -> tuple[Share, ...] | None:
    return FreeResources(machine, running).place(Demand(tuple(types), is_spot, is_spread))
