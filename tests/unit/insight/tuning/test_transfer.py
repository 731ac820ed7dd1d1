from dataclasses import replace

import pytest

from trainyard.foundation.tuning import (
    Definition,
    Direction,
    Objective,
    StrategyKind,
    Trial,
    TrialStatus,
    TuningPlan,
    WarmStart,
    WarmStartKind,
)
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.transfer import alike, inherited
from trainyard.testing.tuning import categorical, continuous

DEFINITION = Definition(
    "",
    Objective("loss", Direction.MINIMIZE),
    (continuous("rate", 0.0, 1.0), categorical("optimizer", "sgd", "adam")),
    {"batch": "32", "loss": "mse", "sagemaker_submit_directory": "s3://bucket/child.tar.gz"},
)
VALUES = {"rate": "0.5", "optimizer": "sgd", "batch": "32", "loss": "mse", "sagemaker_submit_directory": "s3://a"}


def trial(**values: str) -> Trial:
    return Trial(1, "parent-001", "", {**VALUES, **values}, TrialStatus.COMPLETED, objective=0.25)


def learned(*trials: Trial, kind: WarmStartKind = WarmStartKind.IDENTICAL) -> list[Observation]:
    plan = TuningPlan(StrategyKind.BAYESIAN, (DEFINITION,), 1, warm_start=WarmStart(kind, ("1",)))
    return inherited(plan, DEFINITION, space=Space(DEFINITION.ranges), parents={"parent": trials})


def test_a_trial_with_the_same_data_and_algorithm_counts_as_one_of_the_study() -> None:
    assert learned(trial()) == [
        Observation({"rate": 0.5, "optimizer": "sgd"}, State.MEASURED, 0.25, source=alike("parent"))
    ]


def test_a_trial_of_a_transfer_is_one_of_a_relative() -> None:
    assert [each.source for each in learned(trial(), kind=WarmStartKind.TRANSFER)] == ["parent"]


@pytest.mark.parametrize(
    ("changed", "source"),
    [
        ({"batch": "32.0"}, alike("parent")),
        ({"batch": "32.5"}, alike("parent")),
        ({"batch": "64"}, "parent"),
        ({"loss": "mae"}, "parent"),
    ],
)
def test_a_trial_with_other_fixed_values_is_one_of_a_relative(changed: dict[str, str], source: str) -> None:
    assert [each.source for each in learned(trial(**changed))] == [source]


@pytest.mark.parametrize("kind", list(WarmStartKind))
def test_a_trial_outside_the_ranges_says_nothing(kind: WarmStartKind) -> None:
    assert learned(trial(rate="1.5"), trial(optimizer="lamb"), kind=kind) == []


def test_what_was_fixed_in_the_parent_and_is_tuned_now_is_a_value_like_any_other() -> None:
    (observation,) = learned(trial(optimizer="adam"))
    assert observation.values["optimizer"] == "adam"


def test_a_trial_that_lacks_a_hyperparameter_says_nothing() -> None:
    assert learned(replace(trial(), values={"optimizer": "sgd"})) == []


def test_trials_of_a_parent_that_have_not_ended_say_nothing() -> None:
    assert learned(replace(trial(), status=TrialStatus.IN_PROGRESS)) == []


def test_each_algorithm_learns_from_trials_of_its_own() -> None:
    definitions = tuple(replace(DEFINITION, name=name) for name in ("trees", "network"))
    plan = TuningPlan(StrategyKind.BAYESIAN, definitions, 1, warm_start=WarmStart(WarmStartKind.IDENTICAL, ("1",)))
    trials = [replace(trial(rate="0.1"), definition="trees"), replace(trial(rate="0.2"), definition="network")]
    found = inherited(plan, definitions[1], space=Space(DEFINITION.ranges), parents={"parent": trials})
    assert [each.values["rate"] for each in found] == [0.2]


def test_the_only_algorithm_learns_from_the_only_one_of_a_parent_whatever_it_was_called() -> None:
    assert len(learned(replace(trial(), definition="trees"))) == 1


def test_of_many_trials_the_better_ones_and_an_even_choice_of_the_others_are_kept() -> None:
    many = [replace(trial(rate=repr(number / 1000)), number=number, objective=float(number)) for number in range(1000)]
    values = [each.value for each in learned(*many)]
    assert len(values) == 200
    assert values[:100] == list(range(100))
    assert {round(value / 100) for value in values[100:] if value is not None} >= set(range(2, 10))
