"""Which spot jobs give their capacity to an on-demand job that waits."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from trainyard.engines.placement import Demand, FreeResources, MissingResources
from trainyard.server.control.scheduling.contract import Allocations
from trainyard.server.records.contract import ResourceId


def select_on_machine(missing: MissingResources, spot: Allocations, *, now: datetime) -> Sequence[ResourceId]:
    """Return the fewest spot jobs on a shared machine that free what is missing.

    Of several such choices, return the one by which the least work is lost; none if all spot jobs together do not
    free enough.
    """
    # For each amount that can be freed, counted up to what is missing, the best choice that frees it.
    best: dict[MissingResources, tuple[ResourceId, ...]] = {MissingResources(0, 0): ()}
    for job_id, allocation in spot.items():
        slots, gpus = len(allocation.shares), sum(len(share.gpus) for share in allocation.shares)
        for freed, already in list(best.items()):
            more = MissingResources(min(missing.slots, freed.slots + slots), min(missing.gpus, freed.gpus + gpus))
            choice = (*already, job_id)
            if more not in best or _loss(choice, spot, now) < _loss(best[more], spot, now):
                best[more] = choice
    return best.get(missing, ())


def select_on_nodes(demand: Demand, free: FreeResources, spot: Allocations) -> Sequence[ResourceId]:
    """Return the spot jobs that must end so that a job fits; `free` is what is free without all of them.

    The youngest are chosen, and none that could stay; none if all spot jobs together do not free enough.
    """
    if not spot or free.place(demand) is None:
        return ()
    chosen = []
    for job_id, allocation in sorted(spot.items(), key=lambda entry: entry[1].since):
        fuller = free.copy()
        fuller.allocate(allocation.shares)
        if fuller.place(demand) is None:
            chosen.append(job_id)
        else:
            free = fuller
    return chosen


def _loss(choice: Iterable[ResourceId], spot: Allocations, now: datetime) -> tuple[int, timedelta]:
    ran = [now - spot[job_id].since for job_id in choice]
    return len(ran), sum(ran, timedelta())
