"""How a job is fitted to the nodes of an engine, and where it can start now. Nothing here looks at a real machine.

Slots, one for each instance, and whole GPUs are handed out so that no two instances have the same one. On a node that
reserves, so are cores and memory. On one that does not they are ceilings, below which jobs side by side share what
there is as the kernel divides it.

What a type promises is given where the empty nodes have that much for all instances of the job. Where they have not,
its instances are laid over the nodes evenly and what they get shrinks in proportion, so that any job can start on an
engine that is empty, however large the types it names. Instances of one type always get the same.

Of several places the one is taken by which large jobs find whole nodes later: jobs without GPUs rather not on nodes
that have some, spot jobs rather on spot nodes, a job on one node where one has the room, and where least is left over.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity, Node
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import Share

_GIB = 1024**3
_CPU_STEP = 100  # shares are whole hundredths of a core, rounded down
_FITS_KEPT = 512


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks for: an instance of each of `types`, in that order.

    A job that is spread has each instance on a node of its own. Spot nodes are for spot jobs alone.
    """

    types: tuple[InstanceType, ...]
    is_spot: bool = False
    is_spread: bool = False

    def __hash__(self) -> int:
        return hash((self.types[:1], len(self.types), self.is_spot, self.is_spread))  # of a hundred types often one


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a node one instance gets."""

    cpus: float
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A job on otherwise empty nodes. `shortfalls` are sentences that say what is less than the types promise.

    `nodes` are names by which it is sure that each instance has a place there; none where no node is there for it.
    """

    sizes: tuple[Size, ...]
    slots: int
    shortfalls: tuple[str, ...]
    nodes: tuple[str, ...] = ()


def fit(types: Sequence[InstanceType], machine: Capacity, *, is_spot: bool = False, is_spread: bool = False) -> Fit:
    """Fit a job with one instance of each of `types`, in that order, to all that the engine has."""
    return fit_demand(Demand(tuple(types), is_spot, is_spread), machine)


def fit_demand(demand: Demand, machine: Capacity) -> Fit:
    return _fit(demand, machine.nodes)


@dataclass(frozen=True, slots=True)
class Lack:
    """What there must be more of before a job can start; nothing when it can."""

    slots: int
    gpus: int


def lacking(types: Sequence[InstanceType], machine: Capacity, *, running: Sequence[Share]) -> Lack:
    """What a job that would start now on a machine that instances share lacks beside those that run."""
    fitted = fit(types, machine)
    gpus_taken = len({gpu for share in running for gpu in share.gpus})
    wanted = sum(size.gpus for size in fitted.sizes)
    slots, gpus = fitted.slots - (machine.slots - len(running)), wanted - (len(machine.gpus) - gpus_taken)
    return Lack(max(0, slots), max(0, gpus) if wanted else 0)


def place(
    types: Sequence[InstanceType],
    machine: Capacity,
    *,
    running: Iterable[Share],
    is_spot: bool = False,
    is_spread: bool = False,
) -> tuple[Share, ...] | None:
    """The share of each instance of a job that starts now beside those that run; None while there is no room.

    `running` has one share for each instance on the engine, of whichever job.
    """
    return Room(machine, running).place(Demand(tuple(types), is_spot, is_spread))


def check_strictly(
    types: Sequence[InstanceType], machine: Capacity, *, is_spot: bool = False, is_spread: bool = False
) -> None:
    """InvalidRequest when the engine has less than what the types promise."""
    shortfalls = fit(types, machine, is_spot=is_spot, is_spread=is_spread).shortfalls
    if shortfalls:
        raise InvalidRequest(
            f"{' '.join(shortfalls)} This yard is strict and does not start such a job; name a smaller type or fewer "
            "instances."
        )


class Room:
    """What is free on the nodes of an engine beside instances that run; those on nodes that are gone count nothing."""

    def __init__(self, machine: Capacity, running: Iterable[Share] = ()) -> None:
        self._layout = _Layout(machine)
        self._free = dict(self._layout.empty)
        self.take(running)

    @property
    def machine(self) -> Capacity:
        return self._layout.machine

    def fitted(self, demand: Demand) -> Fit:
        """A job in this room if it were empty."""
        return self._layout.wanted(demand).fitted

    def copy(self) -> "Room":
        """A room of its own with as much free."""
        return self._with(self._free)

    def emptied(self) -> "Room":
        """One of its own in which nothing runs."""
        return self._with(self._layout.empty)

    def refill(self, node: str, running: Iterable[Share]) -> None:
        """Count no shares on a node as handed out but these; one that is gone stays gone."""
        empty = self._layout.empty.get(node)
        if empty is not None:
            self._free[node] = empty
            self.take(running)

    def take(self, shares: Iterable[Share]) -> None:
        """Count shares as handed out. More may be taken than there is, and then nothing is left."""
        for share in shares:
            free = self._free.get(share.node)
            if free is not None:
                self._free[share.node] = free.less(share)

    def place(self, demand: Demand, *, beside: "Room | None" = None) -> tuple[Share, ...] | None:
        """The share of each instance of a job that starts in this room; None while it is too small.

        With `beside`, of several places the one is taken where least of what runs in that room is in the way.
        """
        wanted = self._layout.wanted(demand)
        if not wanted.fitted.nodes:
            return None
        found = self._packed(wanted, demand=demand, beside=beside)
        if found is None and all(self._free[name].holds_crowded(load) for name, load in wanted.loads.items()):
            found = wanted.fitted.nodes
        return None if found is None else self._shares(wanted.fitted.sizes, found, beside=beside or self)

    def _packed(self, wanted: "_Wanted", *, demand: Demand, beside: "Room | None") -> Sequence[str] | None:
        if beside is not None:
            free = [self._free[name] for name in wanted.choices[-1]]
            return _packed_on(free, wanted.gang, demand=demand, cost=beside._in_the_way)
        for names in wanted.choices:
            found = _packed_on([self._free[name] for name in names], wanted.gang, demand=demand)
            if found is not None:
                return found
        return None

    def _in_the_way(self, node: str, wanted: "_Load") -> float:
        """How large a part of a node must come free before there is place for a load."""
        free = self._free[node]
        if free.holds(wanted):
            return 0.0
        missing = (
            (wanted.slots - free.slots) / free.node.slots,
            (wanted.cpus - free.cpus) / max(1, _steps(free.node.cpus)),
            (wanted.memory_bytes - free.memory_bytes) / max(1, free.node.memory_bytes),
            (wanted.gpus - len(free.gpus)) / max(1, len(free.node.gpus)),
        )
        return max(missing)

    def _shares(self, sizes: Sequence[Size], nodes: Sequence[str], *, beside: "Room") -> tuple[Share, ...]:
        """Each with the first GPUs that are free on its node, rather such as nobody uses in the other room either."""
        gpus = {
            name: iter(sorted(self._free[name].gpus, key=lambda gpu: (gpu not in beside._free[name].gpus, gpu)))
            for name in set(nodes)
        }
        return tuple(
            Share(size.cpus, size.memory_bytes, tuple(next(gpus[name]) for _ in range(size.gpus)), name)
            for size, name in zip(sizes, nodes, strict=True)
        )

    def _with(self, free: "Mapping[str, _Free]") -> "Room":
        other = Room.__new__(Room)
        other._layout, other._free = self._layout, dict(free)
        return other


class _Layout:
    """The nodes of an engine, and what is known of jobs on them whatever runs there. Rooms share it."""

    def __init__(self, machine: Capacity) -> None:
        self.machine = machine
        self.empty = {node.name: _Free.of(node) for node in machine.nodes}
        self._wanted: dict[Demand, _Wanted] = {}

    def wanted(self, demand: Demand) -> "_Wanted":
        known = self._wanted.get(demand)
        if known is None:
            if len(self._wanted) >= _FITS_KEPT:
                self._wanted.clear()
            known = self._wanted[demand] = _Wanted.by(demand, self.machine)
        return known


class _Load(NamedTuple):
    """What instances take of a node; cores in steps."""

    slots: int
    cpus: int
    memory_bytes: int
    gpus: int


_NOTHING = _Load(0, 0, 0, 0)


class _Gang:
    """The instances of a job as they are looked at again and again."""

    __slots__ = ("alike", "count", "has_gpus", "load")

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.count = len(sizes)
        self.has_gpus = any(size.gpus for size in sizes)
        whole = Size(*(sum(amounts) for amounts in zip(*map(_amounts, sizes), strict=True)))
        self.load = _load(whole)._replace(slots=len(sizes))
        numbers: dict[Size, list[int]] = {}
        for number, size in enumerate(sizes):
            numbers.setdefault(size, []).append(number)
        largest_first = sorted(numbers, key=_extent, reverse=True)
        self.alike = [(_load(size), numbers[size]) for size in largest_first]  # the instances of each size


class _Wanted(NamedTuple):
    """What a job wants of the nodes of an engine. `loads` is what it takes of each node where it fits for sure."""

    fitted: Fit
    gang: _Gang
    choices: Sequence[Sequence[str]]  # the nodes among which places are looked for, the best first
    loads: Mapping[str, _Load]

    @classmethod
    def by(cls, demand: Demand, machine: Capacity) -> "_Wanted":
        fitted = fit_demand(demand, machine)
        loads: dict[str, _Load] = {}
        for name, size in zip(fitted.nodes, fitted.sizes if fitted.nodes else (), strict=True):
            loads[name] = _sum(loads.get(name, _NOTHING), _load(size))
        gang, eligible = _Gang(fitted.sizes), [node for node in machine.nodes if _may_have(node, demand)]
        choices = [[node.name for node in nodes] for nodes in _choices(gang, eligible)]
        return cls(fitted, gang, choices, loads)


class _Free(NamedTuple):
    """What is left of a node."""

    node: Node
    slots: int
    cpus: int
    memory_bytes: int
    gpus: frozenset[int]
    is_empty: bool

    @classmethod
    def of(cls, node: Node) -> "_Free":
        return cls(node, node.slots, _steps(node.cpus), node.memory_bytes, frozenset(node.gpus), is_empty=True)

    def less(self, share: Share) -> "_Free":
        """What is left when a share is handed out too."""
        cpus, memory_bytes = self.cpus, self.memory_bytes
        if self.node.reserves:
            cpus -= _steps(share.cpus or 0)
            memory_bytes -= share.memory_bytes or 0
        gpus = self.gpus.difference(share.gpus) if share.gpus else self.gpus
        return _Free(self.node, self.slots - 1, cpus, memory_bytes, gpus, is_empty=False)

    def holds(self, load: _Load) -> bool:
        return (
            load.slots <= self.slots
            and load.cpus <= self.cpus
            and load.memory_bytes <= self.memory_bytes
            and load.gpus <= len(self.gpus)
        )

    def holds_crowded(self, load: _Load) -> bool:
        """Whether it holds a load that may be more instances than it has slots, and then takes all of them."""
        if self.is_empty or self.holds(load):
            return True
        has_places = min(load.slots, self.node.slots) <= self.slots and load.gpus <= len(self.gpus)
        return has_places and not self.node.reserves

    def number_of(self, one: _Load) -> int:
        """How many of an instance there is room for."""
        there = (self.slots, self.cpus, self.memory_bytes, len(self.gpus))
        return min(has // takes for has, takes in zip(there, one, strict=True) if takes)


_Cost = Callable[[str, _Load], float]


def _may_have(node: Node, demand: Demand) -> bool:
    return node.slots > 0 and (demand.is_spot or not node.is_spot)


def _choices(gang: _Gang, nodes: Sequence[Node]) -> Sequence[Sequence[Node]]:
    """A job without GPUs gets nodes that have some only if no others have the room."""
    if gang.has_gpus:
        return (nodes,)
    plain = [node for node in nodes if not node.gpus]
    return (nodes,) if len(plain) == len(nodes) else (plain, nodes)


def _packed_on(
    free: Sequence[_Free], gang: _Gang, *, demand: Demand, cost: _Cost | None = None
) -> Sequence[str] | None:
    """The node of each instance: one for all if there is such a one, else as few as can be, or all different ones."""
    if not demand.is_spread:
        holding = _holding(free, gang.load)
        if holding:
            best = min(holding, key=lambda each: _ranked(each, gang.load, demand=demand, cost=cost))
            return [best.node.name] * gang.count
    found, used = [""] * gang.count, dict[str, _Load]()
    for one, of_size in gang.alike:
        fitting = _holding(free, one)
        most = len(fitting) if demand.is_spread else sum(each.number_of(one) for each in fitting)
        if most < len(of_size):
            return None
        numbers = list(of_size)
        for each in sorted(fitting, key=lambda each: _ranked(each, one, demand=demand, cost=cost)):
            _fill(each, one, numbers=numbers, found=found, used=used, is_spread=demand.is_spread)
            if not numbers:
                break
        if numbers:
            return None
    return found


def _holding(free: Sequence[_Free], load: _Load) -> list[_Free]:
    """Those that hold a load; a job is looked for on all nodes for each of the jobs before it that end."""
    slots, cpus, memory_bytes, gpus = load
    return [
        each
        for each in free
        if cpus <= each.cpus and slots <= each.slots and gpus <= len(each.gpus) and memory_bytes <= each.memory_bytes
    ]


def _fill(
    free: _Free, one: _Load, *, numbers: list[int], found: list[str], used: dict[str, _Load], is_spread: bool
) -> None:
    """Put as many instances on a node as it holds, or one; those that have a place leave `numbers`."""
    name = free.node.name
    while numbers and not (is_spread and name in used):
        load = _sum(used.get(name, _NOTHING), one)
        if not free.holds(load):
            return
        used[name] = load
        found[numbers.pop(0)] = name


def _ranked(free: _Free, load: _Load, *, demand: Demand, cost: _Cost | None) -> tuple[float, ...]:
    """How well a node suits a load, the best first: by what lies in the way, and by how little is left over."""
    node = free.node
    return (
        cost(node.name, load) if cost is not None else 0.0,
        demand.is_spot and not node.is_spot,
        bool(node.gpus) and not load.gpus,
        free.is_empty,
        len(free.gpus),
        free.cpus,
        free.memory_bytes,
        free.slots,
    )


@lru_cache(maxsize=_FITS_KEPT)
def _fit(demand: Demand, nodes: tuple[Node, ...]) -> Fit:
    eligible = [node for node in nodes if _may_have(node, demand)]
    sizes = [_promised(each, eligible) for each in demand.types]
    gang, found = _Gang(sizes), None
    for among in _choices(gang, eligible):
        found = found or _packed_on([_Free.of(node) for node in among], gang, demand=demand)
    if found is None:
        found = _laid_out(sizes, eligible, demand=demand)
        sizes = _shrunk(demand.types, sizes, nodes=eligible, found=found)
    slots = min(len(sizes), sum(node.slots for node in eligible))
    shortfalls = _shortfalls(demand, sizes, nodes=eligible, found=found) if found else ()
    return Fit(tuple(sizes), slots, tuple(shortfalls), tuple(found))


def _promised(wanted: InstanceType, nodes: Sequence[Node]) -> Size:
    """What a type names, and the most that a node has of what it wants all of."""
    cpus = max((node.cpus for node in nodes), default=0) if wanted.cpus is None else wanted.cpus
    memory_bytes = max((node.memory_bytes for node in nodes), default=0)
    if wanted.memory_gib is not None:
        memory_bytes = int(wanted.memory_gib * _GIB)
    gpus = max((len(node.gpus) for node in nodes), default=0) if wanted.gpus is None else wanted.gpus
    return Size(_stepped(cpus), memory_bytes, gpus)


def _laid_out(sizes: Sequence[Size], nodes: Sequence[Node], *, demand: Demand) -> Sequence[str]:
    """The node of each instance where they want more than there is, so that no node bears much more than another."""
    if not nodes:
        return ()
    most = ceil(len(sizes) / len(nodes)) if demand.is_spread else len(sizes)
    has_gpus = sum(len(node.gpus) for node in nodes) >= sum(1 for size in sizes if size.gpus)
    loads = {node.name: _NOTHING for node in nodes}
    found = [""] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: _extent(sizes[number]), reverse=True):
        one = _load(sizes[number] if has_gpus else Size(sizes[number].cpus, sizes[number].memory_bytes, 0))
        best = min(nodes, key=lambda node: _strain(node, _sum(loads[node.name], one), most=most))
        found[number] = best.name
        loads[best.name] = _sum(loads[best.name], one)
    return found


def _strain(node: Node, load: _Load, *, most: int) -> tuple[float, ...]:
    """How much more a node would have to bear than it can, or than it is to."""
    gpus = load.gpus / len(node.gpus) if node.gpus else inf
    return (
        load.slots > most,
        max(0, load.slots - node.slots) / node.slots,
        gpus if load.gpus else 0,
        max(load.cpus / max(1, _steps(node.cpus)), load.memory_bytes / max(1, node.memory_bytes)),
    )


def _shrunk(
    types: Sequence[InstanceType], sizes: Sequence[Size], *, nodes: Sequence[Node], found: Sequence[str]
) -> list[Size]:
    """What each instance gets on the node where it lies; those of one type the least that any of them gets."""
    shrunk = list(sizes)
    for node in nodes:
        numbers = [number for number, name in enumerate(found) if name == node.name]
        # Where nothing may be exceeded, all have the smallest share before the rest is divided.
        cpus = _scaled([sizes[number].cpus for number in numbers], node.cpus, least=node.reserves / _CPU_STEP)
        memory = _scaled([sizes[number].memory_bytes for number in numbers], node.memory_bytes)
        gpus = _scaled_whole([sizes[number].gpus for number in numbers], len(node.gpus))
        for number, *size in zip(numbers, cpus, memory, gpus, strict=True):
            shrunk[number] = Size(_stepped(size[0]), int(size[1]), int(size[2]))
    least: dict[InstanceType, Size] = {}
    for each, size_there in zip(types, shrunk, strict=True):
        least[each] = _lesser(least.get(each, size_there), size_there)
    return [least[each] for each in types]


def _scaled(wanted: Sequence[float], there: float, *, least: float = 0.0) -> list[float]:
    """What is wanted, or as much less of what is above the least in proportion as all together exceed what is there."""
    if sum(wanted) <= there:
        return list(wanted)
    above, spare = (total - least * len(wanted) for total in (sum(wanted), there))
    return [least + (amount - least) * max(0.0, spare) / above for amount in wanted]


def _scaled_whole(wanted: Sequence[int], there: int) -> list[int]:
    """The same in whole pieces. Instances that want the same get the same, so pieces may stay unused.

    Members of a gang of which some train on a GPU and some on the CPU would fail, or wait for each other for ever.
    """
    total = sum(wanted)
    return [count * there // total for count in wanted] if total > there else list(wanted)


def _lesser(one: Size, other: Size) -> Size:
    return Size(min(one.cpus, other.cpus), min(one.memory_bytes, other.memory_bytes), min(one.gpus, other.gpus))


def _shortfalls(demand: Demand, sizes: Sequence[Size], *, nodes: Sequence[Node], found: Sequence[str]) -> Iterator[str]:
    """What is less than asked for; instances of one type lack the same, which is said once."""
    where = "on this machine" if [node.name for node in nodes] == [""] else "on the nodes that there are"
    yield from dict.fromkeys(
        line for each, size in zip(demand.types, sizes, strict=True) if (line := _lacking(each, size, where=where))
    )
    count, slots, lain_on = len(sizes), sum(node.slots for node in nodes), len(set(found))
    if slots < count:
        yield f"Its {count} instances share {_counted(slots, 'slot')}."
    if demand.is_spread and lain_on < count:
        yield f"Its {count} instances lie on {_counted(lain_on, 'node')}, because there are no more for them."


def _lacking(wanted: InstanceType, size: Size, *, where: str) -> str:
    parts = list(_parts_lacking(wanted, size))
    if not parts:
        return ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return f"Each {wanted.name} gets {listed} {where}."


def _parts_lacking(wanted: InstanceType, size: Size) -> Iterator[str]:
    if wanted.cpus is not None and size.cpus < wanted.cpus:
        yield f"{size.cpus:g} of {wanted.cpus:g} CPUs"
    if wanted.memory_gib is not None and size.memory_bytes < int(wanted.memory_gib * _GIB):
        yield f"{size.memory_bytes / _GIB:.1f} of {wanted.memory_gib:g} GiB of memory"
    if wanted.gpus is not None and size.gpus < wanted.gpus:
        yield f"{size.gpus or 'none'} of {_counted(wanted.gpus, 'GPU')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _stepped(cpus: float) -> float:
    return max(1, _steps(cpus)) / _CPU_STEP


def _steps(cpus: float) -> int:
    return int(cpus * _CPU_STEP + 1e-6)  # 0.29 times a hundred is less than 29


def _load(size: Size) -> _Load:
    return _Load(1, _steps(size.cpus), size.memory_bytes, size.gpus)


def _sum(one: _Load, other: _Load) -> _Load:
    return _Load(*map(int.__add__, one, other))


def _amounts(size: Size) -> tuple[float, int, int]:
    return size.cpus, size.memory_bytes, size.gpus


def _extent(size: Size) -> tuple[int, float, int]:
    return size.gpus, size.cpus, size.memory_bytes
