"""What a study learns from the trials of its parents.

A trial of a parent comes with all hyperparameters that its program was given, so that it makes no difference which of
them were tuned there and which were fixed. One that lies outside the ranges of now says nothing. One of a parent with
the same data and algorithm counts as a trial of the study itself, where what is fixed now had the same value then, or
nearly; its `source` is then one of `alike`. Any other is an observation of a relative: it has the parent as its
`source`, and how much it says about the study is for the strategy to find out.

Of many trials some are left out, because the time for a suggestion grows with their number: the better ones stay, and
of the others as many, evenly taken.
"""

import math
from collections.abc import Mapping, Sequence

from trainyard.foundation.tuning import Definition, Direction, Trial, TuningPlan, WarmStartKind
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.history import observed
from trainyard.insight.tuning.space import Space

_MOST = 200  # trials of all parents together
_OF_SDKS = "sagemaker_"  # begins the names that say where a program lies and how it is run, not what it computes
_NEARLY = 0.02  # of a number: less than a program's result depends on it


def inherited(
    plan: TuningPlan, definition: Definition, *, space: Space, parents: Mapping[str, Sequence[Trial]]
) -> list[Observation]:
    """What the parents' ended trials of the same algorithm say, parent by parent."""
    share = _MOST // max(1, len(parents))
    found: list[Observation] = []
    for parent, trials in parents.items():
        ours = [trial for trial in _of_algorithm(trials, definition, plan) if trial.has_ended]
        within = [trial for trial in ours if space.admits(space.values(trial.values))]
        learned = [_observation(trial, plan, definition, space=space, parent=parent) for trial in within]
        found += thinned(learned, share, direction=definition.objective.direction)
    return found


def alike(parent: str) -> str:
    """The source of those trials of a parent that count as if they were of the study itself."""
    return f"{parent} (the same)"


def thinned(observations: Sequence[Observation], most: int, *, direction: Direction) -> list[Observation]:
    """At most so many of the observations, in their order: the better half of them, and an even choice of the rest."""
    if len(observations) <= most:
        return list(observations)
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    order = sorted(range(len(observations)), key=lambda index: _loss(observations[index], sign))
    better, rest = order[: most // 2], sorted(order[most // 2 :])
    count = most - len(better)
    evenly = [rest[index * len(rest) // count] for index in range(count)]
    return [observations[index] for index in sorted(better + evenly)]


def _of_algorithm(trials: Sequence[Trial], definition: Definition, plan: TuningPlan) -> Sequence[Trial]:
    """Which trials are of the same algorithm: all where both have only one, else those of its name."""
    if len(plan.definitions) == 1 and len({trial.definition for trial in trials}) == 1:
        return trials
    return [trial for trial in trials if trial.definition == definition.name]


def _observation(trial: Trial, plan: TuningPlan, definition: Definition, *, space: Space, parent: str) -> Observation:
    is_identical = plan.warm_start is not None and plan.warm_start.kind is WarmStartKind.IDENTICAL
    is_own = is_identical and _agrees(trial, definition)
    (observation,) = observed([trial], space, source=alike(parent) if is_own else parent)
    return observation


def _agrees(trial: Trial, definition: Definition) -> bool:
    """Whether what is fixed now had the same value then, or nearly where it is a number."""
    fixed = {name: text for name, text in definition.static.items() if not name.startswith(_OF_SDKS)}
    return all(_is_same(text, trial.values.get(name, text)) for name, text in fixed.items())


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_NEARLY)
    except ValueError:
        return False


def _loss(observation: Observation, sign: float) -> float:
    if observation.state is not State.MEASURED or observation.value is None:
        return math.inf
    return sign * observation.value
