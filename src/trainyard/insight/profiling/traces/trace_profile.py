"""Everything that a trace says, for reports, rules and notebooks."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.formats.profiles.traces.contract import Trace
from trainyard.insight.profiling.traces.call_tree import build_call_tree
from trainyard.insight.profiling.traces.collectives import (
    CollectiveCalls,
    CollectiveCost,
    OverlapTable,
    find_collectives,
    list_collectives,
    measure_overlap,
)
from trainyard.insight.profiling.traces.gpus import GpuUse, list_gpus
from trainyard.insight.profiling.traces.kernels import KernelCost, list_kernels
from trainyard.insight.profiling.traces.launches import find_launches
from trainyard.insight.profiling.traces.memory import DeviceMemory, list_memory
from trainyard.insight.profiling.traces.operators import OperatorCost, list_operators
from trainyard.insight.profiling.traces.roles import RoleTable, split_roles
from trainyard.insight.profiling.traces.roofline import DeviceRoof, RooflinePoint, find_roof, place_operators
from trainyard.insight.profiling.traces.windows import StepWindows, find_windows


@dataclass(frozen=True, slots=True)
class TraceProfile:
    """A trace in figures. What it has nothing of is empty: kernels of a program without a GPU, shapes not recorded.

    `notes` say what was missing or left out, in sentences for the reader of a report.
    """

    windows: StepWindows
    roles: RoleTable
    operators: Sequence[OperatorCost]
    operators_by_shape: Sequence[OperatorCost]
    kernels: Sequence[KernelCost]
    kernels_by_launch: Sequence[KernelCost]
    memory: Sequence[DeviceMemory]
    collective_calls: CollectiveCalls
    collectives: Sequence[CollectiveCost]
    overlap: OverlapTable
    gpus: Sequence[GpuUse]
    roofline: Sequence[RooflinePoint]
    notes: Sequence[str]

    @property
    def has_device(self) -> bool:
        return bool(self.kernels)


def profile_trace(trace: Trace, *, roof: DeviceRoof | None = None) -> TraceProfile:
    """Compute all figures. `roof` is what the device can do, for one that is not known by its name."""
    launches = find_launches(trace.events)
    windows = find_windows(trace, launches)
    tree = build_call_tree(trace, launches)
    calls = find_collectives(trace)
    roof = roof or (find_roof(trace.gpus[0].name) if trace.gpus else None)
    return TraceProfile(
        windows=windows,
        roles=split_roles(trace, windows),
        operators=list_operators(trace, tree),
        operators_by_shape=list_operators(trace, tree, by_shape=True) if trace.has_shapes else (),
        kernels=list_kernels(trace, launches, tree),
        kernels_by_launch=list_kernels(trace, launches, tree, by_launch=True),
        memory=list_memory(trace, tree),
        collective_calls=calls,
        collectives=list_collectives(calls),
        overlap=measure_overlap(trace, windows),
        gpus=list_gpus(trace, windows),
        roofline=place_operators(trace, tree, roof),
        notes=(*trace.notes, *windows.notes),
    )
