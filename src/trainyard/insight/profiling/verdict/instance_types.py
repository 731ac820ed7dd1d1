"""Whether a smaller instance type would do, or a larger one would pay, in money."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import InstanceFacts
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind, ProfileAdvice
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import count, describe_cores, number, size, times

# What a smaller type has to have beyond what the job uses.
_SPARE_CORES, _SPARE_MEMORY = 1.25, 1.2
# A GPU that is used less than this counts as unused.
_USED_GPU_PERCENT = 3.0
_MIN_SAVING = 0.05
# Cores are what holds the job up if it takes nearly all of them.
_CORES_FULL = 0.85
_CORE_BOUND = (
    BottleneckKind.DATA_LOADING,
    BottleneckKind.TOO_MANY_WORKERS,
    BottleneckKind.COMPUTE,
    BottleneckKind.THROTTLING,
)


def advise_on_instance_types(
    state: SteadyState, first: Bottleneck, types: Mapping[str, InstanceFacts]
) -> Iterator[ProfileAdvice]:
    """Return the cheapest type on which the job would run as fast, or a larger one that pays for itself."""
    now = state.instance
    if now.price_per_hour is None or state.cores_used is None or not state.cores:
        return
    known = {name: facts for name, facts in types.items() if name != now.instance_type and _has_price(facts, now)}
    if state.cores_used >= _CORES_FULL * state.cores:
        if first.kind in _CORE_BOUND and not state.is_on_gpu:
            yield from _advise_on_larger(state, first, known)
        return
    yield from _advise_on_smaller(state, first, known)


def _advise_on_smaller(
    state: SteadyState, first: Bottleneck, types: Mapping[str, InstanceFacts]
) -> Iterator[ProfileAdvice]:
    now, used = state.instance, _used_gpus(state)
    cores = _peak(state, HardwareMetric.JOB_CPU_PERCENT) * (state.cores or 0) / 100 * _SPARE_CORES
    memory = _peak(state, HardwareMetric.JOB_MEMORY_BYTES) * _SPARE_MEMORY
    price = now.price_per_hour or 0.0
    if not cores or not memory:
        return
    fitting = {
        name: facts
        for name, facts in types.items()
        if (facts.cores or 0) >= cores
        and (facts.memory_bytes or 0) >= memory
        and _has_gpus(facts, now, used)
        and (facts.price_per_hour or 0.0) < price * (1 - _MIN_SAVING)
    }
    name = min(fitting, key=lambda each: fitting[each].price_per_hour or 0.0, default=None)
    if name is None:
        return
    instances = max(1, len(state.profile.instances))
    saved = (price - (fitting[name].price_per_hour or 0.0)) * instances
    yield ProfileAdvice(
        f"Use {name} instead of {now.instance_type or 'this type'}",
        f"At most, the job uses {number(cores / _SPARE_CORES)} of its {count(state.cores or 0, 'core')} and "
        f"{size(memory / _SPARE_MEMORY)} of memory{_gpu_words(now, used)}. "
        f"{name} saves {saved:.3g} {now.currency} per hour.",
        first.kind,
        instance_type=name,
        saved_per_hour=saved,
    )


def _advise_on_larger(
    state: SteadyState, first: Bottleneck, types: Mapping[str, InstanceFacts]
) -> Iterator[ProfileAdvice]:
    now, cores, price = state.instance, state.cores or 1.0, state.instance.price_per_hour or 0.0
    larger = {
        name: facts
        for name, facts in types.items()
        if (facts.cores or 0) > cores
        and (facts.memory_bytes or 0) >= (now.memory_bytes or 0)
        and _has_gpus(facts, now, len(now.gpus))
        and (facts.price_per_hour or 0.0) / max(price, 1e-9) <= (facts.cores or 0) / cores
    }
    name = min(larger, key=lambda each: (larger[each].price_per_hour or 0.0) / (larger[each].cores or 1), default=None)
    if name is None or not price:
        return
    facts = larger[name]
    speedup, ratio = (facts.cores or 0) / cores, (facts.price_per_hour or 0.0) / price
    if first.max_speedup is not None:
        speedup = min(speedup, first.max_speedup)
    if speedup < ratio:
        return
    yield ProfileAdvice(
        f"Use {name} instead of {now.instance_type or 'this type'}",
        f"{' '.join(describe_cores(state.cores_used, state.cores))} {name} has "
        f"{count(facts.cores or 0, 'core')} for {times(ratio)} the price, so a step costs less if it becomes more than "
        f"{times(ratio)} as fast; at most, it becomes {times(speedup)} as fast.",
        first.kind,
        max_speedup=speedup,
        instance_type=name,
    )


def _has_price(facts: InstanceFacts, now: InstanceFacts) -> bool:
    return facts.price_per_hour is not None and facts.currency == now.currency


def _has_gpus(facts: InstanceFacts, now: InstanceFacts, wanted: int) -> bool:
    if not wanted:
        return True
    return len(facts.gpus) >= wanted and set(facts.gpus) == set(now.gpus)


def _used_gpus(state: SteadyState) -> int:
    """Return how many GPUs of the host of the lead rank are in use; all where that is not known."""
    host = state.lead.profile.host
    percents: Sequence[float] = [value for (where, _), value in state.gpus_percent.items() if where == host]
    if not percents:
        return len(state.instance.gpus) if state.is_on_gpu else 0
    return sum(value >= _USED_GPU_PERCENT for value in percents)


def _peak(state: SteadyState, metric: HardwareMetric) -> float:
    """Return the largest value on any host, but for the highest twentieth of the samples."""
    peaks = []
    for host in state.profile.hardware:
        values = state.window(metric, host).get("")
        known = values[np.isfinite(values)] if values is not None else np.zeros(0)
        if len(known):
            peaks.append(float(np.percentile(known, 95)))
    return max(peaks, default=0.0)


def _gpu_words(now: InstanceFacts, used: int) -> str:
    return f", and {used} of {count(len(now.gpus), 'GPU')}" if now.gpus else ""
