"""Memory that grows for as long as the training runs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile, Numbers
from trainyard.insight.profiling.verdict.wording import duration, size
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE, SCAN_INTERVAL, Patience
from trainyard.insight.rules.profiler.robust_statistics import finite, median_points, trend
from trainyard.insight.rules.profiler.training_samples import TrainingSamples, training_samples
from trainyard.insight.rules.profiler.training_steps import training_steps

_M = HardwareMetric
# The percentages that are watched, each with the bytes of the same memory.
_MEMORIES = ((_M.GPU_MEMORY_PERCENT, _M.GPU_MEMORY_BYTES), (_M.JOB_MEMORY_PERCENT, _M.JOB_MEMORY_BYTES))
# Kendall's tau of a steady rise; chance gives less than the z value once in ten thousand times.
_MIN_TAU, _MIN_Z = 0.5, 3.9
# Memory fills up at the start of a training, and then no more. A leak goes on: each third of the time, and the latest
# quarter, brings at least this part of what it would at an even pace.
_STEADINESS = 0.35
_WARM_UP_SHARE = 0.1
_MIN_ROWS = 4
# Programs keep the data of their first epoch. What their processes take counts after this time, or if memory runs out.
_CACHING_S, _CACHING_PERCENT = 600.0, 80.0


@dataclass(frozen=True, slots=True)
class _Growth:
    """How a memory grew, in points of its percentage. `per_hour` is the slope of Theil and Sen."""

    samples: TrainingSamples
    device: str
    points: float
    per_hour: float
    is_steady: bool
    latest_percent: float
    latest_bytes: float  # NaN if unknown


class GPUMemoryIncrease(ProfilerRule):
    """Finds memory, of GPUs and of the processes, that keeps growing over the whole training."""

    name = "GPUMemoryIncrease"
    parameters = (
        Parameter("increase", float, 5.0, "By how many percentage points memory may grow in the training.", at_least=0),
        PATIENCE,
        Parameter(
            "window",
            int,
            10,
            "Over how many datapoints memory is averaged at both ends of the training to compare them.",
            at_least=1,
        ),
        Parameter(
            "patience_s",
            float,
            0.0,
            "For how many seconds a running job must have trained before the rule judges.",
            advised=120.0,
            at_least=0,
        ),
        SCAN_INTERVAL,
    )
    purpose = "Looks for memory of GPUs, and of the job's processes, that keeps growing until the job fails."
    recommendation = (
        "Look for tensors that are kept from step to step: losses that are summed without .item() or .detach(), "
        "lists of outputs, caches without a limit, hooks that are registered again and again."
    )

    def __init__(
        self,
        *,
        increase: float,
        patience: int,
        window: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._increase, self._window = increase, window
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        growths: list[_Growth] = []
        undecided = ""
        for samples in training_samples(profile):
            undecided = self._patience.missing(profile, len(samples), seconds=samples.seconds)
            growths += [] if undecided else self._growths(samples)
        findings = [self._finding(profile, each) for each in growths if each.is_steady and each.points > self._increase]
        details = {
            f"{each.samples.host} {each.device or 'processes'}": {
                "grown_points": each.points,
                "points_per_hour": each.per_hour,
                "is_steady": each.is_steady,
                "latest_percent": each.latest_percent,
            }
            for each in growths
        }
        return ProfilerCheck(findings, len(growths), len(findings), details, "" if growths else undecided or _NOTHING)

    def _growths(self, samples: TrainingSamples) -> Iterator[_Growth]:
        for metric, unit in _MEMORIES:
            sizes = samples.of(unit)
            for device, values in samples.of(metric).items():
                known = np.flatnonzero(np.isfinite(values))
                rows = known[int(len(known) * _WARM_UP_SHARE) :]
                if len(rows) < _MIN_ROWS:
                    continue
                seconds, used = (samples.times_us[rows] - samples.times_us[0]) / 1e6, values[rows]
                width = min(self._window, len(rows) // 4)
                found = trend(seconds, used)
                is_rising = found.slope_per_s > 0 and found.tau >= _MIN_TAU and found.z >= _MIN_Z
                yield _Growth(
                    samples,
                    device,
                    float(np.median(used[-width:]) - np.median(used[:width])),
                    found.slope_per_s * 3600,
                    is_rising and _is_steady(seconds, used) and (bool(device) or not _may_be_cache(seconds, used)),
                    float(used[-1]),
                    float(finite(sizes[device])[-1]) if device in sizes else math.nan,
                )

    def _finding(self, profile: JobProfile, growth: _Growth) -> ProfilerFinding:
        samples, device = growth.samples, growth.device
        memory = f"The memory of {device} of {samples.host}" if device else f"The job's memory on {samples.host}"
        left_s = max(0.0, 100.0 - growth.latest_percent) / growth.per_hour * 3600
        return ProfilerFinding(
            f"{memory} keeps growing: by {growth.points:.1f} percentage points so far (limit {self._increase:g}), "
            f"{growth.per_hour:.1f} in an hour{_per_step(profile, growth)}. {growth.latest_percent:.0f} % is in use; "
            f"at this pace it is full in {duration(left_s)}.",
            host=samples.host,
            device=device,
            value=growth.points,
            threshold=self._increase,
            started_us=int(samples.times_us[0]),
            ended_us=int(samples.times_us[-1]),
        )


def _per_step(profile: JobProfile, growth: _Growth) -> str:
    """Return how much a step keeps, as a part of a sentence; empty if that is not known."""
    steps = training_steps(profile, host=growth.samples.host)
    if not steps or math.isnan(growth.latest_bytes) or growth.latest_percent <= 0:
        return ""
    bytes_per_point = growth.latest_bytes / growth.latest_percent
    kept = growth.per_hour / 3600 * max(each.step_s for each in steps) * bytes_per_point
    return f", about {size(kept)} in each step" if kept >= 1 else ""


def _is_steady(seconds: Numbers, values: Numbers) -> bool:
    """Whether values rise in all parts of their time alike, and to the end."""
    times, middles = median_points(seconds, values)
    count = len(middles)
    if count < 6:
        return True
    total = float(middles[-max(1, count // 12) :].mean() - middles[: max(1, count // 12)].mean())
    parts = [(0, count // 3), (count // 3, 2 * count // 3), (2 * count // 3, count - 1), (3 * count // 4, count - 1)]
    span = float(times[-1] - times[0])
    if total <= 0 or span <= 0:
        return False
    return all(
        middles[last] - middles[first] >= _STEADINESS * total * (times[last] - times[first]) / span
        for first, last in parts
    )


def _may_be_cache(seconds: Numbers, used: Numbers) -> bool:
    return bool(seconds[-1] - seconds[0] < _CACHING_S and used[-1] < _CACHING_PERCENT)


_NOTHING = "There are no samples of the memory of GPUs or of the job."
