"""How well GPUs are used from the first step to the last, as torch_tb_profiler defines it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.traces.contract import EventKind, Real, Trace, Whole
from trainyard.insight.profiling.traces.intervals import union_of
from trainyard.insight.profiling.traces.tensor_cores import uses_tensor_cores
from trainyard.insight.profiling.traces.windows import StepWindows


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of one GPU; shares are from 0 to 1. What the trace does not tell is None.

    `utilization` is the share of time with a kernel, `sm_efficiency` the share of multiprocessors that had a block in
    that time, over all time, `occupancy` the share of the threads that they could have run, by time of kernels, and
    `tensor_core_share` the share of kernels that use tensor cores, by their time in all of the trace.
    """

    device: int
    name: str
    utilization: float
    sm_efficiency: float | None
    occupancy: float | None
    tensor_core_share: float


def list_gpus(trace: Trace, windows: StepWindows) -> Sequence[GpuUse]:
    events, table = trace.events, trace.launches
    is_kernel = events.of_kind(EventKind.KERNEL)[table.events]
    devices = table.devices[is_kernel]
    names = {gpu.number: gpu.name for gpu in trace.gpus}
    found = []
    for device in np.unique(devices[devices >= 0]).tolist():
        own = np.flatnonzero(is_kernel)[devices == device]
        found.append(_use(trace, own, windows, device, names.get(device, "")))
    return found


def _use(trace: Trace, own: Whole, windows: StepWindows, device: int, name: str) -> GpuUse:
    events, table = trace.events, trace.launches
    rows = table.events[own]
    starts = np.clip(events.starts_ns[rows], windows.start_ns, windows.end_ns)
    ends = np.clip(events.ends_ns[rows], windows.start_ns, windows.end_ns)
    span = max(1, windows.end_ns - windows.start_ns)
    durations = events.durations_ns[rows]
    on_tensor_cores = np.array([uses_tensor_cores(text) for text in events.texts], np.bool_)[events.names[rows]]
    return GpuUse(
        device=device,
        name=name,
        utilization=union_of(starts, ends).length / span,
        sm_efficiency=_efficiency(starts, ends, table.blocks_per_sm[own], span),
        occupancy=_occupancy(ends - starts, table.occupancy_percent[own]),
        tensor_core_share=float(durations[on_tensor_cores].sum() / max(1, durations.sum())),
    )


def _efficiency(starts: Whole, ends: Whole, blocks: Real, span: int) -> float | None:
    """Return the mean of min(blocks per multiprocessor, 1), with the blocks of kernels at the same time added up."""
    is_known = np.isfinite(blocks) & (blocks > 0)
    if not is_known.any():
        return None
    starts, ends, values = starts[is_known], ends[is_known], blocks[is_known].astype(np.float64)
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.concatenate([values, -values])[order])[:-1]
    lengths = np.diff(times[order])
    # Sums of numbers that cancel each other leave a trace.
    busy = np.where(level > 1e-9, np.minimum(level, 1.0), 0.0)
    return float((busy * lengths).sum() / span)


def _occupancy(durations: Whole, percent: Real) -> float | None:
    is_known = np.isfinite(percent) & (percent >= 0)
    total = durations[is_known].sum()
    return float((durations[is_known] * percent[is_known].astype(np.float64)).sum() / total / 100) if total else None
