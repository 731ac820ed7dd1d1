"""How much of each instance was used."""

from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile, Numbers
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerRule
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.robust_statistics import finite

# Cumulative values and bits, whose percentiles mean nothing.
_LEFT_OUT = (HardwareMetric.GPU_ENERGY_JOULES, HardwareMetric.GPU_THROTTLE_REASONS)


class OverallSystemUsage(ProfilerRule):
    """Finds nothing, but sums up how much of each instance was used."""

    name = "OverallSystemUsage"
    parameters = (SCAN_INTERVAL,)
    purpose = "Sums up the use of processors, memory, disks, network and GPUs of each instance."
    recommendation = "This rule never triggers; its figures are for the report."

    def __init__(self, *, scan_interval_us: int) -> None:
        """The interval is AWS's."""

    def check(self, profile: JobProfile) -> ProfilerCheck:
        details: dict[str, list[dict[str, Any]]] = {}
        points = 0
        for host, samples in sorted(profile.hardware.items()):
            points += len(samples)
            keys = sorted(
                samples.series, key=lambda key: (list(HardwareMetric).index(key.metric), len(key.device), key)
            )
            details[host] = [
                {"metric": str(key.metric), "device": key.device, **_summarize(values)}
                for key in keys
                if key.metric not in _LEFT_OUT and len(values := finite(samples.series[key]))
            ]
        return ProfilerCheck((), points, 0, details, "" if points else "There are no samples of the hardware.")


def _summarize(values: Numbers) -> dict[str, float]:
    low, p50, p95, p99, high = (float(each) for each in np.percentile(values, (0, 50, 95, 99, 100)))
    return {"max": high, "p99": p99, "p95": p95, "p50": p50, "min": low, "mean": float(values.mean())}
