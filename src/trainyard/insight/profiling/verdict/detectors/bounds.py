"""The most that a job gains if a cause of lost time disappears."""

from collections.abc import Sequence

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import duration

# A difference between steps that is worth a sentence.
_MIN_SLOWED_SHARE = 0.05
# Beyond this factor a bound says nothing any more.
MAX_SPEEDUP = 100.0


def speedup_without(share: float) -> float:
    """Return T / (T - t) for the share t / T of the time."""
    return min(MAX_SPEEDUP, 1 / max(1 - share, 1 / MAX_SPEEDUP))


def speedup_without_phase(state: SteadyState, phase: StepPhase) -> float:
    """Return the bound for a phase that also slows down the rest of the step, as work beside the training does."""
    return speedup_without(state.share(phase) + state.slowed_share(phase))


def describe_slowed_rest(state: SteadyState, phase: StepPhase) -> Sequence[str]:
    """Say what such a bound counts besides the phase itself."""
    if state.slowed_share(phase) < _MIN_SLOWED_SHARE:
        return []
    mean, quickest = state.lead.rest_s(phase)
    return [
        f"The rest of a step takes {duration(mean)} on average, but only {duration(quickest)} in the quickest tenth of "
        "the steps; the bound includes that difference."
    ]
