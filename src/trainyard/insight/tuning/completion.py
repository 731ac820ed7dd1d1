"""Completion criteria: when a tuning job ends before it reaches its limits.

All that the criteria need of the trials is a `Progress` of fixed size, which `after_trial` updates as each trial ends,
so that no history is read again.

A trial is measured if it ended with a finite objective, on its own or because it was ended early. Trials that failed or
that a rule of the debugger ended are not: they can neither be the best nor show that nothing gets better. A better
trial counts as an improvement if it is better by 1 % than the best one at the last improvement, as AWS counts it, so
that many small steps add up to one.

A study has converged when as many trials again are expected to add less than 1 % to the gain so far. The best ten
values give the expectation: they are taken as an exponential tail, as many distributions have. If m is the mean
distance of the others from the last of them, n more trials after n are expected to improve the best one by m ln 2. A
strategy that searches in good regions makes m small in the end; one that searches everywhere does so only if most
values are equally good. The gain so far is the distance of the best value from the median of the first ten. No study
converges before `MIN_MEASURED` trials, or within `PATIENCE` trials after one that added more than 1 % to the gain.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from trainyard.foundation.jobs.tuning import Direction, StopCause, TrialStatus, TuningPlan, TuningTrial

# A better trial counts as an improvement if it is better by this fraction.
MIN_IMPROVEMENT = 0.01
# The fraction of the gain so far that is not worth as many trials again.
CONVERGENCE_TOLERANCE = 0.01
MIN_MEASURED = 20
PATIENCE = 10  # trials without a gain
TAIL_SIZE = 10  # values


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a tuning job. The values are as measured."""

    # The number of the best trial.
    best: int | None = None
    best_value: float | None = None
    # The value of the last improvement, and the trials measured since.
    improved_to: float | None = None
    since_best: int = 0
    # The value of the last gain, and the trials measured since.
    gained_to: float | None = None
    since_gain: int = 0
    measured: int = 0
    # The first values, and the best ones from the best on.
    first: tuple[float, ...] = ()
    tail: tuple[float, ...] = ()


def after_trial(progress: Progress, trial: TuningTrial, *, plan: TuningPlan) -> Progress:
    """Return the progress after this trial has ended."""
    value = measured_value(trial)
    if value is None:
        return progress
    sign = _sign(plan, trial.definition)
    is_best = progress.best_value is None or sign * value < sign * progress.best_value
    is_improved = _is_improvement(value, progress.improved_to, sign=sign)
    is_gained = _is_gain(value, progress, sign=sign)
    return Progress(
        best=trial.number if is_best else progress.best,
        best_value=value if is_best else progress.best_value,
        improved_to=value if is_improved else progress.improved_to,
        since_best=0 if is_improved else progress.since_best + 1,
        gained_to=value if is_gained else progress.gained_to,
        since_gain=0 if is_gained else progress.since_gain + 1,
        measured=progress.measured + 1,
        first=(*progress.first, value)[:TAIL_SIZE],
        tail=tuple(sorted((*progress.tail, value), key=lambda each: sign * each)[:TAIL_SIZE]),
    )


def progress_of(plan: TuningPlan, trials: Iterable[TuningTrial]) -> Progress:
    """Return the progress after trials, in the order in which they ended."""
    progress = Progress()
    for trial in trials:
        progress = after_trial(progress, trial, plan=plan)
    return progress


def measured_value(trial: TuningTrial) -> float | None:
    """Return the objective of a measured trial; None if it runs, failed, diverged or reported nothing."""
    if trial.status not in (TrialStatus.COMPLETED, TrialStatus.STOPPED) or trial.cause is StopCause.RULE:
        return None
    return trial.objective if trial.objective is not None and math.isfinite(trial.objective) else None


def why_complete(plan: TuningPlan, progress: Progress) -> str | None:
    """Return why no further trial is started, as a sentence for the user; None while the search continues."""
    if progress.best is None or progress.best_value is None:
        return None
    wanted = plan.completion
    sign = _sign(plan, plan.definitions[0].name)
    if wanted.target is not None and sign * progress.best_value <= sign * wanted.target:
        return f"Trial {progress.best} reached {progress.best_value:.6g}; the target was {wanted.target:.6g}."
    most = wanted.most_without_improvement
    if most is not None and progress.since_best >= most:
        return (
            f"The best objective, {progress.best_value:.6g} of trial {progress.best}, has not improved by "
            f"{MIN_IMPROVEMENT:.0%} for {progress.since_best} trials; the limit is {most}."
        )
    if wanted.on_convergence and has_converged(progress):
        return (
            f"The search has converged: {progress.measured} further trials are expected to improve the best objective, "
            f"{progress.best_value:.6g} of trial {progress.best}, by {expected_gain(progress):.2g}."
        )
    return None


def has_converged(progress: Progress) -> bool:
    """Whether as many trials again would hardly improve the best one."""
    if progress.measured < MIN_MEASURED or progress.since_gain < PATIENCE or progress.best_value is None:
        return False
    gained = abs(progress.best_value - median(progress.first))
    return expected_gain(progress) <= CONVERGENCE_TOLERANCE * gained


def expected_gain(progress: Progress) -> float:
    """Return by how much as many trials again are expected to improve the best value."""
    if len(progress.tail) < TAIL_SIZE:
        return math.inf
    return fmean(abs(value - progress.tail[-1]) for value in progress.tail[:-1]) * math.log(2)


def _is_improvement(value: float, before: float | None, *, sign: float) -> bool:
    if before is None:
        return True
    gain = sign * (before - value)
    return gain > 0 and gain >= MIN_IMPROVEMENT * abs(before)


def _is_gain(value: float, progress: Progress, *, sign: float) -> bool:
    if progress.gained_to is None:
        return True
    gained = abs(progress.gained_to - median(progress.first))
    return sign * (progress.gained_to - value) > CONVERGENCE_TOLERANCE * gained


def _sign(plan: TuningPlan, definition: str) -> float:
    return 1.0 if plan.definition(definition).objective.direction is Direction.MINIMIZE else -1.0
