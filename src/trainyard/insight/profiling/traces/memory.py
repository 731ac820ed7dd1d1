"""How much memory a program held, which operators took it, and whose it was at the peak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.profiles.traces.contract import Trace, Whole
from trainyard.insight.profiling.traces.call_tree import CallTree
from trainyard.insight.profiling.traces.launches import NONE

# What was allocated outside any operator, such as by a data loader.
OUTSIDE = ""
_CPU, _CUDA = 0, 1


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """The memory of a device over time. `reserved_bytes` is what the allocator holds; all 0 for a CPU.

    A profiler sees allocations from its start on. On a CPU the curve begins there; on a GPU it has all that was held.
    """

    times_us: Whole
    allocated_bytes: Whole
    reserved_bytes: Whole

    @property
    def peak_bytes(self) -> int:
        return int(self.allocated_bytes.max(initial=0))

    @property
    def peak_at_us(self) -> int:
        return int(self.times_us[np.argmax(self.allocated_bytes)])


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """What an operator did to the memory of a device, itself, and with the operators that it calls."""

    name: str
    calls: int
    allocations: int
    self_allocated_bytes: int
    self_increase_bytes: int  # allocated, less released
    allocated_bytes: int
    increase_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device. `held_at_peak` has the bytes by the operator that had allocated them."""

    device: str  # CPU, GPU0 …
    curve: MemoryCurve
    operators: Sequence[OperatorMemory] = ()
    held_at_peak: Mapping[str, int] = field(default_factory=dict)


def list_memory(trace: Trace, tree: CallTree) -> Sequence[DeviceMemory]:
    table = trace.memory
    nodes = tree.node_at(table.tracks, table.times_ns)
    devices = {(int(kind), int(number)) for kind, number in np.unique(_device_pairs(trace), axis=0)}
    found = []
    for kind, number in sorted(devices):
        own = np.flatnonzero((table.device_types == kind) & (table.devices == number))
        own = own[np.argsort(table.times_ns[own], kind="stable")]
        found.append(_device_memory(trace, tree, own, nodes[own], device_name(kind, number)))
    return found


def _device_pairs(trace: Trace) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    return np.stack([trace.memory.device_types, trace.memory.devices], axis=1)


def device_name(kind: int, number: int) -> str:
    if kind == _CPU:
        return "CPU"
    return f"GPU{max(number, 0)}" if kind == _CUDA else f"device {kind}:{max(number, 0)}"


def _device_memory(trace: Trace, tree: CallTree, own: Whole, nodes: Whole, name: str) -> DeviceMemory:
    table = trace.memory
    allocated = table.allocated_bytes[own]
    if (allocated < 0).any():
        # Old versions do not say how much there is.
        allocated = np.cumsum(table.changes_bytes[own])
    curve = MemoryCurve(table.times_ns[own] // 1000, allocated, np.maximum(table.reserved_bytes[own], 0))
    changes = table.changes_bytes[own]
    peak = int(np.argmax(allocated))
    held = _find_holders(trace, tree, changes[: peak + 1], table.addresses[own[: peak + 1]], nodes[: peak + 1])
    return DeviceMemory(name, curve, _operators(trace, tree, changes, nodes), held)


def _operators(trace: Trace, tree: CallTree, changes: Whole, nodes: Whole) -> Sequence[OperatorMemory]:
    events = trace.events
    known = nodes != NONE
    nodes, changes = nodes[known], changes[known]
    is_allocation = changes > 0
    size = len(events.texts)
    names = events.names[tree.rows].astype(np.int64)

    def by_name(of: Whole, values: Whole) -> Whole:
        sums = np.zeros(size, np.int64)
        np.add.at(sums, names[of], values)
        return sums

    allocated, increase = np.zeros(size, np.int64), np.zeros(size, np.int64)
    above, which = nodes, np.arange(len(nodes))
    while len(above):
        # A call that stands for a repeated one counts once.
        counts = tree.is_operator[above] & ~tree.is_repeated[above]
        np.add.at(increase, names[above[counts]], changes[which[counts]])
        grows = counts & is_allocation[which]
        np.add.at(allocated, names[above[grows]], changes[which[grows]])
        going_up = tree.parents[above] != NONE
        above, which = tree.parents[above[going_up]], which[going_up]
    own = nodes[is_allocation]
    self_allocated, count = by_name(own, changes[is_allocation]), by_name(own, np.ones(len(own), np.int64))
    self_increase = by_name(nodes, changes)
    calls = by_name(*_calls(tree))
    touched = np.flatnonzero((allocated != 0) | (increase != 0) | (count != 0))
    found = [
        OperatorMemory(
            name=events.texts[each],
            calls=int(calls[each]),
            allocations=int(count[each]),
            self_allocated_bytes=int(self_allocated[each]),
            self_increase_bytes=int(self_increase[each]),
            allocated_bytes=int(allocated[each]),
            increase_bytes=int(increase[each]),
        )
        for each in touched.tolist()
    ]
    return sorted(found, key=lambda each: (-each.self_allocated_bytes, -each.allocated_bytes, each.name))


def _calls(tree: CallTree) -> tuple[Whole, Whole]:
    nodes = np.flatnonzero(tree.is_operator & ~tree.is_repeated)
    return nodes, np.ones(len(nodes), np.int64)


def _find_holders(
    trace: Trace, tree: CallTree, changes: Whole, addresses: np.ndarray[tuple[int], np.dtype[np.uint64]], nodes: Whole
) -> Mapping[str, int]:
    """Return what was allocated and not yet released, by operator. The last change at an address decides."""
    _, last = np.unique(addresses[::-1], return_index=True)
    rows = len(addresses) - 1 - last
    rows = rows[changes[rows] > 0]
    held: dict[str, int] = {}
    for row, node in zip(rows.tolist(), nodes[rows].tolist(), strict=True):
        name = OUTSIDE if node == NONE else trace.events.name_of(int(tree.rows[node]))
        held[name] = held.get(name, 0) + int(changes[row])
    return dict(sorted(held.items(), key=lambda each: -each[1]))
