"""What the hardware shows: memory that grows, GPUs that idle, and limits that slow it down."""

from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile, Numbers, Times
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import MAX_SPEEDUP, speedup_without
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import count, duration, number, percent, size

# Samples are averaged over parts of the time, which have to grow one after another.
_PARTS, _MIN_PARTS, _MIN_CHANGES = 12, 4, 6
# Growth that matters, as a part of the memory in use and of the limit.
_MIN_GROWTH, _MIN_GROWTH_BYTES, _MIN_RISING = 0.05, 24e6, 0.8
_MAX_JUMP = 0.6
# Caches fill more and more slowly; a leak is as fast in the end as before.
_MIN_LATE_RATE = 0.6
# A job that lives longer than this does not fail of a leak soon.
_SOON_S = 48 * 3600.0
_IDLE_GPU_PERCENT = 3.0
_DEVICES = {"cpu": "CPU", "cuda": "GPU"}
# A GPU counts as idle after the program had time to start.
_MIN_IDLE_S, _MIN_IDLE_BEFORE_STEPS_S = 30.0, 1200.0
_MIN_THROTTLED_PERCENT = 15.0
# Bits of NVML: slowed by the hardware, by temperature, by the power brake. A GPU that runs at its power limit is not
# slowed: every H200 that multiplies large matrices does (2026-11-19), at three quarters of its highest clock.
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80
_MIN_SLOWED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """A steady growth of memory. `full_in_s` is how long it takes to the limit, if that is known."""

    grown_bytes: float
    bytes_per_s: float
    full_in_s: float | None


def find_memory_growth(state: SteadyState) -> Bottleneck | None:
    """Return memory that grows as long as the steps last."""
    metrics = ((HardwareMetric.JOB_MEMORY_BYTES, "the job"), (HardwareMetric.GPU_MEMORY_BYTES, "the GPU"))
    for host in dict.fromkeys(rank.profile.host for rank in state.ranks):
        for metric, name in metrics:
            for device, values in state.window(metric, host).items():
                limit = _limit_bytes(state, metric, device, host)
                growth = measure_growth(_times(state, metric, host, device), values, limit)
                if growth is not None and (growth.full_in_s is None or growth.full_in_s < _SOON_S):
                    return _describe_growth(state, growth, f"{name} {device}".rstrip(), host, float(np.nanmax(values)))
    return None


def measure_growth(times_us: Times, values: Numbers, limit_bytes: float | None) -> MemoryGrowth | None:
    """Return the growth if the memory rises in nearly all parts of the time, and as fast in the end."""
    known = np.isfinite(values)
    times, values = times_us[known] / 1e6, values[known]
    if len(values) < _MIN_CHANGES:
        return None
    # A sampler reads the memory more seldom than it takes samples, and repeats what it has read.
    changes = 1 + int(np.count_nonzero(np.diff(values)))
    parts = min(_PARTS, changes * 3 // 4)
    if changes < _MIN_CHANGES or times[-1] <= times[0]:
        return None
    edges = np.linspace(times[0], times[-1], parts + 1)
    part = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, parts - 1)
    has_samples = [number for number in range(parts) if (part == number).any()]
    # Lows say more than means: what a step frees again does not count.
    lows = np.array([values[part == number].min() for number in has_samples])
    centers = np.array([times[part == number].mean() for number in has_samples])
    if len(lows) < _MIN_PARTS:
        return None
    grown = float(lows[-1] - lows[0])
    rising = float((np.diff(lows) > 0).mean())
    if grown < max(_MIN_GROWTH_BYTES, _MIN_GROWTH * lows[0]) or rising < _MIN_RISING:
        return None
    # What a program takes at once is no growth, even if a little comes before and after it.
    if np.diff(lows).max() > _MAX_JUMP * grown:
        return None
    rate, late_rate = _median_slope(centers, lows), _late_rate(centers, lows)
    if rate <= 0 or late_rate is None:
        return None
    full = max(0.0, limit_bytes - lows[-1]) / late_rate if limit_bytes else None
    return MemoryGrowth(grown, rate, full)


def _late_rate(times: Numbers, values: Numbers) -> float | None:
    """Return the rate in the end; None if it falls, as it does where caches fill.

    In its first third, a program takes memory quickly even if it keeps only some of it.
    """
    start = len(values) // 3
    middle = (start + len(values)) // 2
    before, after = slice(start, middle + 1), slice(middle, None)
    rate = _median_slope(times[after], values[after])
    return rate if rate > 0 and rate >= _MIN_LATE_RATE * _median_slope(times[before], values[before]) else None


def _median_slope(times: Numbers, values: Numbers) -> float:
    """Return the median of the slopes between all pairs of points, which outliers do not move."""
    first, second = np.triu_indices(len(values), 1)
    return float(np.median((values[second] - values[first]) / (times[second] - times[first])))


def _describe_growth(state: SteadyState, growth: MemoryGrowth, name: str, host: str, peak: float) -> Bottleneck:
    span_s = growth.grown_bytes / growth.bytes_per_s
    evidence = [
        f"During {duration(span_s)} of training, the memory of {name} on {host} grew by {size(growth.grown_bytes)} to "
        f"{size(peak)}, and the growth does not slow down: {size(growth.bytes_per_s * state.step_s)} per step."
    ]
    if growth.full_in_s is not None:
        evidence.append(f"At this rate, the memory is full in {duration(growth.full_in_s)}, and the job fails.")
    if state.profile.ended_us is None:
        evidence.append("A data set that is cached during the first epoch looks the same until that epoch is over.")
    holders = sorted(state.program.memory_holders, key=lambda each: -each.bytes)[:3]
    if holders:
        held = ", ".join(f"{each.name} ({size(each.bytes)})" for each in holders)
        evidence.append(f"At the peak, it held {held}.")
    title = f"Memory growth: the memory of {name} grows by {size(growth.bytes_per_s * 60)} per minute."
    return Bottleneck(BottleneckKind.MEMORY_GROWTH, title, evidence, 0.0)


def _times(state: SteadyState, metric: HardwareMetric, host: str, device: str) -> Times:
    samples = state.profile.hardware[host]
    start = min(rank.start_us for rank in state.ranks)
    first = int(np.searchsorted(samples.times_us, start, side="right"))
    return samples.times_us[first : first + len(state.window(metric, host)[device])]


def _limit_bytes(state: SteadyState, metric: HardwareMetric, device: str, host: str) -> float | None:
    if metric is HardwareMetric.JOB_MEMORY_BYTES:
        known = state.profile.instances.get(host)
        if known is not None and known.memory_bytes:
            return float(known.memory_bytes)
    percents = {
        HardwareMetric.JOB_MEMORY_BYTES: HardwareMetric.JOB_MEMORY_PERCENT,
        HardwareMetric.GPU_MEMORY_BYTES: HardwareMetric.GPU_MEMORY_PERCENT,
    }
    used, share = state.mean(metric, device, host), state.mean(percents[metric], device, host)
    return used / share * 100 if used and share else None


def find_idle_gpu(profile: JobProfile) -> Bottleneck | None:
    """Return GPUs that nothing uses, in a job that has any. Steps are not needed to see it."""
    idle: list[tuple[str, str, float]] = []
    busy: list[tuple[str, str, float]] = []
    devices = {rank.program.device for rank in profile.ranks} - {""}
    # A program that trains on the CPU does not need more time to show that.
    wait_s = 0.0 if devices == {"cpu"} else _MIN_IDLE_S
    if profile.ended_us is None and not any(len(rank.steps) for rank in profile.ranks):
        # It may prepare its data first, or load a large model.
        wait_s = _MIN_IDLE_BEFORE_STEPS_S
    for host, samples in profile.hardware.items():
        for device, values in samples.of(HardwareMetric.GPU_PERCENT).items():
            recent = samples.times_us >= _idle_since_us(profile)
            known = values[recent & np.isfinite(values)]
            if len(known) and samples.times_us[-1] - profile.started_us >= wait_s * 1e6:
                (idle if known.mean() < _IDLE_GPU_PERCENT else busy).append((host, device, float(known.mean())))
    if not idle and profile.ranks and devices == {"cpu"} and not busy:
        # Without samples of GPUs, the program says that it does not use those of its instance.
        gpus = sum(len(facts.gpus) for facts in profile.instances.values())
        idle = [("", f"gpu{number}", 0.0) for number in range(gpus)]
    if not idle:
        return None
    total = len(idle) + len(busy)
    names = ", ".join(f"{device} on {host}" if host else device for host, device, _ in idle[:4])
    most = max(mean for *_, mean in idle)
    evidence = [f"The utilization of {names}{' and more' if len(idle) > 4 else ''} is {percent(most / 100)} at most."]
    if devices:
        where = " and the ".join(_DEVICES.get(each, each) for each in sorted(devices))
        evidence.append(f"The model is on the {where}.")
    title = f"Idle GPU: {_idle_words(len(idle), total)}."
    # One that shares the work with the others makes the job quicker by their number at most; on one that takes over
    # from the CPU, the gain has no known bound.
    bound = total / len(busy) if busy else None
    return Bottleneck(BottleneckKind.IDLE_GPU, title, evidence, len(idle) / total, bound)


def _idle_words(idle: int, total: int) -> str:
    if idle < total:
        return f"{idle} of {total} GPUs {'computes' if idle == 1 else 'compute'} nothing"
    return "the GPU computes nothing" if total == 1 else f"none of the {total} GPUs computes anything"


def _idle_since_us(profile: JobProfile) -> int:
    """Return since when GPUs should be in use: the first steps, or the first half minute."""
    steps = [int(rank.steps.starts_us[0]) for rank in profile.ranks if len(rank.steps)]
    return min(steps, default=profile.started_us + round(_MIN_IDLE_S * 1e6))


def find_throttling(state: SteadyState) -> Bottleneck | None:
    """Return limits that slow the hardware down: of cores, of power, of temperature."""
    return _throttled_cores(state) or _throttled_gpus(state)


def _throttled_cores(state: SteadyState) -> Bottleneck | None:
    throttled = state.mean(HardwareMetric.JOB_THROTTLED_PERCENT)
    if throttled is None or throttled < _MIN_THROTTLED_PERCENT:
        return None
    evidence = [f"The job used up its cores in {throttled:.0f} % of the scheduler's periods, and had to wait."]
    bound = None
    if state.cores and state.cores_used is not None:
        evidence.append(f"It used {number(state.cores_used)} of the {count(state.cores, 'core')} that it may use.")
        if state.machine_cores > state.cores:
            evidence.append(f"The machine has {count(state.machine_cores, 'core')}.")
            bound = min(MAX_SPEEDUP, state.machine_cores / state.cores)
    title = f"Throttling: the job's limit of cores stops it in {throttled:.0f} % of the scheduler's periods."
    return Bottleneck(BottleneckKind.THROTTLING, title, evidence, throttled / 100, bound)


def _throttled_gpus(state: SteadyState) -> Bottleneck | None:
    host = state.lead.profile.host
    clocks = state.window(HardwareMetric.GPU_CLOCK_MHZ, host)
    samples = state.profile.hardware.get(host)
    for device, reasons in state.window(HardwareMetric.GPU_THROTTLE_REASONS, host).items():
        clock = clocks.get(device, np.full(len(reasons), np.nan))
        known = np.isfinite(reasons) & np.isfinite(clock)
        if samples is None or not known.any():
            continue
        bits = reasons[known].astype(np.int64)
        best = float(np.nanmax(samples.of(HardwareMetric.GPU_CLOCK_MHZ)[device]))
        ratio = clock[known] / best if best else np.ones(len(bits))
        is_slowed = (bits & _SLOWED) != 0
        if is_slowed.mean() < _MIN_SLOWED_SHARE:
            continue
        lost = float(np.where(is_slowed, 1 - ratio, 0.0).mean())
        share = max(lost, _MIN_SLOWED_SHARE * float(is_slowed.mean()))
        temperature = state.mean(HardwareMetric.GPU_TEMPERATURE_CELSIUS, device)
        evidence = [
            f"{device} on {host} was slowed down {percent(float(is_slowed.mean()))} of the time; its clock was then at "
            f"{percent(float(ratio[is_slowed].mean()))} of the {best:.0f} MHz that it reached at best."
        ]
        if temperature is not None:
            evidence.append(f"Its mean temperature was {temperature:.0f} °C.")
        often = percent(float(is_slowed.mean()))
        title = f"Throttling: temperature or the power supply slows {device} down {often} of the time."
        return Bottleneck(BottleneckKind.THROTTLING, title, evidence, share, speedup_without(lost) if lost else None)
    return None
