"""What a study tries next, from its plan, its trials and those of its parents."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.tuning import Definition, StrategyKind, Trial, TuningPlan
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.contract import Observation, Strategy
from trainyard.insight.tuning.grid import GridStrategy
from trainyard.insight.tuning.history import observed
from trainyard.insight.tuning.random import RandomStrategy
from trainyard.insight.tuning.several import preferred
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.transfer import alike, inherited


@dataclass(frozen=True, slots=True)
class Advice:
    """The next trial: the name of its definition and the tuned hyperparameters as the program is given them."""

    definition: str
    values: Mapping[str, str]


def advise(
    plan: TuningPlan, trials: Sequence[Trial], *, parents: Mapping[str, Sequence[Trial]], number: int
) -> Advice | None:
    """What the trial with this number shall be; None when there is nothing left to try.

    `parents` are the trials of the tuning jobs that this one starts from, by their names, with all hyperparameters in
    their values, fixed ones too. The answer depends on nothing but what is given.
    """
    spaces = {each.name: Space(each.ranges) for each in plan.definitions}
    whole = plan.resources.most if plan.resources else None
    own = {
        name: observed((each for each in trials if each.definition == name), space, whole=whole)
        for name, space in spaces.items()
    }
    for name in preferred(plan, own):
        definition, space = plan.definition(name), spaces[name]
        history = own[name] + _from_parents(plan, definition, space=space, parents=parents)
        values = strategy_of(plan, definition, space=space, parents=parents).suggest(history, number=number)
        if values is not None:
            return Advice(name, space.texts(values))
    return None


def strategy_of(plan: TuningPlan, definition: Definition, *, space: Space, parents: Collection[str] = ()) -> Strategy:
    """The strategy of a plan for one of its definitions.

    Hyperband decides how long trials run, not what they are: it takes the suggestions of the Bayesian strategy, which
    knows what to make of trials that were cut short, and needs fewer of them than chance does.
    """
    seed = _seed(plan.seed, definition.name)
    if plan.strategy is StrategyKind.GRID:
        return GridStrategy(space, seed=seed)
    if plan.strategy is StrategyKind.RANDOM:
        return RandomStrategy(space, seed=seed)
    same = [alike(parent) for parent in parents]
    return BayesianStrategy(space, definition.objective.direction, seed=seed, alike=same)


def _from_parents(
    plan: TuningPlan, definition: Definition, *, space: Space, parents: Mapping[str, Sequence[Trial]]
) -> list[Observation]:
    if plan.strategy is StrategyKind.GRID:  # which promises every combination, whoever tried it before
        return []
    return inherited(plan, definition, space=space, parents=parents)


def _seed(seed: int, definition: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{definition}".encode()).digest()[:8])
