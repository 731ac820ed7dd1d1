"""What operators cost: on the host and on devices, with and without those that they call."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.traces.contract import Trace, Whole
from trainyard.insight.profiling.traces.call_tree import CallTree


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The calls of an operator, in all of a trace. `shape` has the inputs as JSON, if calls are grouped by it."""

    name: str
    shape: str
    calls: int
    host_total_s: float
    host_self_s: float
    device_total_s: float
    device_self_s: float
    can_use_tensor_cores: bool
    tensor_core_self_s: float
    tensor_core_total_s: float

    @property
    def tensor_core_self_share(self) -> float:
        return self.tensor_core_self_s / self.device_self_s if self.device_self_s else 0.0

    @property
    def tensor_core_total_share(self) -> float:
        return self.tensor_core_total_s / self.device_total_s if self.device_total_s else 0.0


def list_operators(trace: Trace, tree: CallTree, *, by_shape: bool = False) -> Sequence[OperatorCost]:
    """Return the operators, those with most time of their own first."""
    events = trace.events
    nodes = np.flatnonzero(tree.is_operator)
    rows = tree.rows[nodes]
    width = len(events.shape_texts) + 1
    keys = events.names[rows].astype(np.int64) * width + (events.shapes[rows] if by_shape else 0)
    found, group = np.unique(keys, return_inverse=True)
    # A call that stands for a repeated one has the time of both already.
    counted = np.flatnonzero(~tree.is_repeated[nodes])

    def seconds(values: Whole, which: Whole | slice = slice(None)) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.bincount(group[which], values[nodes][which], minlength=len(found)) / 1e9

    calls = np.bincount(group[counted], minlength=len(found))
    host_total = seconds(tree.ends_ns - tree.starts_ns, counted)
    host_self = seconds(tree.self_ns)
    device_total, device_self = seconds(tree.device_total_ns, counted), seconds(tree.device_self_ns)
    used_self, used_total = seconds(tree.tensor_core_self_ns), seconds(tree.tensor_core_total_ns, counted)
    can_use = np.bincount(group, tree.can_use_tensor_cores[nodes], minlength=len(found)) > 0
    costs = [
        OperatorCost(
            name=events.texts[int(key) // width],
            shape=events.shape_texts[int(key) % width] if by_shape else "",
            calls=int(calls[number]),
            host_total_s=float(host_total[number]),
            host_self_s=float(host_self[number]),
            device_total_s=float(device_total[number]),
            device_self_s=float(device_self[number]),
            can_use_tensor_cores=bool(can_use[number]),
            tensor_core_self_s=float(used_self[number]),
            tensor_core_total_s=float(used_total[number]),
        )
        for number, key in enumerate(found)
    ]
    return sorted(costs, key=lambda each: (-each.device_self_s, -each.host_self_s, each.name, each.shape))
