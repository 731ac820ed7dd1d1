"""Time beside the steps: checkpoints, and the time before the first step."""

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import (
    describe_slowed_rest,
    speedup_without,
    speedup_without_phase,
)
from trainyard.insight.profiling.verdict.steady_state import SteadyState, first_step_us
from trainyard.insight.profiling.verdict.wording import count, duration, percent

_MIN_CHECKPOINT_SHARE = 0.05
# Starting is worth a word if it takes this long, and this part of the job.
_MIN_START_S, _MIN_START_SHARE = 120.0, 0.5


def find_checkpoints(state: SteadyState) -> Bottleneck | None:
    share = state.share(StepPhase.CHECKPOINT)
    if share < _MIN_CHECKPOINT_SHARE:
        return None
    rank = max(state.ranks, key=lambda each: each.share(StepPhase.CHECKPOINT))
    spent = rank.all_steps.phase_s(StepPhase.CHECKPOINT)[rank.rows]
    is_saving = spent > 0
    saves, steps = int(np.count_nonzero(is_saving)), rank.steps
    return Bottleneck(
        BottleneckKind.CHECKPOINTS,
        f"Checkpoints: the program spends {percent(share)} of the time on saving.",
        [
            f"It saves {_frequency(steps / max(saves, 1))}, and waits {duration(float(spent[is_saving].mean()))} each "
            "time.",
            f"On average, that is {duration(state.phases_s[StepPhase.CHECKPOINT])} of a step of "
            f"{duration(state.step_s)}.",
            *describe_slowed_rest(state, StepPhase.CHECKPOINT),
        ],
        share,
        # While a checkpoint is on its way to the disk, the steps after it are slower too.
        speedup_without_phase(state, StepPhase.CHECKPOINT),
    )


def _frequency(steps: float) -> str:
    whole = round(steps)
    if whole <= 1:
        return "after every step"
    return f"{'after' if abs(steps - whole) < 0.05 * whole else 'about'} every {count(whole, 'step')}"


def find_initialization(profile: JobProfile) -> Bottleneck | None:
    """Return the time before the first step if it was most of the job. Of a running job, that is not known yet."""
    first, end = first_step_us(profile), profile.ended_us
    if first is None or end is None:
        return None
    total_s, start_s = (end - profile.started_us) / 1e6, (first - profile.started_us) / 1e6
    if start_s < _MIN_START_S or total_s <= 0 or start_s / total_s < _MIN_START_SHARE:
        return None
    share, steps_s = min(1.0, start_s / total_s), max(0.0, total_s - start_s)
    return Bottleneck(
        BottleneckKind.INITIALIZATION,
        f"Initialization: {percent(share)} of the job passed before its first step.",
        [f"The first step began after {duration(start_s)}, and all steps together took {duration(steps_s)}."],
        share,
        speedup_without(share),
    )
