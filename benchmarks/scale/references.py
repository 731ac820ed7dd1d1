"""The same day under simpler rules, for comparison: first come, first served, and a cluster without fragmentation."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scale.workload import Planned
from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share


@dataclass(frozen=True, slots=True)
class Reference:
    """The waiting time of each job, by name, and the end of the last one. No node fails."""

    waits_s: Mapping[str, float]
    ended_s: float


def first_come(planned: Sequence[Planned], cluster: Sequence[Node], types: Mapping[str, InstanceType]) -> Reference:
    """Schedule first come, first served: no job starts before an earlier one."""
    return _Queue(cluster, types, overtakes=False).serve(planned)


def one_large_node(planned: Sequence[Planned], cluster: Sequence[Node], types: Mapping[str, InstanceType]) -> Reference:
    """Schedule as if all nodes of a kind were one, and start every job that fits."""
    kinds: dict[tuple[bool, bool], list[Node]] = {}
    for node in cluster:
        kinds.setdefault((bool(node.gpus), node.is_spot), []).append(node)
    return _Queue([_join(each) for each in kinds.values()], types, overtakes=True).serve(planned)


def least_end_s(planned: Sequence[Planned], cluster: Sequence[Node], types: Mapping[str, InstanceType]) -> float:
    """Return a lower bound for the end of all work, however it is placed."""
    gpus, cpus = sum(len(node.gpus) for node in cluster), sum(node.cpus for node in cluster)
    wanted = [(each.count * each.length_s, types[each.instance_type]) for each in planned]
    by_gpus = sum(seconds * (each.gpus or 0) for seconds, each in wanted) / max(1, gpus)
    by_cpus = sum(seconds * (each.cpus or 0) for seconds, each in wanted) / cpus
    return max(by_gpus, by_cpus, max(each.at_s + each.length_s for each in planned))


class _Queue:
    def __init__(self, cluster: Iterable[Node], types: Mapping[str, InstanceType], *, overtakes: bool) -> None:
        self._machine = Capacity(tuple(cluster))
        self._types = types
        self._overtakes = overtakes
        self._waiting: list[Planned] = []
        self._running: dict[str, tuple[Share, ...]] = {}
        self._ends: list[tuple[float, str]] = []
        self._waits_s: dict[str, float] = {}

    def serve(self, planned: Sequence[Planned]) -> Reference:
        now_s, coming = 0.0, list(reversed(planned))
        while coming or self._ends:
            ends_s = self._ends[0][0] if self._ends else float("inf")
            now_s = min(ends_s, coming[-1].at_s if coming else float("inf"))
            while self._ends and self._ends[0][0] <= now_s:
                del self._running[heapq.heappop(self._ends)[1]]
            while coming and coming[-1].at_s <= now_s:
                self._waiting.append(coming.pop())
            self._start_all(now_s)
        assert not self._waiting, "every job fits an empty cluster"
        return Reference(self._waits_s, now_s)

    def _start_all(self, now_s: float) -> None:
        room = FreeResources(self._machine, (share for shares in self._running.values() for share in shares))
        refused: set[Demand] = set()
        still: list[Planned] = []
        for number, each in enumerate(self._waiting):
            demand = Demand((self._types[each.instance_type],) * each.count, each.is_spot)
            shares = None if demand in refused else room.place(demand)
            if shares is None:
                refused.add(demand)
                still.append(each)
                if not self._overtakes:
                    still += self._waiting[number + 1 :]
                    break
                continue
            room.allocate(shares)
            self._running[each.name] = shares
            self._waits_s[each.name] = now_s - each.at_s
            heapq.heappush(self._ends, (now_s + each.length_s, each.name))
        self._waiting = still


def _join(nodes: Sequence[Node]) -> Node:
    first = nodes[0]
    gpus = tuple(range(sum(len(node.gpus) for node in nodes)))
    return Node(
        first.name,
        sum(node.slots for node in nodes),
        sum(node.cpus for node in nodes),
        sum(node.memory_bytes for node in nodes),
        gpus,
        reserves=True,
        is_spot=first.is_spot,
    )
