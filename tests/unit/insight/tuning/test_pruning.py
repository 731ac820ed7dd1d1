from dataclasses import replace

from trainyard.foundation.jobs.tuning import (
    Direction,
    EarlyStopping,
    HyperbandResources,
    Objective,
    StrategyKind,
    TuningDefinition,
    TuningPlan,
)
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.curves import CurveRule
from trainyard.insight.tuning.hyperband import Hyperband
from trainyard.insight.tuning.median import MedianRule
from trainyard.insight.tuning.pruning import pruner_of

PLAN = TuningPlan(
    strategy=StrategyKind.RANDOM,
    definitions=(TuningDefinition("", Objective("loss", Direction.MINIMIZE), ()),),
    max_parallel=2,
)


def test_without_early_stopping_nothing_ends_trials() -> None:
    assert pruner_of(PLAN, "") is None


def test_the_kind_of_early_stopping_selects_the_rule() -> None:
    assert isinstance(pruner_of(replace(PLAN, early_stopping=EarlyStopping.MEDIAN), ""), MedianRule)
    assert isinstance(pruner_of(replace(PLAN, early_stopping=EarlyStopping.CURVE), ""), CurveRule)


def test_hyperband_ends_trials_by_itself() -> None:
    plan = replace(PLAN, strategy=StrategyKind.HYPERBAND, resources=HyperbandResources(1, 9))
    assert isinstance(pruner_of(plan, ""), Hyperband)


def test_hyperband_that_nothing_says_how_long_trials_may_be_ends_none_by_itself() -> None:
    plan = replace(PLAN, strategy=StrategyKind.HYPERBAND)
    assert pruner_of(plan, "") is None
    assert isinstance(pruner_of(replace(plan, early_stopping=EarlyStopping.MEDIAN), ""), MedianRule)


def test_resources_are_for_hyperband_alone() -> None:
    plan = replace(PLAN, resources=HyperbandResources(1, 9))
    assert pruner_of(plan, "") is None
    assert isinstance(pruner_of(replace(plan, early_stopping=EarlyStopping.CURVE), ""), CurveRule)


def test_hyperband_knows_from_the_static_hyperparameters_when_programs_end() -> None:
    plan = replace(PLAN, strategy=StrategyKind.HYPERBAND, resources=HyperbandResources(1, 9))
    static = replace(plan, definitions=(replace(PLAN.definitions[0], static={"epochs": "9"}),))
    run = TrialCurve(1, (0.5,) * 9)
    verdicts = [pruner.verdict(run, []) for each in (plan, static) if (pruner := pruner_of(each, "")) is not None]
    assert verdicts == ["It has made 9 reports of loss, all that a trial is given.", None]
