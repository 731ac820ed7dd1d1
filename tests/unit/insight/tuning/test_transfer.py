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
from trainyard.insight.tuning.transfer import alike, inherited, thinned
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


def observation(value: float | None, state: State = State.MEASURED) -> Observation:
    return Observation({}, state, value)


@pytest.mark.parametrize("direction", list(Direction))
def test_what_is_thinned_keeps_its_order_its_better_half_and_an_even_choice_of_the_rest(direction: Direction) -> None:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    values = [sign * value for value in (9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0, 10.0)]
    many = [observation(value) for value in values]
    assert thinned(many, 10, direction=direction) == many
    kept = [sign * (each.value or 0.0) for each in thinned(many, 5, direction=direction)]
    assert kept == [9.0, 1.0, 2.0, 7.0, 4.0]  # 1 and 2, and every third of the rest, the first of all among them


def test_what_was_not_measured_is_no_better_than_the_worst() -> None:
    many = [
        observation(None, State.FAILED),
        observation(-9.0, State.CUT_SHORT),
        *(observation(float(value)) for value in range(4)),
    ]
    kept = thinned(many, 4, direction=Direction.MINIMIZE)
    assert [each.value for each in kept] == [None, 0.0, 1.0, 2.0]


def test_parents_share_what_is_kept() -> None:
    trials = [replace(trial(rate=repr(number / 500)), number=number, objective=float(number)) for number in range(500)]
    plan = TuningPlan(
        StrategyKind.BAYESIAN, (DEFINITION,), 1, warm_start=WarmStart(WarmStartKind.IDENTICAL, ("1", "2", "3"))
    )
    parents = {"one": trials, "two": trials[:10], "three": trials}
    found = inherited(plan, DEFINITION, space=Space(DEFINITION.ranges), parents=parents)
    assert [sum(each.source == alike(parent) for each in found) for parent in parents] == [66, 10, 66]
    assert inherited(plan, DEFINITION, space=Space(DEFINITION.ranges), parents={}) == []


@pytest.mark.parametrize(
    ("changed", "source"),
    [({"batch": "32.65"}, alike("parent")), ({"batch": "32.66"}, "parent"), ({"batch": "many"}, "parent")],
)
def test_two_percent_of_a_fixed_number_make_no_difference(changed: dict[str, str], source: str) -> None:
    assert [each.source for each in learned(trial(**changed))] == [source]


def test_what_is_fixed_now_and_was_not_given_then_is_taken_for_the_same() -> None:
    values = {name: text for name, text in VALUES.items() if name != "batch"}
    assert [each.source for each in learned(replace(trial(), values=values))] == [alike("parent")]


def test_a_parent_with_several_algorithms_teaches_by_their_names() -> None:
    trials = [replace(trial(rate="0.1"), definition=""), replace(trial(rate="0.2"), definition="network")]
    assert [each.values["rate"] for each in learned(*trials)] == [0.1]
