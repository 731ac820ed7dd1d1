"""The next trial of a study, from its plan, its trials and those of its parents."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.jobs.tuning import StrategyKind, TuningDefinition, TuningPlan, TuningTrial
from trainyard.insight.tuning.algorithm_choice import rank_definitions
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.contract import Observation, Strategy
from trainyard.insight.tuning.grid import GridStrategy
from trainyard.insight.tuning.history import parent_observations, same_task_source, to_observations
from trainyard.insight.tuning.random import RandomStrategy
from trainyard.insight.tuning.space import Space


@dataclass(frozen=True, slots=True)
class Advice:
    """The next trial: the name of its definition, and the tuned hyperparameters as text for the program."""

    definition: str
    values: Mapping[str, str]


def advise(
    plan: TuningPlan, trials: Sequence[TuningTrial], *, parents: Mapping[str, Sequence[TuningTrial]], number: int
) -> Advice | None:
    """Return what the trial with this number tries; None when nothing is left to try.

    `parents` maps the names of the tuning jobs that this one starts from to their trials, whose values include the
    fixed hyperparameters. The answer depends on the arguments alone.
    """
    spaces = {each.name: Space(each.ranges) for each in plan.definitions}
    full_length = plan.resources.most if plan.resources else None
    own = {
        name: to_observations((each for each in trials if each.definition == name), space, full_length=full_length)
        for name, space in spaces.items()
    }
    for name in rank_definitions(plan, own):
        definition, space = plan.definition(name), spaces[name]
        history = own[name] + _from_parents(plan, definition, space=space, parents=parents)
        values = strategy_of(plan, definition, space=space, parents=parents).suggest(history, number=number)
        if values is not None:
            return Advice(name, space.texts(values))
    return None


def chooses_initially(
    plan: TuningPlan,
    definition: TuningDefinition,
    trials: Sequence[TuningTrial],
    *,
    parents: Mapping[str, Sequence[TuningTrial]],
) -> bool:
    """Whether the next trial of a definition is chosen without a model, because too little is known."""
    space = Space(definition.ranges)
    strategy = strategy_of(plan, definition, space=space, parents=parents)
    own = to_observations((each for each in trials if each.definition == definition.name), space)
    history = own + _from_parents(plan, definition, space=space, parents=parents)
    return isinstance(strategy, BayesianStrategy) and strategy.chooses_initially(history)


def strategy_of(
    plan: TuningPlan, definition: TuningDefinition, *, space: Space, parents: Collection[str] = ()
) -> Strategy:
    """Return the strategy of a plan for one of its definitions.

    Hyperband decides how long trials run, not what they try. The suggestions come from the Bayesian strategy, which can
    use trials that were cut short and needs fewer of them than random search.
    """
    seed = _seed(plan.seed, definition.name)
    if plan.strategy is StrategyKind.GRID:
        return GridStrategy(space, seed=seed)
    if plan.strategy is StrategyKind.RANDOM:
        return RandomStrategy(space, seed=seed)
    same = [same_task_source(parent) for parent in parents]
    return BayesianStrategy(space, definition.objective.direction, seed=seed, same_task_sources=same)


def _from_parents(
    plan: TuningPlan, definition: TuningDefinition, *, space: Space, parents: Mapping[str, Sequence[TuningTrial]]
) -> list[Observation]:
    # A grid tries every combination, even those that a parent has tried.
    if plan.strategy is StrategyKind.GRID:
        return []
    return parent_observations(plan, definition, space=space, parents=parents)


def _seed(seed: int, definition: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{definition}".encode()).digest()[:8])
