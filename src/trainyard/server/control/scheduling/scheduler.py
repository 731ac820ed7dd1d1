"""Decides which waiting jobs start now, and preempts spot jobs: what scheduling needs of records and engines.

A pass over a queue in which nothing changed is cheap. Free capacity is updated node by node, and a job that did not fit
is not tried again until something ends or a node changes. Which jobs wait is read from the records every time, because
other processes write to them too.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainyard.engines.contract import Capacity
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.placement import FreeResources, missing_resources
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import InvalidRequest, NotFound, Unavailable
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.backfill import BACKFILL_DEPTH, find_backfill
from trainyard.server.control.scheduling.contract import (
    Allocation,
    Allocations,
    Placement,
    ResourceRequest,
    SchedulableJobs,
    shares_of,
)
from trainyard.server.control.scheduling.free_capacity import FreeCapacity, is_shared
from trainyard.server.control.scheduling.preemption import select_on_machine, select_on_nodes
from trainyard.server.control.scheduling.queue_order import (
    engines_by_queue,
    fair_share_of,
    order_heads,
    record_queues_of,
)
from trainyard.server.control.scheduling.reservation import (
    Reservation,
    place_or_reserve_aged,
    reserve_nodes,
    select_aged,
)
from trainyard.server.records.contract import QueuedResource, Records, Resource, ResourceId

log = logging.getLogger(__name__)

_MAX_CACHED_REQUESTS = 20_000


@dataclass(slots=True)
class SchedulerCache:
    """What the scheduler need not compute again. All of it may be lost."""

    requests: dict[ResourceId, ResourceRequest] = field(default_factory=dict)
    # The last turn of each account in a queue.
    turns: dict[tuple[str, str], datetime] = field(default_factory=dict)
    # The free capacity of each queue, with its spot jobs counted (True) or not.
    capacities: dict[tuple[str, bool], FreeCapacity] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)


class AllocationTable:
    """The allocations of all placed jobs of a yard, of every kind. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allocations: dict[ResourceId, Allocation] | None = None

    def load(self, read: Callable[[], Allocations]) -> None:
        """Fill the table on the first call; later calls do nothing."""
        with self._lock:
            if self._allocations is None:
                self._allocations = dict(read())

    def add(self, job_id: ResourceId, allocation: Allocation) -> None:
        """Count an allocation as in use, instead of what the job held before."""
        with self._lock:
            self._loaded[job_id] = allocation

    def remove(self, job_id: ResourceId, allocation: Allocation | None = None) -> None:
        """Free what a job holds; with `allocation`, only if it still holds that and was not placed again."""
        with self._lock:
            if allocation is None or self._loaded.get(job_id) is allocation:
                self._loaded.pop(job_id, None)

    def snapshot(self) -> Allocations:
        """Return a copy."""
        with self._lock:
            return dict(self._loaded)

    @property
    def _loaded(self) -> dict[ResourceId, Allocation]:
        assert self._allocations is not None, "the table is loaded before it is used"
        return self._allocations


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Schedules the jobs of all kinds, which share the queues and the capacity of the engines.

    `jobs` has an entry for each kind of record. Only one thread at a time may call `next_placements`.
    """

    records: Records
    engines: EngineSet
    jobs: Mapping[str, SchedulableJobs]
    clock: Clock
    site: str = ""  # of this yard among several on one database
    table: AllocationTable = field(default_factory=AllocationTable, compare=False)
    cache: SchedulerCache = field(default_factory=SchedulerCache, compare=False)

    def read_allocations(self) -> dict[ResourceId, Allocation]:
        """Read from the records what each job holds that has been placed here and has not ended."""
        return {
            job_id: allocation for jobs in self.jobs.values() for job_id, allocation in jobs.read_allocations().items()
        }

    def next_placements(self, running: Allocations) -> Sequence[Placement]:
        """Return the jobs that can start now beside those that run, at most one from each queue.

        If the first job of a queue does not fit and is on demand, spot jobs that hold the capacity are preempted.
        """
        placements = (self._queue(name, running).next_placement() for name in engines_by_queue(self.engines))
        return [placement for placement in placements if placement is not None]

    def record_turn(self, engine: str, account: str, *, at: datetime) -> None:
        """Remember that an account had its turn in the queue of an engine. Backfill does not count as a turn."""
        self.cache.turns[self.engines.queue_of(engine), account] = at

    def _queue(self, name: str, running: Allocations) -> "_QueuePass":
        engines = {allocation.engine for allocation in running.values()}
        engines = {engine for engine in engines if self.engines.queue_of(engine) == name}
        allocations = {job_id: each for job_id, each in running.items() if each.engine in engines}
        return _QueuePass(self, name, allocations, self.clock())


@dataclass(frozen=True, slots=True)
class _QueuePass:
    """One scheduling pass over one queue, with the allocations of the jobs that were placed from it."""

    scheduler: Scheduler
    name: str
    allocations: Allocations
    now: datetime

    def next_placement(self) -> Placement | None:
        """Return the next job that can start; None if none can or the engine is not available."""
        heads = self._heads()
        if not heads:
            return None
        try:
            first = self._request(heads[0])
            machine = self.scheduler.engines[first.engine].capacity()
        except InvalidRequest as error:
            # The catalog has changed since the job was created.
            return self._refusal(heads[0], error.message)
        except (NotFound, Unavailable) as error:
            log.debug("a queue must wait", extra={"queue": self.name, "why": error.message})
            return None
        capacity = self._free_capacity(machine)
        shares = None if self._is_known_not_to_fit(first, capacity) else capacity.resources.place(first.demand)
        if shares is not None:
            return _placement(first, shares, capacity.resources)
        return self._place_behind(first, capacity, heads=heads)

    def _place_behind(
        self, first: ResourceRequest, capacity: FreeCapacity, *, heads: Sequence[QueuedResource]
    ) -> Placement | None:
        """Reserve capacity for the first job, which does not fit; return a job behind it that fits beside that."""
        behind = () if is_shared(capacity.resources.machine) else self._behind(heads)
        aged = select_aged(heads[0], behind, now=self.now)
        reservation = self.scheduler.cache.reservations.get(self.name)
        if (
            reservation is None
            or not self._is_known_not_to_fit(first, capacity)
            or not reservation.covers(aged, now=self.now)
        ):
            reserved, left = self._reserve(first, capacity), capacity.resources.copy()
            left.allocate(reserved)
            found = place_or_reserve_aged(self._requests(aged), capacity.resources, left=left, reserved=reserved)
            if found is not None:
                return _placement(*found, left, is_backfill=True)
            reservation = Reservation.of(first.id, aged, capacity, left=left, now=self.now)
            self.scheduler.cache.reservations[self.name] = reservation
        found = find_backfill(self._requests(behind), reservation.left, refused=reservation.refused)
        if found is None:
            return None
        reservation.last_backfill = _placement(*found, reservation.left, is_backfill=True)
        return reservation.last_backfill

    def _is_known_not_to_fit(self, first: ResourceRequest, capacity: FreeCapacity) -> bool:
        known = self.scheduler.cache.reservations.get(self.name)
        if known is None or known.job_id != first.id:
            return False
        known.update(capacity)
        return known.is_for(first.id, capacity)

    def _reserve(self, first: ResourceRequest, capacity: FreeCapacity) -> Sequence[Share]:
        """Return where the first job will run, and preempt the spot jobs that are in its way there."""
        free, has_spot = capacity.resources, any(each.is_spot for each in self.allocations.values())
        may_preempt = has_spot and not first.demand.is_spot
        if is_shared(free.machine):
            if may_preempt:
                self._preempt_on_machine(first, free.machine)
            return ()
        reserved = self._preempt_on_nodes(first, free) if may_preempt else None
        return reserved or reserve_nodes(first.demand, free)

    def _preempt_on_machine(self, first: ResourceRequest, machine: Capacity) -> None:
        """Preempt the spot jobs whose capacity the first job needs once those that leave anyway have left."""
        lasting = self._lasting(self.allocations)
        missing = missing_resources(first.demand.types, machine, running=shares_of(lasting))
        spot = {job_id: each for job_id, each in lasting.items() if each.is_spot}
        self._preempt(select_on_machine(missing, spot, now=self.now))

    def _preempt_on_nodes(self, first: ResourceRequest, free: FreeResources) -> tuple[Share, ...] | None:
        """Preempt the spot jobs on the nodes where the first job will run; return its shares there."""
        without_spot = self._capacity_without_spot(free.machine).resources
        reserved = without_spot.place(first.demand, current=free)
        if reserved is None:
            return None
        nodes = {share.node for share in reserved}
        spot = {job_id: each for job_id, each in self.allocations.items() if each.is_spot}
        near = {job_id: each for job_id, each in spot.items() if nodes & {share.node for share in each.shares}}
        lasting = {job_id: near[job_id] for job_id in self._lasting(near)}
        without_near = without_spot.copy()
        without_near.allocate(shares_of({job_id: each for job_id, each in spot.items() if job_id not in near}))
        self._preempt(select_on_nodes(first.demand, without_near, lasting))
        return reserved

    def _preempt(self, job_ids: Sequence[ResourceId]) -> None:
        for job_id in job_ids:
            resource = self._load(job_id)
            if resource is not None:
                self.scheduler.jobs[resource.key.kind].preempt(job_id)

    def _lasting(self, allocations: Allocations) -> dict[ResourceId, Allocation]:
        """Return the allocations that will not soon be free anyway, as their jobs have them now."""
        found = ((job_id, self._load(job_id)) for job_id in allocations)
        held = (
            (job_id, self.scheduler.jobs[resource.key.kind].lasting_allocation(resource))
            for job_id, resource in found
            if resource is not None
        )
        return {job_id: allocation for job_id, allocation in held if allocation is not None}

    def _load(self, job_id: ResourceId) -> Resource | None:
        try:
            return self.scheduler.records.load_by_id(job_id)
        except NotFound:
            return None

    def _heads(self) -> Sequence[QueuedResource]:
        """Return the first job of each account, in the order in which they should start."""
        names = record_queues_of(self.name, self.scheduler.engines, site=self.scheduler.site)
        turns = {account: at for (queue, account), at in self.scheduler.cache.turns.items() if queue == self.name}
        heads = [head for kind in self.scheduler.jobs for head in self.scheduler.records.heads(kind, names)]
        return order_heads(heads, fair_share_of(self.allocations, turns))

    def _behind(self, heads: Sequence[QueuedResource]) -> Sequence[QueuedResource]:
        """Return the candidates for backfill: the first jobs of the other accounts, and then those behind them."""
        found = list(heads[1:BACKFILL_DEPTH])
        per_account = (BACKFILL_DEPTH - len(heads)) // len(heads)
        if per_account <= 0:
            return found
        head_ids, accounts = {head.id for head in heads}, dict[str, list[str]]()
        for head in heads:
            accounts.setdefault(head.queue, []).append(head.account)
        for queue, names in accounts.items():
            for kind in self.scheduler.jobs:
                others = self.scheduler.records.waiting(kind, queue, accounts=names, limit=per_account + 1)
                found += (waiting for waiting in others if waiting.id not in head_ids)
        return found

    def _request(self, waiting: QueuedResource) -> ResourceRequest:
        """Return what a job needs. NotFound if it is gone, InvalidRequest if the catalog no longer has its types."""
        requests = self.scheduler.cache.requests
        known = requests.get(waiting.id)
        if known is None:
            resource = self.scheduler.records.load_by_id(waiting.id)
            known = self.scheduler.jobs[resource.key.kind].request_of(resource)
            if len(requests) >= _MAX_CACHED_REQUESTS:
                requests.clear()
            requests[waiting.id] = known
        return known

    def _requests(self, waiting: Sequence[QueuedResource]) -> Iterator[ResourceRequest]:
        """Yield what jobs behind the first need. An invalid one is skipped here, and refused when it is first."""
        for each in waiting:
            try:
                request = self._request(each)
            except (NotFound, InvalidRequest):
                continue
            yield request

    def _refusal(self, head: QueuedResource, reason: str) -> Placement | None:
        resource = self._load(head.id)
        return None if resource is None else Placement(head.id, resource.key.kind, refusal=reason)

    def _free_capacity(self, machine: Capacity) -> FreeCapacity:
        return self._update_capacity(machine, self.allocations, has_spot=True)

    def _capacity_without_spot(self, machine: Capacity) -> FreeCapacity:
        """Return what would be free without the spot jobs."""
        on_demand = {job_id: each for job_id, each in self.allocations.items() if not each.is_spot}
        return self._update_capacity(machine, on_demand, has_spot=False)

    def _update_capacity(self, machine: Capacity, allocations: Allocations, *, has_spot: bool) -> FreeCapacity:
        capacity = self.scheduler.cache.capacities.setdefault((self.name, has_spot), FreeCapacity())
        capacity.update(machine, allocations)
        return capacity


def _placement(
    request: ResourceRequest, shares: tuple[Share, ...], free: FreeResources, *, is_backfill: bool = False
) -> Placement:
    shortfalls = free.fit_when_empty(request.demand).shortfalls
    return Placement(request.id, request.kind, shares, shortfalls, is_backfill=is_backfill)
