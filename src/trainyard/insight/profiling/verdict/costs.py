"""What a step and a sample cost in time, money and energy."""

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.verdict.contract import ProfileCosts
from trainyard.insight.profiling.verdict.steady_state import SteadyState


def compute_costs(state: SteadyState) -> ProfileCosts:
    """Return the costs on all instances together. Energy is that of the GPUs, of which alone it is known."""
    step_s = state.step_s
    samples = [rank.program.samples_per_step for rank in state.ranks]
    per_step = sum(each for each in samples if each is not None) if None not in samples else None
    instances = state.profile.instances.values()
    prices = [each.price_per_hour for each in instances]
    currencies = {each.currency for each in instances}
    money = None
    if prices and len(currencies) == 1 and None not in prices:
        money = sum(price for price in prices if price is not None) / 3600 * step_s
    joules = _joules_per_step(state)
    return ProfileCosts(
        step_s=step_s,
        samples_per_s=per_step / step_s if per_step and step_s else None,
        currency=currencies.pop() if len(currencies) == 1 else "",
        money_per_step=money,
        money_per_million_samples=money / per_step * 1e6 if money is not None and per_step else None,
        joules_per_step=joules,
        joules_per_sample=joules / per_step if joules is not None and per_step else None,
    )


def _joules_per_step(state: SteadyState) -> float | None:
    watts = [_watts(state, host, device) for host, device in state.gpus_percent]
    known = [each for each in watts if each is not None]
    return sum(known) * state.step_s if known and len(known) == len(watts) else None


def _watts(state: SteadyState, host: str, device: str) -> float | None:
    """Return the mean power of a GPU, from its energy if that was counted all the time."""
    energy = state.window(HardwareMetric.GPU_ENERGY_JOULES, host).get(device)
    samples = state.profile.hardware[host]
    if energy is not None:
        known = np.flatnonzero(np.isfinite(energy))
        if len(known) > 1:
            start = min(rank.start_us for rank in state.ranks)
            first = int(np.searchsorted(samples.times_us, start, side="right"))
            times = samples.times_us[first : first + len(energy)]
            span_s = float(times[known[-1]] - times[known[0]]) / 1e6
            used = float(energy[known[-1]] - energy[known[0]])
            # The counter begins again after the driver was loaded again.
            if span_s > 0 and used > 0:
                return used / span_s
    return state.mean(HardwareMetric.GPU_POWER_WATTS, device, host)
