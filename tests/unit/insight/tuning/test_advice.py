from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperbandResources,
    HyperparameterRange,
    Objective,
    StopCause,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
    WarmStart,
    WarmStartKind,
)
from trainyard.insight.tuning.advice import Advice, advise
from trainyard.testing.tuning import categorical, continuous, integer

RANGES = (continuous("rate", 0.0, 1.0), integer("layers", 1, 4), categorical("optimizer", "sgd", "adam"))
GRID = (categorical("optimizer", "sgd", "adam"), categorical("bias", "no", "yes"))


def definition(name: str = "", *, ranges: Sequence[HyperparameterRange] = RANGES) -> TuningDefinition:
    return TuningDefinition(name, Objective("loss", Direction.MINIMIZE), tuple(ranges))


def plan(strategy: StrategyKind, *definitions: TuningDefinition, seed: int = 0) -> TuningPlan:
    return TuningPlan(strategy, definitions or (definition(),), 1, 20, seed=seed, resources=HyperbandResources(1, 9))


def run(asked: TuningPlan, *, trials: int, loss: Callable[[Advice], float] = lambda _: 1.0) -> list[TuningTrial]:
    """A study in which one trial runs at a time; it may end before."""
    done: list[TuningTrial] = []
    for number in range(1, trials + 1):
        advice = advise(asked, done, parents={}, number=number)
        if advice is None:
            break
        done.append(completed(number, advice, loss(advice)))
    return done


def completed(number: int, advice: Advice, objective: float) -> TuningTrial:
    name = f"study-{number:03}"
    return TuningTrial(number, name, advice.definition, advice.values, TrialStatus.COMPLETED, objective=objective)


@pytest.mark.parametrize("strategy", [StrategyKind.BAYESIAN, StrategyKind.RANDOM, StrategyKind.HYPERBAND])
def test_advice_is_the_same_for_one_seed_and_another_for_another(strategy: StrategyKind) -> None:
    asked = [plan(strategy, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (advise(each, [], parents={}, number=1) for each in asked)
    assert first == again != other


def test_a_seed_means_the_same_trials_in_every_process_and_after_every_upgrade() -> None:
    asked = plan(StrategyKind.RANDOM, definition("trees"), seed=7)
    first, second = (advise(asked, [], parents={}, number=number) for number in (1, 2))
    assert first == Advice("trees", {"rate": "0.745741783427505", "layers": "4", "optimizer": "adam"})
    assert second == Advice("trees", {"rate": "0.31597273032870377", "layers": "2", "optimizer": "sgd"})


def test_algorithms_of_one_study_are_searched_by_different_chance() -> None:
    of_trees, of_network = (
        advise(plan(StrategyKind.RANDOM, definition(name)), [], parents={}, number=1) for name in ("trees", "network")
    )
    assert of_trees is not None
    assert of_network is not None
    assert of_trees.values != of_network.values


def test_values_are_texts_that_a_program_can_read() -> None:
    advice = advise(plan(StrategyKind.RANDOM), [], parents={}, number=1)
    assert advice is not None
    assert 0.0 <= float(advice.values["rate"]) <= 1.0
    assert int(advice.values["layers"]) in range(1, 5)
    assert advice.values["optimizer"] in ("sgd", "adam")


def test_a_grid_ends_after_its_last_combination() -> None:
    trials = run(plan(StrategyKind.GRID, definition(ranges=GRID)), trials=9)
    assert len({tuple(trial.values.items()) for trial in trials}) == len(trials) == 4


def test_a_grid_of_several_algorithms_ends_after_the_last_combination_of_each() -> None:
    definitions = [definition("trees", ranges=GRID), definition("network", ranges=GRID[:1])]
    trials = run(plan(StrategyKind.GRID, *definitions), trials=9)
    assert Counter(trial.definition for trial in trials) == {"trees": 4, "network": 2}


def test_a_grid_tries_what_a_parent_has_tried_too() -> None:
    asked = plan(StrategyKind.GRID, definition(ranges=GRID))
    warm = replace(asked, warm_start=WarmStart(WarmStartKind.IDENTICAL, ("1",)))
    assert advise(warm, [], parents={"parent": run(asked, trials=4)}, number=1) is not None


def test_several_algorithms_are_tried_and_the_better_one_has_more_trials() -> None:
    asked = plan(StrategyKind.RANDOM, definition("trees"), definition("network"))
    trials = run(
        asked, trials=20, loss=lambda advice: float(advice.values["rate"]) + 9 * (advice.definition == "trees")
    )
    counts = Counter(trial.definition for trial in trials)
    assert counts["network"] > 2 * counts["trees"] > 0


@pytest.mark.parametrize("kind", list(WarmStartKind))
def test_a_warm_start_begins_where_its_parent_was_best(kind: WarmStartKind) -> None:
    warm = replace(plan(StrategyKind.BAYESIAN, definition(ranges=RANGES[:1])), warm_start=WarmStart(kind, ("1",)))
    rates = [number / 20 for number in range(8, 21)]  # only from 0.4 on, so that below there is more to learn
    parent = [completed(1, Advice("", {"rate": repr(rate)}), (rate - 0.6) ** 2) for rate in rates]
    advice = advise(warm, [], parents={"parent": parent}, number=1)
    assert advice is not None
    assert abs(float(advice.values["rate"]) - 0.6) < 0.05


def searched(count: int) -> list[TuningTrial]:
    """Trials of one hyperparameter, whose best is at 0.6."""
    rates = [number / count for number in range(count)]
    return [
        completed(number, Advice("", {"rate": repr(rate)}), (rate - 0.6) ** 2)
        for number, rate in enumerate(rates, start=1)
    ]


def test_what_a_parent_has_tried_with_the_same_data_is_not_tried_again_while_something_is_left() -> None:
    words = [f"w{index}" for index in range(12)]
    asked = plan(StrategyKind.BAYESIAN, definition(ranges=[categorical("word", *words)]))
    tried = [completed(n, Advice("", {"word": word}), float(n)) for n, word in enumerate(words[:11], start=1)]

    def first_trial(kind: WarmStartKind) -> Advice | None:
        return advise(replace(asked, warm_start=WarmStart(kind, ("1",))), [], parents={"parent": tried}, number=1)

    assert first_trial(WarmStartKind.IDENTICAL) == Advice("", {"word": "w11"})
    assert first_trial(WarmStartKind.TRANSFER) != Advice("", {"word": "w11"})


def test_a_trial_that_was_ended_after_all_its_reports_counts_as_one_that_ran_to_its_end() -> None:
    asked = plan(StrategyKind.HYPERBAND, definition(ranges=RANGES[:1]))

    def advice_after(*, reports: int, cause: StopCause | None) -> Advice | None:
        trials = [
            replace(trial, status=TrialStatus.STOPPED, cause=cause, curve=(trial.objective or 0.0,) * reports)
            for trial in searched(12)
        ]
        return advise(asked, trials, parents={}, number=13)

    assert advice_after(reports=9, cause=StopCause.EARLY) == advice_after(reports=9, cause=None)
    assert advice_after(reports=8, cause=StopCause.EARLY) != advice_after(reports=8, cause=None)
