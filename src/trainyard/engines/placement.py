"""Where the instances of a job run on the nodes of an engine. Nothing here looks at a real machine.

Slots, one per instance, and whole GPUs are exclusive: no two instances get the same one. On a node that reserves, so
are cores and memory. On other nodes, cores and memory are limits, and the kernel divides what there is between the
jobs that run side by side.

A job gets what its instance types promise if the empty nodes have that much for all of its instances. If they do not,
the instances are spread evenly over the nodes and their resources shrink in proportion, so that any job can start on
an empty engine, however large its instance types. Instances of one type always get the same.

Among several nodes that fit, the choice keeps whole nodes free for large jobs: jobs without GPUs avoid nodes that have
some, spot jobs prefer spot nodes, a job stays on one node if that has enough, and the fullest node wins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity, Node
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Share

_GIB = 1024**3
# CPU shares are whole hundredths of a core, rounded down.
_CPU_STEPS_PER_CORE = 100
_CACHED_FITS = 512


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks for: one instance of each of `types`, in that order.

    A spread job has each instance on a node of its own. Only spot jobs run on spot nodes.
    """

    types: tuple[InstanceType, ...]
    is_spot: bool = False
    is_spread: bool = False

    def __hash__(self) -> int:
        # A job of a hundred instances often has one type: hashing the first and the count is enough, and fast.
        return hash((self.types[:1], len(self.types), self.is_spot, self.is_spread))


@dataclass(frozen=True, slots=True)
class InstanceResources:
    """How much of a node one instance gets."""

    cpus: float
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class ResourceFit:
    """What a job gets on otherwise empty nodes.

    `shortfalls` are sentences that say where that is less than the types promise. `nodes` names a node with enough
    room for each instance; it is empty if the engine has no node for the job.
    """

    sizes: tuple[InstanceResources, ...]
    slots: int
    shortfalls: tuple[str, ...]
    nodes: tuple[str, ...] = ()


def fit_types(
    types: Sequence[InstanceType], machine: Capacity, *, is_spot: bool = False, is_spread: bool = False
) -> ResourceFit:
    """Fit a job with one instance of each of `types`, in that order, to the empty engine."""
    return fit_demand(Demand(tuple(types), is_spot, is_spread), machine)


def fit_demand(demand: Demand, machine: Capacity) -> ResourceFit:
    return _fit(demand, machine.nodes)


@dataclass(frozen=True, slots=True)
class MissingResources:
    """What must become free before a job can start; zero when it can start now."""

    slots: int
    gpus: int


def missing_resources(
    types: Sequence[InstanceType], machine: Capacity, *, running: Sequence[Share]
) -> MissingResources:
    """What a job still needs to start now, next to the running instances, on a machine that instances share."""
    fitted = fit_types(types, machine)
    gpus_in_use = len({gpu for share in running for gpu in share.gpus})
    gpus_needed = sum(size.gpus for size in fitted.sizes)
    slots = fitted.slots - (machine.slots - len(running))
    gpus = gpus_needed - (len(machine.gpus) - gpus_in_use)
    return MissingResources(max(0, slots), max(0, gpus) if gpus_needed else 0)


def check_promised_resources(
    types: Sequence[InstanceType], machine: Capacity, *, is_spot: bool = False, is_spread: bool = False
) -> None:
    """Raise InvalidRequest if the engine has less than the types promise."""
    shortfalls = fit_types(types, machine, is_spot=is_spot, is_spread=is_spread).shortfalls
    if shortfalls:
        raise InvalidRequest(
            f"{' '.join(shortfalls)} This yard is strict and does not start such a job; choose a smaller type or "
            "fewer instances."
        )


class FreeResources:
    """What the running instances leave free on the nodes of an engine. Nodes that are gone do not count."""

    def __init__(self, machine: Capacity, running: Iterable[Share] = ()) -> None:
        self._engine_nodes = _EngineNodes(machine)
        self._free = dict(self._engine_nodes.empty)
        self.allocate(running)

    @property
    def machine(self) -> Capacity:
        return self._engine_nodes.machine

    def fit_when_empty(self, demand: Demand) -> ResourceFit:
        """Fit a job as if nothing ran."""
        return self._engine_nodes.prepare(demand).fit

    def copy(self) -> "FreeResources":
        """Return an independent copy."""
        return self._with(self._free)

    def without_running(self) -> "FreeResources":
        """Return a copy in which nothing runs."""
        return self._with(self._engine_nodes.empty)

    def reset_node(self, node: str, running: Iterable[Share]) -> None:
        """Replace all allocations on a node by these. A node that is gone stays gone."""
        empty = self._engine_nodes.empty.get(node)
        if empty is not None:
            self._free[node] = empty
            self.allocate(running)

    def allocate(self, shares: Iterable[Share]) -> None:
        """Count shares as in use. They may exceed what is free; then nothing is left."""
        for share in shares:
            free = self._free.get(share.node)
            if free is not None:
                self._free[share.node] = free.minus(share)

    def place(self, demand: Demand, *, current: "FreeResources | None" = None) -> tuple[Share, ...] | None:
        """Return the share of each instance of a job that starts here, or None if too little is free.

        `current`, what is free now, is given when this is a guess at the future: then nodes on which less has to end
        first come first.
        """
        prepared = self._engine_nodes.prepare(demand)
        if not prepared.fit.nodes:
            return None
        nodes = self._pack(prepared, demand=demand, current=current)
        if nodes is None and all(self._free[name].fits_overcommitted(part) for name, part in prepared.requests.items()):
            nodes = prepared.fit.nodes
        return None if nodes is None else self._assign_shares(prepared.fit.sizes, nodes, current=current or self)

    def _pack(
        self, prepared: "_PreparedDemand", *, demand: Demand, current: "FreeResources | None"
    ) -> Sequence[str] | None:
        if current is not None:
            free = [self._free[name] for name in prepared.choices[-1]]
            return _pack_on(free, prepared.gang, demand=demand, cost=current._busy_fraction)
        for names in prepared.choices:
            nodes = _pack_on([self._free[name] for name in names], prepared.gang, demand=demand)
            if nodes is not None:
                return nodes
        return None

    def _busy_fraction(self, node: str, request: "_Request") -> float:
        """Return the fraction of a node that must become free before a request fits."""
        free = self._free[node]
        if free.fits(request):
            return 0.0
        missing = (
            (request.slots - free.slots) / free.node.slots,
            (request.cpus - free.cpus) / max(1, _cpu_steps(free.node.cpus)),
            (request.memory_bytes - free.memory_bytes) / max(1, free.node.memory_bytes),
            (request.gpus - len(free.gpus)) / max(1, len(free.node.gpus)),
        )
        return max(missing)

    def _assign_shares(
        self, sizes: Sequence[InstanceResources], nodes: Sequence[str], *, current: "FreeResources"
    ) -> tuple[Share, ...]:
        """Give each instance the first free GPUs of its node, and before them those that are free now."""
        gpus = {
            name: iter(sorted(self._free[name].gpus, key=lambda gpu: (gpu not in current._free[name].gpus, gpu)))
            for name in set(nodes)
        }
        return tuple(
            Share(size.cpus, size.memory_bytes, tuple(next(gpus[name]) for _ in range(size.gpus)), name)
            for size, name in zip(sizes, nodes, strict=True)
        )

    def _with(self, free: "Mapping[str, _FreeNode]") -> "FreeResources":
        other = FreeResources.__new__(FreeResources)
        other._engine_nodes, other._free = self._engine_nodes, dict(free)
        return other


class _EngineNodes:
    """The nodes of an engine, and what is known about demands whatever runs there. Copies of FreeResources share it."""

    def __init__(self, machine: Capacity) -> None:
        self.machine = machine
        self.empty = {node.name: _FreeNode.of(node) for node in machine.nodes}
        self._prepared: dict[Demand, _PreparedDemand] = {}

    def prepare(self, demand: Demand) -> "_PreparedDemand":
        known = self._prepared.get(demand)
        if known is None:
            if len(self._prepared) >= _CACHED_FITS:
                self._prepared.clear()
            known = self._prepared[demand] = _PreparedDemand.of(demand, self.machine)
        return known


class _Request(NamedTuple):
    """The resources that instances need on one node; cores in steps."""

    slots: int
    cpus: int
    memory_bytes: int
    gpus: int


_NOTHING = _Request(0, 0, 0, 0)


class _Gang:
    """The instances of a job, which start together or not at all, in the form that packing reads often."""

    __slots__ = ("count", "has_gpus", "instances_by_size", "request")

    def __init__(self, sizes: Sequence[InstanceResources]) -> None:
        self.count = len(sizes)
        self.has_gpus = any(size.gpus for size in sizes)
        whole = InstanceResources(*(sum(amounts) for amounts in zip(*map(_amounts, sizes), strict=True)))
        self.request = _request(whole)._replace(slots=len(sizes))
        numbers: dict[InstanceResources, list[int]] = {}
        for number, size in enumerate(sizes):
            numbers.setdefault(size, []).append(number)
        largest_first = sorted(numbers, key=_size_order, reverse=True)
        self.instances_by_size = [(_request(size), numbers[size]) for size in largest_first]


class _PreparedDemand(NamedTuple):
    """What can be known about a demand before looking at what runs.

    `choices` are sets of nodes to search, the best first. `requests` is what the job needs of each node on which it
    certainly fits.
    """

    fit: ResourceFit
    gang: _Gang
    choices: Sequence[Sequence[str]]
    requests: Mapping[str, _Request]

    @classmethod
    def of(cls, demand: Demand, machine: Capacity) -> "_PreparedDemand":
        fitted = fit_demand(demand, machine)
        requests: dict[str, _Request] = {}
        for name, size in zip(fitted.nodes, fitted.sizes if fitted.nodes else (), strict=True):
            requests[name] = _sum(requests.get(name, _NOTHING), _request(size))
        gang, eligible = _Gang(fitted.sizes), [node for node in machine.nodes if _is_eligible(node, demand)]
        choices = [[node.name for node in nodes] for nodes in _choices(gang, eligible)]
        return cls(fitted, gang, choices, requests)


class _FreeNode(NamedTuple):
    """What is free on a node."""

    node: Node
    slots: int
    cpus: int
    memory_bytes: int
    gpus: frozenset[int]
    is_empty: bool

    @classmethod
    def of(cls, node: Node) -> "_FreeNode":
        return cls(node, node.slots, _cpu_steps(node.cpus), node.memory_bytes, frozenset(node.gpus), is_empty=True)

    def minus(self, share: Share) -> "_FreeNode":
        """What is left after a share is allocated as well."""
        cpus, memory_bytes = self.cpus, self.memory_bytes
        if self.node.reserves:
            cpus -= _cpu_steps(share.cpus or 0)
            memory_bytes -= share.memory_bytes or 0
        gpus = self.gpus.difference(share.gpus) if share.gpus else self.gpus
        return _FreeNode(self.node, self.slots - 1, cpus, memory_bytes, gpus, is_empty=False)

    def fits(self, request: _Request) -> bool:
        return (
            request.slots <= self.slots
            and request.cpus <= self.cpus
            and request.memory_bytes <= self.memory_bytes
            and request.gpus <= len(self.gpus)
        )

    def fits_overcommitted(self, request: _Request) -> bool:
        """Whether a request fits that may have more instances than the node has slots, and then needs all of them."""
        if self.is_empty or self.fits(request):
            return True
        has_slots = min(request.slots, self.node.slots) <= self.slots
        return has_slots and request.gpus <= len(self.gpus) and not self.node.reserves

    def count_fitting(self, one: _Request) -> int:
        """How many instances of one size fit."""
        available = (self.slots, self.cpus, self.memory_bytes, len(self.gpus))
        return min(has // needs for has, needs in zip(available, one, strict=True) if needs)


_Cost = Callable[[str, _Request], float]


def _is_eligible(node: Node, demand: Demand) -> bool:
    return node.slots > 0 and (demand.is_spot or not node.is_spot)


def _choices(gang: _Gang, nodes: Sequence[Node]) -> Sequence[Sequence[Node]]:
    """A job without GPUs gets nodes that have some only if the others are too full."""
    if gang.has_gpus:
        return (nodes,)
    plain = [node for node in nodes if not node.gpus]
    return (nodes,) if len(plain) == len(nodes) else (plain, nodes)


def _pack_on(
    free: Sequence[_FreeNode], gang: _Gang, *, demand: Demand, cost: _Cost | None = None
) -> Sequence[str] | None:
    """Return the node of each instance: one for all if possible, else as few as possible. Spread: all different."""
    if not demand.is_spread:
        fitting = _fitting_nodes(free, gang.request)
        if fitting:
            best = min(fitting, key=lambda each: _rank(each, gang.request, demand=demand, cost=cost))
            return [best.node.name] * gang.count
    nodes, used = [""] * gang.count, dict[str, _Request]()
    for one, instances in gang.instances_by_size:
        fitting = _fitting_nodes(free, one)
        most = len(fitting) if demand.is_spread else sum(each.count_fitting(one) for each in fitting)
        if most < len(instances):
            return None
        unplaced = list(instances)
        for each in sorted(fitting, key=lambda each: _rank(each, one, demand=demand, cost=cost)):
            _fill(each, one, unplaced=unplaced, nodes=nodes, used=used, is_spread=demand.is_spread)
            if not unplaced:
                break
        if unplaced:
            return None
    return nodes


def _fitting_nodes(free: Sequence[_FreeNode], request: _Request) -> list[_FreeNode]:
    # `fits` written out: backfill asks this of all nodes once for each job that ends before.
    slots, cpus, memory_bytes, gpus = request
    return [
        each
        for each in free
        if cpus <= each.cpus and slots <= each.slots and gpus <= len(each.gpus) and memory_bytes <= each.memory_bytes
    ]


def _fill(
    free: _FreeNode,
    one: _Request,
    *,
    unplaced: list[int],
    nodes: list[str],
    used: dict[str, _Request],
    is_spread: bool,
) -> None:
    """Place as many of the unplaced instances on a node as fit, or a single one if the job is spread."""
    name = free.node.name
    while unplaced and not (is_spread and name in used):
        request = _sum(used.get(name, _NOTHING), one)
        if not free.fits(request):
            return
        used[name] = request
        nodes[unplaced.pop(0)] = name


def _rank(free: _FreeNode, request: _Request, *, demand: Demand, cost: _Cost | None) -> tuple[float, ...]:
    """Sort key by which the best node comes first: where least has to end before, then where least is left over."""
    node = free.node
    return (
        cost(node.name, request) if cost is not None else 0.0,
        demand.is_spot and not node.is_spot,
        bool(node.gpus) and not request.gpus,
        free.is_empty,
        len(free.gpus),
        free.cpus,
        free.memory_bytes,
        free.slots,
    )


@lru_cache(maxsize=_CACHED_FITS)
def _fit(demand: Demand, nodes: tuple[Node, ...]) -> ResourceFit:
    eligible = [node for node in nodes if _is_eligible(node, demand)]
    sizes = [_promised_resources(each, eligible) for each in demand.types]
    gang, chosen = _Gang(sizes), None
    for among in _choices(gang, eligible):
        chosen = chosen or _pack_on([_FreeNode.of(node) for node in among], gang, demand=demand)
    if chosen is None:
        chosen = _balance(sizes, eligible, demand=demand)
        sizes = _shrink(demand.types, sizes, nodes=eligible, chosen=chosen)
    slots = min(len(sizes), sum(node.slots for node in eligible))
    shortfalls = _shortfalls(demand, sizes, nodes=eligible, chosen=chosen) if chosen else ()
    return ResourceFit(tuple(sizes), slots, tuple(shortfalls), tuple(chosen))


def _promised_resources(wanted: InstanceType, nodes: Sequence[Node]) -> InstanceResources:
    """What a type promises. A type that leaves an amount open gets the most that any node has."""
    cpus = max((node.cpus for node in nodes), default=0) if wanted.cpus is None else wanted.cpus
    memory_bytes = max((node.memory_bytes for node in nodes), default=0)
    if wanted.memory_gib is not None:
        memory_bytes = int(wanted.memory_gib * _GIB)
    gpus = max((len(node.gpus) for node in nodes), default=0) if wanted.gpus is None else wanted.gpus
    return InstanceResources(_round_cpus(cpus), memory_bytes, gpus)


def _balance(sizes: Sequence[InstanceResources], nodes: Sequence[Node], *, demand: Demand) -> Sequence[str]:
    """Return the node of each instance where they need more than there is, so that all nodes are loaded evenly."""
    if not nodes:
        return ()
    most = ceil(len(sizes) / len(nodes)) if demand.is_spread else len(sizes)
    has_gpus = sum(len(node.gpus) for node in nodes) >= sum(1 for size in sizes if size.gpus)
    requests = {node.name: _NOTHING for node in nodes}
    chosen = [""] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: _size_order(sizes[number]), reverse=True):
        size = sizes[number]
        one = _request(size if has_gpus else InstanceResources(size.cpus, size.memory_bytes, 0))
        best = min(nodes, key=lambda node: _overload(node, _sum(requests[node.name], one), most=most))
        chosen[number] = best.name
        requests[best.name] = _sum(requests[best.name], one)
    return chosen


def _overload(node: Node, request: _Request, *, most: int) -> tuple[float, ...]:
    """Sort key: how far a request exceeds a node, and the number of instances that it may have."""
    gpus = request.gpus / len(node.gpus) if node.gpus else inf
    return (
        request.slots > most,
        max(0, request.slots - node.slots) / node.slots,
        gpus if request.gpus else 0,
        max(request.cpus / max(1, _cpu_steps(node.cpus)), request.memory_bytes / max(1, node.memory_bytes)),
    )


def _shrink(
    types: Sequence[InstanceType], sizes: Sequence[InstanceResources], *, nodes: Sequence[Node], chosen: Sequence[str]
) -> list[InstanceResources]:
    """Shrink each instance to what its node has; instances of one type all get the least that any of them gets."""
    shrunk = list(sizes)
    for node in nodes:
        numbers = [number for number, name in enumerate(chosen) if name == node.name]
        # On a node that reserves nothing may be exceeded: each gets the smallest share before the rest is divided.
        least_cpus = node.reserves / _CPU_STEPS_PER_CORE
        cpus = _scale_down([sizes[number].cpus for number in numbers], node.cpus, least=least_cpus)
        memory = _scale_down([sizes[number].memory_bytes for number in numbers], node.memory_bytes)
        gpus = _scale_down_whole([sizes[number].gpus for number in numbers], len(node.gpus))
        for number, *size in zip(numbers, cpus, memory, gpus, strict=True):
            shrunk[number] = InstanceResources(_round_cpus(size[0]), int(size[1]), int(size[2]))
    least: dict[InstanceType, InstanceResources] = {}
    for each, shrunk_size in zip(types, shrunk, strict=True):
        least[each] = _minimum(least.get(each, shrunk_size), shrunk_size)
    return [least[each] for each in types]


def _scale_down(wanted: Sequence[float], available: float, *, least: float = 0.0) -> list[float]:
    """Scale amounts down in proportion, if need be, so that their sum is available. Each keeps at least `least`."""
    if sum(wanted) <= available:
        return list(wanted)
    above, spare = (total - least * len(wanted) for total in (sum(wanted), available))
    return [least + (amount - least) * max(0.0, spare) / above for amount in wanted]


def _scale_down_whole(wanted: Sequence[int], available: int) -> list[int]:
    """Scale whole numbers down. Equal amounts stay equal, so some of what is available may stay unused.

    A gang in which some instances train on a GPU and some on the CPU would fail, or its ranks would wait for ever.
    """
    total = sum(wanted)
    return [count * available // total for count in wanted] if total > available else list(wanted)


def _minimum(one: InstanceResources, other: InstanceResources) -> InstanceResources:
    return InstanceResources(
        min(one.cpus, other.cpus), min(one.memory_bytes, other.memory_bytes), min(one.gpus, other.gpus)
    )


def _shortfalls(
    demand: Demand, sizes: Sequence[InstanceResources], *, nodes: Sequence[Node], chosen: Sequence[str]
) -> Iterator[str]:
    """Say what is less than asked for, once per type."""
    where = "on this machine" if [node.name for node in nodes] == [""] else "on the available nodes"
    yield from dict.fromkeys(
        line for each, size in zip(demand.types, sizes, strict=True) if (line := _shortfall(each, size, where=where))
    )
    count, slots, node_count = len(sizes), sum(node.slots for node in nodes), len(set(chosen))
    if slots < count:
        yield f"Its {count} instances share {_count(slots, 'slot')}."
    if demand.is_spread and node_count < count:
        yield f"Its {count} instances run on {_count(node_count, 'node')}, because no more are available."


def _shortfall(wanted: InstanceType, size: InstanceResources, *, where: str) -> str:
    parts = list(_shortfall_parts(wanted, size))
    if not parts:
        return ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return f"Each {wanted.name} gets {listed} {where}."


def _shortfall_parts(wanted: InstanceType, size: InstanceResources) -> Iterator[str]:
    if wanted.cpus is not None and size.cpus < wanted.cpus:
        yield f"{size.cpus:g} of {wanted.cpus:g} CPUs"
    if wanted.memory_gib is not None and size.memory_bytes < int(wanted.memory_gib * _GIB):
        yield f"{size.memory_bytes / _GIB:.1f} of {wanted.memory_gib:g} GiB of memory"
    if wanted.gpus is not None and size.gpus < wanted.gpus:
        yield f"{size.gpus or 'none'} of {_count(wanted.gpus, 'GPU')}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _round_cpus(cpus: float) -> float:
    return max(1, _cpu_steps(cpus)) / _CPU_STEPS_PER_CORE


def _cpu_steps(cpus: float) -> int:
    # In floating point, 0.29 times a hundred is less than 29.
    return int(cpus * _CPU_STEPS_PER_CORE + 1e-6)


def _request(size: InstanceResources) -> _Request:
    return _Request(1, _cpu_steps(size.cpus), size.memory_bytes, size.gpus)


def _sum(one: _Request, other: _Request) -> _Request:
    return _Request(*map(int.__add__, one, other))


def _amounts(size: InstanceResources) -> tuple[float, int, int]:
    return size.cpus, size.memory_bytes, size.gpus


def _size_order(size: InstanceResources) -> tuple[int, float, int]:
    return size.gpus, size.cpus, size.memory_bytes
