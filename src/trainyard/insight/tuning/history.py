"""The history of a study: the observations that its own trials and those of its parents give a strategy.

A trial of a parent comes with all hyperparameters of its program, so it does not matter which of them were tuned there
and which were fixed. A trial outside the present ranges is left out. If the parent has the same data and algorithm, and
the hyperparameters that are fixed now had the same values then, or nearly, the trial counts as one of the study itself;
its `source` is then `same_task_source(parent)`. Any other trial is an observation of a source task: its `source` is the
parent, and the strategy finds out how much it says about the study.

The time for a suggestion grows with the number of observations, so a long history is thinned: the better trials stay,
and as many of the others, evenly spaced.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from trainyard.foundation.jobs.tuning import (
    Direction,
    StopCause,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
    WarmStartKind,
)
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space

_MAX_PARENT_TRIALS = 200  # of all parents together
# Hyperparameters that begin so say where a program is and how it is run, not what it computes.
_SDK_PREFIX = "sagemaker_"
# Fixed numbers that differ by less than this hardly change the result of a program.
_RELATIVE_TOLERANCE = 0.02


def to_observations(
    trials: Iterable[TuningTrial], space: Space, *, source: str = "", full_length: int | None = None
) -> list[Observation]:
    """Return an observation for each trial, in order; `full_length` is the number of reports of a complete trial."""
    return [_observation(trial, space, source=source, full_length=full_length) for trial in trials]


def state_of(trial: TuningTrial, *, full_length: int | None = None) -> State:
    """Return how far the objective of a trial can be relied on."""
    if not trial.has_ended:
        return State.PENDING
    if trial.cause is StopCause.RULE or (trial.objective is not None and not math.isfinite(trial.objective)):
        return State.DIVERGED
    if trial.status is TrialStatus.FAILED or trial.objective is None:
        return State.FAILED
    # Without a cause nobody decided to stop it: it used up its time, and got as far as it can in that time.
    is_complete = trial.cause is None or (full_length is not None and len(trial.curve) >= full_length)
    return State.MEASURED if is_complete else State.CUT_SHORT


def _observation(trial: TuningTrial, space: Space, *, source: str, full_length: int | None) -> Observation:
    state = state_of(trial, full_length=full_length)
    value = trial.objective if state in (State.MEASURED, State.CUT_SHORT) else None
    return Observation(space.values(trial.values), state, value, trial.curve, source)


def parent_observations(
    plan: TuningPlan, definition: TuningDefinition, *, space: Space, parents: Mapping[str, Sequence[TuningTrial]]
) -> list[Observation]:
    """Return the observations of the parents' ended trials of the same algorithm, parent by parent."""
    share = _MAX_PARENT_TRIALS // max(1, len(parents))
    observations: list[Observation] = []
    for parent, trials in parents.items():
        ended = [trial for trial in _trials_of_algorithm(trials, definition, plan) if trial.has_ended]
        within = [trial for trial in ended if space.admits(space.values(trial.values))]
        learned = [_parent_observation(trial, plan, definition, space=space, parent=parent) for trial in within]
        observations += thin_observations(learned, share, direction=definition.objective.direction)
    return observations


def same_task_source(parent: str) -> str:
    """Return the source of those trials of a parent that count as trials of the study itself."""
    return f"{parent} (the same)"


def thin_observations(observations: Sequence[Observation], most: int, *, direction: Direction) -> list[Observation]:
    """Return at most `most` observations, in order: the best ones for half, and evenly spaced others for the rest."""
    if len(observations) <= most:
        return list(observations)
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    order = sorted(range(len(observations)), key=lambda index: _loss(observations[index], sign))
    better, rest = order[: most // 2], sorted(order[most // 2 :])
    count = most - len(better)
    spaced = [rest[index * len(rest) // count] for index in range(count)]
    return [observations[index] for index in sorted(better + spaced)]


def _trials_of_algorithm(
    trials: Sequence[TuningTrial], definition: TuningDefinition, plan: TuningPlan
) -> Sequence[TuningTrial]:
    """Return the trials of the same algorithm: all if both studies have only one, else those with its name."""
    if len(plan.definitions) == 1 and len({trial.definition for trial in trials}) == 1:
        return trials
    return [trial for trial in trials if trial.definition == definition.name]


def _parent_observation(
    trial: TuningTrial, plan: TuningPlan, definition: TuningDefinition, *, space: Space, parent: str
) -> Observation:
    is_identical = plan.warm_start is not None and plan.warm_start.kind is WarmStartKind.IDENTICAL
    is_own = is_identical and _agrees(trial, definition)
    (observation,) = to_observations([trial], space, source=same_task_source(parent) if is_own else parent)
    return observation


def _agrees(trial: TuningTrial, definition: TuningDefinition) -> bool:
    """Whether the hyperparameters that are fixed now had the same values then; numbers may differ a little."""
    fixed = {name: text for name, text in definition.static.items() if not name.startswith(_SDK_PREFIX)}
    return all(_is_same(text, trial.values.get(name, text)) for name, text in fixed.items())


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_RELATIVE_TOLERANCE)
    except ValueError:
        return False


def _loss(observation: Observation, sign: float) -> float:
    if observation.state is not State.MEASURED or observation.value is None:
        return math.inf
    return sign * observation.value
