from collections.abc import Sequence
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
from trainyard.insight.tuning.advice import advise
from trainyard.insight.tuning.explanation import MAX_FITTED_TRIALS, ExplainedAdvice, explain_advice, survey_trials
from trainyard.testing.tuning import categorical, continuous

RANGES = (continuous("rate", 0.0, 1.0), categorical("optimizer", "sgd", "adam"))


def plan(
    strategy: StrategyKind = StrategyKind.BAYESIAN,
    *,
    direction: Direction = Direction.MINIMIZE,
    ranges: Sequence[HyperparameterRange] = RANGES,
) -> TuningPlan:
    definition = TuningDefinition("", Objective("loss", direction), tuple(ranges))
    return TuningPlan(strategy, (definition,), max_parallel=2, max_trials=1000, seed=3)


def trial(number: int, *, rate: float, optimizer: str = "adam", sign: float = 1.0) -> TuningTrial:
    loss = (rate - 0.6) ** 2 + (1.0 if optimizer == "sgd" else 0.0)
    values = {"rate": repr(rate), "optimizer": optimizer}
    return TuningTrial(number, f"t-{number}", "", values, TrialStatus.COMPLETED, objective=sign * loss)


def trials(count: int, *, sign: float = 1.0) -> list[TuningTrial]:
    return [
        trial(number, rate=(number * 0.37) % 1, optimizer="sgd" if number % 3 == 0 else "adam", sign=sign)
        for number in range(1, count + 1)
    ]


def explain(asked: TuningPlan, done: Sequence[TuningTrial]) -> ExplainedAdvice:
    explained = explain_advice(asked, done, parents={}, number=len(done) + 1)
    assert explained is not None
    return explained


@pytest.mark.parametrize("strategy", list(StrategyKind))
def test_what_is_explained_is_what_the_strategy_advises(strategy: StrategyKind) -> None:
    asked, done = plan(strategy, ranges=RANGES[1:] if strategy is StrategyKind.GRID else RANGES), trials(0)
    advice = advise(asked, done, parents={}, number=1)
    assert advice is not None
    assert (explain(asked, done).definition, explain(asked, done).values) == (advice.definition, advice.values)


def test_chance_has_no_expectation() -> None:
    explained = explain(plan(StrategyKind.RANDOM), trials(20))
    assert explained.reasons == [
        "Random search draws every value anew within its range, whatever other trials have found."
    ]
    assert (explained.expected, explained.deviation, explained.chance) == (None, None, None)


def test_a_grid_says_how_much_of_it_was_tried_and_ends() -> None:
    asked = plan(StrategyKind.GRID, ranges=RANGES[1:])
    tried = [replace(trial(1, rate=0.1), values={"optimizer": "sgd"})]
    assert explain(asked, tried).reasons[0].endswith("1 of 2 were tried.")
    whole = [*tried, replace(trial(2, rate=0.1), values={"optimizer": "adam"})]
    assert explain_advice(asked, whole, parents={}, number=3) is None


def test_the_first_trials_need_no_model() -> None:
    explained = explain(plan(), trials(2))
    assert explained.expected is None
    assert explained.reasons[0].startswith("Too little is known for a model")


@pytest.mark.parametrize(("direction", "sign"), [(Direction.MINIMIZE, 1.0), (Direction.MAXIMIZE, -1.0)])
def test_a_model_says_what_it_expects_and_compares_with_the_best(direction: Direction, sign: float) -> None:
    done = trials(30, sign=sign)
    running = TuningTrial(31, "t-31", "", {"rate": "0.9", "optimizer": "adam"}, TrialStatus.IN_PROGRESS)
    explained = explain(plan(direction=direction), [*done, running])
    assert explained.expected is not None
    assert explained.deviation is not None
    assert explained.chance is not None
    assert explained.expected == pytest.approx(0.0, abs=0.2)
    assert explained.deviation > 0.0
    assert 0.0 < explained.chance < 1.0
    best = min(done, key=lambda each: abs(each.objective or 0.0))
    assert f"the best so far is {best.objective:.4g}, trial {best.number}." in explained.reasons[0]
    assert explained.reasons[-1] == "One trial still running: a new result may change this."


def test_hyperband_says_where_the_trial_is_compared() -> None:
    asked = replace(plan(StrategyKind.HYPERBAND), resources=HyperbandResources(1, 9))
    told = [explain(asked, trials(count)).reasons[-1] for count in range(8)]
    assert "It is in bracket 0 of Hyperband: after 1, 3 reports, it continues if it is in the best third." in told
    assert "It is in bracket 2 of Hyperband: it runs to its end." in told


def test_a_warm_start_that_knows_nothing_of_its_own_names_its_parents() -> None:
    warm = replace(plan(), warm_start=WarmStart(WarmStartKind.TRANSFER, ("1",)))
    explained = explain_advice(warm, [], parents={"parent": trials(20)}, number=1)
    assert explained is not None
    assert explained.expected is None
    assert "parents" in explained.reasons[0]


def test_a_survey_ranks_the_hyperparameters_and_shows_what_each_does() -> None:
    survey = survey_trials(plan(), trials(40), definition="")
    assert survey is not None
    assert survey.fitted_trials == 40
    assert survey.explained > 0.9
    assert [each.name for each in survey.importances] == ["optimizer", "rate"]
    rate, optimizer = survey.axes
    lowest = rate.dependence.positions[list(rate.dependence.values).index(min(rate.dependence.values))]
    assert lowest == pytest.approx(0.6, abs=0.1)
    assert [tick.label for tick in optimizer.ticks] == ["sgd", "adam"]
    assert survey.joint_names == ("optimizer", "rate")
    assert survey.joint is not None
    assert len(survey.joint.values) == len(survey.joint.y_positions)


def test_a_survey_is_over_the_two_hyperparameters_that_the_reader_chose() -> None:
    survey = survey_trials(plan(), trials(20), definition="", names=("rate", "optimizer"))
    assert survey is not None
    assert survey.joint_names == ("rate", "optimizer")
    unknown = survey_trials(plan(), trials(20), definition="", names=("rate", "depth"))
    assert unknown is not None
    assert unknown.joint_names == ("optimizer", "rate")


def test_too_few_trials_make_no_survey_and_failed_ones_do_not_count() -> None:
    failed = [replace(each, status=TrialStatus.FAILED) for each in trials(20)]
    diverged = [replace(each, cause=StopCause.RULE, status=TrialStatus.STOPPED) for each in trials(20)]
    assert survey_trials(plan(), [*failed, *diverged, *trials(2)], definition="") is None


def test_a_part_of_a_long_history_stands_for_it() -> None:
    done = [*trials(500), trial(501, rate=0.6)]
    survey = survey_trials(plan(), done, definition="")
    assert survey is not None
    assert survey.fitted_trials == MAX_FITTED_TRIALS
    whole = survey_trials(plan(), done[:MAX_FITTED_TRIALS], definition="")
    assert whole is not None
    # The part stands for all, also for the bad ones.
    assert survey.importances[0].alone == pytest.approx(whole.importances[0].alone, abs=0.1)
    assert max(survey.axes[1].dependence.values) == pytest.approx(max(whole.axes[1].dependence.values), abs=0.1)
    explained = explain(plan(), done)
    assert "trial 501" in explained.reasons[0]
