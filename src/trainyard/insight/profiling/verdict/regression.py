"""Whether steps have become slower, or quicker, since earlier runs of the same job, and in which phase."""

from collections.abc import Sequence

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.contract import EarlierRun, Regression
from trainyard.insight.profiling.verdict.detectors.bounds import MAX_SPEEDUP
from trainyard.insight.profiling.verdict.detectors.ranks import phase_name
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state
from trainyard.insight.profiling.verdict.wording import duration

# A change that is smaller than this, or than what runs differ by anyway, says nothing. A single earlier run does not
# tell how much they differ.
_MIN_CHANGE, _MIN_CHANGE_SINCE_ONE = 0.08, 0.15
_SIGMAS = 4.0
# Scales the median absolute deviation to the standard deviation of a normal distribution.
_MAD_TO_SIGMA = 1.4826
_MAX_RUNS = 20
_PARTS = 8
# A phase is named if it has this part of the change, and more of it than it has of the step anyway.
_MAIN_PART, _MORE_THAN_USUAL = 0.5, 0.3


def summarize_run(profile: JobProfile) -> EarlierRun | None:
    """Return a run in short, to compare later ones with; None if it has too few steps."""
    state = find_steady_state(profile)
    return None if state is None else _summarize(state)


def find_regression(state: SteadyState, earlier: Sequence[EarlierRun]) -> Regression | None:
    """Compare the steps with those of comparable runs. Noise gives None.

    The runs before are followed back to the last one whose steps were as they used to be: that is when it changed.
    """
    current = _summarize(state)
    runs = sorted((run for run in earlier if _are_comparable(run, current)), key=lambda run: run.ended_us)[-_MAX_RUNS:]
    if not runs:
        return None
    # Runs as slow as this one came after the change.
    noise = _noise(state, runs)
    later = 0
    while later < len(runs) and abs(current.step_s / runs[-1 - later].step_s - 1) <= noise:
        later += 1
    before = runs[: len(runs) - later]
    if not before:
        return None
    usual_s = float(np.median([run.step_s for run in before]))
    last = before[-1]
    least = max(noise, _MIN_CHANGE if len(before) > 1 else _MIN_CHANGE_SINCE_ONE)
    ratio = current.step_s / usual_s
    is_slower = ratio > 1
    changes = [current.step_s / each - 1 for each in (usual_s, last.step_s)]
    if any(abs(each) < least or (each > 0) is not is_slower for each in changes):
        return None
    phase = _changed_phase(current, before)
    amount = ratio - 1 if is_slower else 1 - ratio
    reason = f", because of {phase_name(phase)}" if phase is not None else ""
    message = (
        f"{amount * 100:.0f} % {'slower' if is_slower else 'quicker'} per step since {last.job}{reason}: "
        f"{duration(current.step_s)} instead of {duration(usual_s)}."
    )
    return Regression(message, min(ratio, MAX_SPEEDUP), last.job, phase)


def _summarize(state: SteadyState) -> EarlierRun:
    profile, program = state.profile, state.program
    ends = [rank.end_us for rank in state.ranks]
    setup = {
        "instance_type": state.instance.instance_type,
        "instances": str(len(profile.instances)),
        "ranks": str(len(state.ranks)),
        "device": program.device,
        # The last batch of an epoch may be smaller.
        "samples_per_step": f"{program.samples_per_step:.1e}" if program.samples_per_step else "",
        "parameters": str(program.parameters or ""),
    }
    return EarlierRun(
        profile.job,
        profile.ended_us if profile.ended_us is not None else max(ends),
        state.step_s,
        state.phases_s,
        {name: value for name, value in setup.items() if value},
    )


def _are_comparable(run: EarlierRun, current: EarlierRun) -> bool:
    shared = run.setup.keys() & current.setup.keys()
    return run.step_s > 0 and run.job != current.job and all(run.setup[name] == current.setup[name] for name in shared)


def _noise(state: SteadyState, runs: Sequence[EarlierRun]) -> float:
    """Return by how much runs differ by chance, as a share: among each other, and within this one."""
    durations = state.lead.durations_s
    parts = np.array([part.mean() for part in np.array_split(durations, min(_PARTS, len(durations)))])
    within = _relative_deviation(parts) / np.sqrt(len(parts))
    # Steps from one run to the next: a change that stays counts once, where a deviation would count it in half of them.
    steps = np.abs(np.diff(np.log([run.step_s for run in runs]))) if len(runs) > 2 else np.zeros(0)
    between = float(np.median(steps)) * _MAD_TO_SIGMA / np.sqrt(2) if len(steps) else 0.0
    return float(max(_MIN_CHANGE / 2, _SIGMAS * np.hypot(within, between)))


def _relative_deviation(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    middle = float(np.median(values))
    return float(np.median(np.abs(values - middle))) * _MAD_TO_SIGMA / middle if middle else 0.0


def _changed_phase(current: EarlierRun, before: Sequence[EarlierRun]) -> StepPhase | None:
    usual = {phase: float(np.median([run.phases_s.get(phase, 0.0) for run in before])) for phase in StepPhase}
    change = {phase: current.phases_s.get(phase, 0.0) - usual[phase] for phase in StepPhase}
    total = sum(change.values())
    phase = max(StepPhase, key=lambda each: change[each] if total > 0 else -change[each])
    usual_part = usual[phase] / max(sum(usual.values()), 1e-12)
    is_main = total != 0 and change[phase] / total >= max(_MAIN_PART, usual_part + _MORE_THAN_USUAL * (1 - usual_part))
    return phase if is_main else None
