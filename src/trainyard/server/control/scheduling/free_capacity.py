"""The capacity that running jobs leave free in a queue, updated node by node."""

from collections.abc import Sequence

from trainyard.engines.contract import Capacity
from trainyard.engines.placement import FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Allocation, Allocations
from trainyard.server.records.contract import ResourceId


class FreeCapacity:
    """What the running allocations of a queue leave free, per node. Read only; `update` brings it up to date.

    `version` rises with each change. `added` is the allocation that was the only cause of the last change, if one was.
    """

    def __init__(self) -> None:
        self.resources = FreeResources(Capacity(()))
        self.version = 0
        self.added: tuple[ResourceId, Allocation] | None = None
        self._allocations: Allocations = {}
        # The shares on each node, by job.
        self._by_node: dict[str, dict[ResourceId, list[Share]]] = {}

    def update(self, machine: Capacity, allocations: Allocations) -> None:
        """Bring the free capacity up to date. Only nodes on which something changed are computed again."""
        removed, added = _missing_in(allocations, self._allocations), _missing_in(self._allocations, allocations)
        touched = self._update_nodes(allocations, removed=removed, added=added)
        is_same_machine = machine == self.resources.machine
        if not is_same_machine:
            running = (share for on_node in self._by_node.values() for shares in on_node.values() for share in shares)
            self.resources = FreeResources(machine, running)
        elif touched:
            for node in touched:
                on_node = self._by_node.get(node, {})
                self.resources.reset_node(node, (share for shares in on_node.values() for share in shares))
        else:
            return
        self.version += 1
        is_one = is_same_machine and not removed and len(added) == 1
        self.added = (added[0], allocations[added[0]]) if is_one else None

    def _update_nodes(
        self, allocations: Allocations, *, removed: Sequence[ResourceId], added: Sequence[ResourceId]
    ) -> set[str]:
        """Update the shares of each node; return the nodes on which something changed."""
        touched: set[str] = set()
        before, self._allocations = self._allocations, allocations
        for job_id in removed:
            for share in before[job_id].shares:
                touched.add(share.node)
                self._by_node.get(share.node, {}).pop(job_id, None)
        for job_id in added:
            for share in allocations[job_id].shares:
                touched.add(share.node)
                self._by_node.setdefault(share.node, {}).setdefault(job_id, []).append(share)
        return touched


def _missing_in(others: Allocations, allocations: Allocations) -> list[ResourceId]:
    """Return the jobs whose allocations the others lack, or have differently."""
    # Nearly all are the same objects, and identity is faster to check than equality.
    return [
        job_id
        for job_id, allocation in allocations.items()
        if (other := others.get(job_id)) is not allocation and other != allocation
    ]


def is_shared(machine: Capacity) -> bool:
    """Whether this is one machine whose cores and memory instances share, rather than nodes that reserve them."""
    return len(machine.nodes) == 1 and not machine.nodes[0].reserves
