"""Where operators lie under the roofline of a device: held back by its arithmetic, or by its memory.

An operator that performs few operations for each byte cannot be faster than the memory, however fast the arithmetic is.
The roof at an intensity is min(peak, intensity x bandwidth). What an operator reaches of it says what a better kernel
could gain; on which side of the ridge it lies says what else would help: larger shapes and fusion, or less precision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from trainyard.formats.profiles.traces.contract import Mask, Trace, Whole
from trainyard.insight.profiling.traces.call_tree import CallTree
from trainyard.insight.profiling.traces.element_types import HALF
from trainyard.insight.profiling.traces.flops import OperatorWork, has_formula, operator_work
from trainyard.insight.profiling.traces.launches import NONE


class RoofSide(StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class DeviceRoof:
    """What a device can do at best: dense operations and bytes a second."""

    half_flops: float  # bfloat16 and float16 on tensor cores
    tensor_flops: float  # float32 on tensor cores, as TF32
    single_flops: float  # float32 without
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """The calls of an operator with one shape. Without a roof, `side` and `reached_share` are None."""

    operator: str
    shape: str
    calls: int
    seconds: float  # on the device, or on the host if nothing ran on a device
    flops: float
    moved_bytes: float
    side: RoofSide | None = None
    reached_share: float | None = None

    @property
    def intensity(self) -> float:
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0


# From the data sheets, without sparsity; a name is found as a part, so longer names come first.
_ROOFS: Mapping[str, DeviceRoof] = {
    "B200": DeviceRoof(2250e12, 1125e12, 75e12, 8.0e12),
    "GH200": DeviceRoof(989e12, 494e12, 67e12, 4.0e12),
    "H200": DeviceRoof(989e12, 494e12, 67e12, 4.8e12),
    "H100 PCIe": DeviceRoof(756e12, 378e12, 51e12, 2.0e12),
    "H100": DeviceRoof(989e12, 494e12, 67e12, 3.35e12),
    "A100-SXM4-80GB": DeviceRoof(312e12, 156e12, 19.5e12, 2.039e12),
    "A100": DeviceRoof(312e12, 156e12, 19.5e12, 1.555e12),
    "L40S": DeviceRoof(362e12, 183e12, 91.6e12, 0.864e12),
    "A10G": DeviceRoof(70e12, 35e12, 35e12, 0.6e12),
    "A10": DeviceRoof(125e12, 62.5e12, 31.2e12, 0.6e12),
    "L4": DeviceRoof(121e12, 60e12, 30.3e12, 0.3e12),
    "V100": DeviceRoof(125e12, 15.7e12, 15.7e12, 0.9e12),
    "T4": DeviceRoof(65e12, 8.1e12, 8.1e12, 0.32e12),
}


def find_roof(gpu: str) -> DeviceRoof | None:
    """Return the roof of a GPU by its name; None if it is not in the table."""
    return next((roof for name, roof in _ROOFS.items() if name in gpu), None)


def place_operators(trace: Trace, tree: CallTree, roof: DeviceRoof | None) -> Sequence[RooflinePoint]:
    """Return the operators whose work is known, those with most time first.

    Of operators that call each other, such as linear and addmm, the innermost counts.
    """
    events = trace.events
    known = np.array([has_formula(text) for text in events.texts], np.bool_)
    is_known = tree.is_operator & (known[events.names[tree.rows]] if len(tree) else tree.is_operator)
    nodes = np.flatnonzero(is_known & ~_have_known_below(tree, is_known))
    groups: dict[tuple[int, int, int, str], list[int]] = {}
    for node in nodes.tolist():
        row = int(tree.rows[node])
        key = (int(events.names[row]), int(events.shapes[row]), int(events.types[row]), trace.inputs.get(row, ""))
        groups.setdefault(key, []).append(node)
    points = []
    for (name, shape, types, inputs), own in groups.items():
        texts = events.shape_texts
        work = operator_work(events.texts[name], texts[shape], texts[types], inputs)
        if work is not None:
            points.append(_point(events.texts[name], texts[shape], work, tree, np.array(own), roof))
    return sorted(points, key=lambda each: (-each.seconds, each.operator, each.shape))


def _have_known_below(tree: CallTree, is_known: Mask) -> Mask:
    above = np.zeros(len(tree), np.bool_)
    nodes = tree.parents[is_known]
    while len(nodes := np.unique(nodes[nodes != NONE])):
        # Who is marked already has marked those above as well.
        nodes = nodes[~above[nodes]]
        above[nodes] = True
        nodes = tree.parents[nodes]
    return above


def _point(
    name: str, shape: str, work: OperatorWork, tree: CallTree, nodes: Whole, roof: DeviceRoof | None
) -> RooflinePoint:
    device_ns = int(tree.device_total_ns[nodes].sum())
    host_ns = int((tree.ends_ns[nodes] - tree.starts_ns[nodes]).sum())
    count, seconds = len(nodes), (device_ns or host_ns) / 1e9
    flops, moved = float(work.flops * count), float(work.moved_bytes * count)
    if roof is None or not seconds or not moved:
        return RooflinePoint(name, shape, count, seconds, flops, moved)
    peak = _peak(roof, work, uses_tensor_cores=bool(tree.tensor_core_total_ns[nodes].any()))
    best = min(peak, flops / moved * roof.bytes_per_s)
    side = RoofSide.COMPUTE if best == peak else RoofSide.MEMORY
    return RooflinePoint(name, shape, count, seconds, flops, moved, side, flops / seconds / best)


def _peak(roof: DeviceRoof, work: OperatorWork, *, uses_tensor_cores: bool) -> float:
    if work.element_type in HALF:
        return roof.half_flops
    return roof.tensor_flops if uses_tensor_cores else roof.single_flops
