"""What kernels cost, by name, or by all that a launch is: operator, grid, block, registers, shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import EventKind, Trace, Whole
from trainyard.insight.profiling.traces.call_tree import CallTree, operator_nodes
from trainyard.insight.profiling.traces.launches import NONE, Launches
from trainyard.insight.profiling.traces.tensor_cores import uses_tensor_cores


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The launches of a kernel. Blocks and occupancy are means weighted by time, and 0 where nothing is known.

    The members from `operator` on are empty if kernels are grouped by name alone.
    """

    name: str
    calls: int
    total_s: float
    mean_s: float
    max_s: float
    min_s: float
    blocks_per_sm: float
    occupancy_percent: float
    uses_tensor_cores: bool
    operator: str = ""
    can_use_tensor_cores: bool = False
    grid: str = ""
    block: str = ""
    registers: int = NONE
    shared_memory_bytes: int = NONE


def list_kernels(trace: Trace, launches: Launches, tree: CallTree, *, by_launch: bool = False) -> Sequence[KernelCost]:
    """Return the kernels, those with most time first."""
    events, table = trace.events, trace.launches
    is_kernel = events.of_kind(EventKind.KERNEL)
    rows = np.flatnonzero(is_kernel)
    if not len(rows):
        return ()
    launch_of_row = np.full(len(events), NONE)
    launch_of_row[table.events] = np.arange(len(table))
    own = launch_of_row[rows]
    nodes = np.full(len(events), NONE)
    nodes[launches.devices] = operator_nodes(trace, launches, tree.rows, tree.parents, tree.is_operator)
    nodes = nodes[rows]
    keys = [events.names[rows].astype(np.int64)]
    if by_launch:
        operators = np.where(nodes != NONE, events.names[tree.rows[nodes]], NONE) if len(tree) else nodes
        columns = (table.grids, table.blocks, table.registers, table.shared_memory_bytes)
        keys += [operators, *(np.where(own != NONE, each[own], NONE) if len(table) else own for each in columns)]
    return _costs(trace, rows, own, nodes, keys, tree)


def _costs(
    trace: Trace, rows: Whole, own: Whole, nodes: Whole, keys: Sequence[Whole], tree: CallTree
) -> Sequence[KernelCost]:
    events, table = trace.events, trace.launches
    _, first, group = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
    group, durations = group.reshape(-1), events.durations_ns[rows]
    count = np.bincount(group)
    total = np.bincount(group, durations)
    longest, shortest = np.zeros(len(count)), np.full(len(count), np.inf)
    np.maximum.at(longest, group, durations)
    np.minimum.at(shortest, group, durations)
    blocks, occupancy = (
        np.bincount(group, _valid_values(column, own) * durations) / np.maximum(total, 1)
        for column in (table.blocks_per_sm, table.occupancy_percent)
    )
    costs = []
    for number, at in enumerate(first):
        name = events.name_of(rows[at])
        cost = KernelCost(
            name=name,
            calls=int(count[number]),
            total_s=float(total[number]) / 1e9,
            mean_s=float(total[number] / count[number]) / 1e9,
            max_s=float(longest[number]) / 1e9,
            min_s=float(shortest[number]) / 1e9,
            blocks_per_sm=float(blocks[number]),
            occupancy_percent=float(occupancy[number]),
            uses_tensor_cores=uses_tensor_cores(name),
        )
        costs.append(_with_launch(cost, trace, int(own[at]), int(nodes[at]), tree) if len(keys) > 1 else cost)
    return sorted(costs, key=lambda each: (-each.total_s, each.name, each.operator))


def _valid_values(column: NDArray[np.float32], own: Whole) -> NDArray[np.float64]:
    if not len(column):
        return np.zeros(len(own))
    values: NDArray[np.float64] = np.where(own != NONE, column[own], 0).astype(np.float64)
    # Some drivers report what cannot be.
    return np.where(np.isfinite(values) & (values > 0), values, 0.0)


def _with_launch(cost: KernelCost, trace: Trace, launch: int, node: int, tree: CallTree) -> KernelCost:
    if node != NONE:
        operator, can_use = trace.events.name_of(int(tree.rows[node])), bool(tree.can_use_tensor_cores[node])
        cost = replace(cost, operator=operator, can_use_tensor_cores=can_use)
    if launch == NONE:
        return cost
    table = trace.launches
    return replace(
        cost,
        grid=table.extent_texts[int(table.grids[launch])],
        block=table.extent_texts[int(table.blocks[launch])],
        registers=int(table.registers[launch]),
        shared_memory_bytes=int(table.shared_memory_bytes[launch]),
    )
