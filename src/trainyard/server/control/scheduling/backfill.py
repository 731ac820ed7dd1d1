"""Backfill: jobs behind one that does not fit start beside the capacity that is reserved for it.

On a machine whose cores and memory instances share there is no backfill: each job that starts there takes something
from those that run.
"""

from collections.abc import Iterable

from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import ResourceRequest

BACKFILL_DEPTH = 50  # jobs of a queue that are looked at, with the first


def find_backfill(
    requests: Iterable[ResourceRequest], left: FreeResources, *, refused: set[Demand]
) -> tuple[ResourceRequest, tuple[Share, ...]] | None:
    """Return the first job that fits into what is left beside the reservations, with its shares.

    Demands in `refused` are known not to fit; those that turn out not to fit are added.
    """
    for request in requests:
        if request.demand in refused:
            continue
        shares = left.place(request.demand)
        if shares is not None:
            return request, shares
        refused.add(request.demand)
    return None
