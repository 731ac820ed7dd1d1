"""A curve of memory as few points, each the highest level of a stretch of time, so that no peak is lost."""

from dataclasses import dataclass

import numpy as np

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.downsampling import follow_levels
from trainyard.insight.profiling.traces.memory import MemoryCurve


@dataclass(frozen=True, slots=True)
class MemoryLevels:
    """The middles of the stretches, and the levels in them. `reserved_bytes` is empty if nothing is reserved."""

    times_ns: Numbers
    allocated_bytes: Numbers
    reserved_bytes: Numbers


def find_memory_levels(curve: MemoryCurve, *, origin_ns: int, points: int) -> MemoryLevels:
    """Return the levels of a curve that has points. Times count from `origin_ns`."""
    # Unix times in microseconds leave a float no digits for parts of them.
    first_us = int(curve.times_us[0])
    elapsed_us = curve.times_us - first_us
    end_us = max(1.0, float(elapsed_us[-1]))

    def levels(values: Numbers) -> Numbers:
        return follow_levels(elapsed_us, values, start=0, end=end_us, points=points).maxima

    middles_us: Numbers = np.linspace(0, end_us, 2 * points + 1)[1::2]
    return MemoryLevels(
        times_ns=middles_us * 1000 + (first_us * 1000 - origin_ns),
        allocated_bytes=levels(curve.allocated_bytes.astype(np.float64)),
        reserved_bytes=levels(curve.reserved_bytes.astype(np.float64)) if curve.reserved_bytes.any() else np.zeros(0),
    )
