"""When a tuning job is over before its limits are reached.

What this needs to know of all trials is a `Progress` of fixed size, which `after_trial` brings up to date as each trial
ends, so that no history is read again.

A trial is measured when it ended with an objective that is a finite number, on its own or because it was ended early.
Trials that failed or that a rule of the debugger ended are not: they can neither be the best nor show that nothing gets
better. A better trial counts as an improvement once it is better by 1 % than the best one at the last improvement, as
AWS counts it, so that many small steps make one.

A study has converged when as many trials again can be expected to add less than 1 % to what was gained so far. The best
ten values tell what to expect: they are taken for the tail of all values, falling off exponentially, as tails of many
distributions do. The mean distance m of the others from the last of them is then the size of the tail, and n more
trials after n are expected to make the best one better by m ln 2. A strategy that searches where it is good makes m
small in the end; one that searches everywhere does so only where most values are equally good. What was gained so far
is the distance of the best value from the median of the first ten. Before `FEWEST_MEASURED` trials, or within
`PATIENCE` of one that added more than 1 % to that, nothing has converged.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from trainyard.foundation.tuning import Direction, StopCause, Trial, TrialStatus, TuningPlan

IMPROVEMENT = 0.01  # the part by which a better trial must be better to count
CONVERGED = 0.01  # the part of what was gained that is not worth as many trials again
FEWEST_MEASURED = 20
PATIENCE = 10  # trials that add nothing to speak of
TAIL = 10  # values


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tuning job has come. The values are as they were measured."""

    best: int | None = None  # the number of the trial
    best_value: float | None = None
    improved_to: float | None = None  # the best value when it last improved by enough to count
    since_best: int = 0  # trials measured since then
    gained_to: float | None = None  # the best value when it last added to what was gained
    since_gain: int = 0  # trials measured since then
    measured: int = 0
    first: tuple[float, ...] = ()  # of all values
    tail: tuple[float, ...] = ()  # the best values, from the best on


def after_trial(progress: Progress, trial: Trial, *, plan: TuningPlan) -> Progress:
    """What is known once this trial has ended."""
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
        first=(*progress.first, value)[:TAIL],
        tail=tuple(sorted((*progress.tail, value), key=lambda each: sign * each)[:TAIL]),
    )


def progress_of(plan: TuningPlan, trials: Iterable[Trial]) -> Progress:
    """What is known of trials, in the order in which they ended."""
    progress = Progress()
    for trial in trials:
        progress = after_trial(progress, trial, plan=plan)
    return progress


def measured_value(trial: Trial) -> float | None:
    """The objective of a trial that counts; None for one that still runs, failed, diverged or told nothing."""
    if trial.status not in (TrialStatus.COMPLETED, TrialStatus.STOPPED) or trial.cause is StopCause.RULE:
        return None
    return trial.objective if trial.objective is not None and math.isfinite(trial.objective) else None


def why_complete(plan: TuningPlan, progress: Progress) -> str | None:
    """Why no further trial is started, as a sentence for the user; None while there is reason to go on."""
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
            f"{IMPROVEMENT:.0%} for {progress.since_best} trials; the limit is {most}."
        )
    if wanted.on_convergence and has_converged(progress):
        return (
            f"The search has converged: {progress.measured} further trials are expected to improve the best objective, "
            f"{progress.best_value:.6g} of trial {progress.best}, by {expected_gain(progress):.2g}."
        )
    return None


def has_converged(progress: Progress) -> bool:
    """Whether as many trials again would hardly make the best one better."""
    if progress.measured < FEWEST_MEASURED or progress.since_gain < PATIENCE or progress.best_value is None:
        return False
    gained = abs(progress.best_value - median(progress.first))
    return expected_gain(progress) <= CONVERGED * gained


def expected_gain(progress: Progress) -> float:
    """By how much as many trials again can be expected to make the best value better."""
    if len(progress.tail) < TAIL:
        return math.inf
    return fmean(abs(value - progress.tail[-1]) for value in progress.tail[:-1]) * math.log(2)


def _is_improvement(value: float, before: float | None, *, sign: float) -> bool:
    if before is None:
        return True
    gain = sign * (before - value)
    return gain > 0 and gain >= IMPROVEMENT * abs(before)


def _is_gain(value: float, progress: Progress, *, sign: float) -> bool:
    if progress.gained_to is None:
        return True
    gained = abs(progress.gained_to - median(progress.first))
    return sign * (progress.gained_to - value) > CONVERGED * gained


def _sign(plan: TuningPlan, definition: str) -> float:
    return 1.0 if plan.definition(definition).objective.direction is Direction.MINIMIZE else -1.0
