import math
from dataclasses import replace

import pytest

from trainyard.foundation.jobs.tuning import (
    Direction,
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
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.history import (
    parent_observations,
    same_task_source,
    state_of,
    thin_observations,
    to_observations,
)
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import categorical, continuous

SPACE = Space([continuous("rate", 0.0, 1.0)])


def trial(status: TrialStatus, objective: float | None = None, cause: StopCause | None = None) -> TuningTrial:
    return TuningTrial(1, "study-001", "", {"rate": "0.5"}, status, objective=objective, curve=(2.0, 1.0), cause=cause)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (trial(TrialStatus.PLANNED), State.PENDING),
        (trial(TrialStatus.IN_PROGRESS, 0.5), State.PENDING),
        (trial(TrialStatus.COMPLETED, 0.5), State.MEASURED),
        (trial(TrialStatus.COMPLETED), State.FAILED),
        (trial(TrialStatus.COMPLETED, math.nan), State.DIVERGED),
        (trial(TrialStatus.FAILED, math.inf), State.DIVERGED),
        (trial(TrialStatus.FAILED, 0.5), State.FAILED),
        (trial(TrialStatus.FAILED), State.FAILED),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.EARLY), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.STUDY), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.USER), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.RULE), State.DIVERGED),
        (trial(TrialStatus.STOPPED, None, StopCause.RULE), State.DIVERGED),
        (trial(TrialStatus.STOPPED, None, StopCause.USER), State.FAILED),
        (trial(TrialStatus.STOPPED, 0.5), State.MEASURED),
    ],
)
def test_how_a_trial_ended_says_what_it_is_worth(ended: TuningTrial, expected: State) -> None:
    assert state_of(ended) is expected


def test_a_trial_that_was_stopped_when_it_had_made_all_its_reports_is_measured() -> None:
    stopped = trial(TrialStatus.STOPPED, 1.0, StopCause.EARLY)
    assert [state_of(stopped, full_length=reports) for reports in (2, 3)] == [State.MEASURED, State.CUT_SHORT]
    [observation] = to_observations([stopped], SPACE, full_length=2)
    assert (observation.state, observation.value) == (State.MEASURED, 1.0)


@pytest.mark.parametrize("cause", [StopCause.EARLY, StopCause.RULE])
def test_only_what_can_be_relied_on_is_handed_on_as_a_value(cause: StopCause) -> None:
    [observation] = to_observations([trial(TrialStatus.STOPPED, 0.5, cause)], SPACE)
    assert observation.value == (0.5 if cause is StopCause.EARLY else None)


def test_a_trial_that_runs_has_no_value_yet() -> None:
    assert to_observations([trial(TrialStatus.IN_PROGRESS, 0.5)], SPACE) == [
        Observation({"rate": 0.5}, State.PENDING, None, (2.0, 1.0))
    ]


def test_values_and_curves_are_handed_on_with_where_they_come_from() -> None:
    assert to_observations([trial(TrialStatus.COMPLETED, 1.0)], SPACE, source="parent") == [
        Observation({"rate": 0.5}, State.MEASURED, 1.0, (2.0, 1.0), "parent")
    ]


DEFINITION = TuningDefinition(
    "",
    Objective("loss", Direction.MINIMIZE),
    (continuous("rate", 0.0, 1.0), categorical("optimizer", "sgd", "adam")),
    {"batch": "32", "loss": "mse", "sagemaker_submit_directory": "s3://bucket/child.tar.gz"},
)
VALUES = {"rate": "0.5", "optimizer": "sgd", "batch": "32", "loss": "mse", "sagemaker_submit_directory": "s3://a"}


def parent_trial(**values: str) -> TuningTrial:
    return TuningTrial(1, "parent-001", "", {**VALUES, **values}, TrialStatus.COMPLETED, objective=0.25)


def learned(*trials: TuningTrial, kind: WarmStartKind = WarmStartKind.IDENTICAL) -> list[Observation]:
    plan = TuningPlan(StrategyKind.BAYESIAN, (DEFINITION,), 1, warm_start=WarmStart(kind, ("1",)))
    return parent_observations(plan, DEFINITION, space=Space(DEFINITION.ranges), parents={"parent": trials})


def test_a_trial_with_the_same_data_and_algorithm_counts_as_one_of_the_study() -> None:
    assert learned(parent_trial()) == [
        Observation({"rate": 0.5, "optimizer": "sgd"}, State.MEASURED, 0.25, source=same_task_source("parent"))
    ]


def test_a_trial_of_a_transfer_is_one_of_a_source_task() -> None:
    assert [each.source for each in learned(parent_trial(), kind=WarmStartKind.TRANSFER)] == ["parent"]


@pytest.mark.parametrize(
    ("changed", "source"),
    [
        ({"batch": "32.0"}, same_task_source("parent")),
        ({"batch": "32.5"}, same_task_source("parent")),
        ({"batch": "64"}, "parent"),
        ({"loss": "mae"}, "parent"),
    ],
)
def test_a_trial_with_other_fixed_values_is_one_of_a_source_task(changed: dict[str, str], source: str) -> None:
    assert [each.source for each in learned(parent_trial(**changed))] == [source]


@pytest.mark.parametrize("kind", list(WarmStartKind))
def test_a_trial_outside_the_ranges_is_left_out(kind: WarmStartKind) -> None:
    assert learned(parent_trial(rate="1.5"), parent_trial(optimizer="lamb"), kind=kind) == []


def test_a_hyperparameter_that_was_fixed_in_the_parent_may_be_tuned_now() -> None:
    (observation,) = learned(parent_trial(optimizer="adam"))
    assert observation.values["optimizer"] == "adam"


def test_a_trial_that_lacks_a_hyperparameter_says_nothing() -> None:
    assert learned(replace(parent_trial(), values={"optimizer": "sgd"})) == []


def test_trials_of_a_parent_that_have_not_ended_say_nothing() -> None:
    assert learned(replace(parent_trial(), status=TrialStatus.IN_PROGRESS)) == []


def test_each_algorithm_learns_from_trials_of_its_own() -> None:
    definitions = tuple(replace(DEFINITION, name=name) for name in ("trees", "network"))
    plan = TuningPlan(StrategyKind.BAYESIAN, definitions, 1, warm_start=WarmStart(WarmStartKind.IDENTICAL, ("1",)))
    trials = [
        replace(parent_trial(rate="0.1"), definition="trees"),
        replace(parent_trial(rate="0.2"), definition="network"),
    ]
    found = parent_observations(plan, definitions[1], space=Space(DEFINITION.ranges), parents={"parent": trials})
    assert [each.values["rate"] for each in found] == [0.2]


def test_the_only_algorithm_learns_from_the_only_one_of_a_parent_whatever_it_was_called() -> None:
    assert len(learned(replace(parent_trial(), definition="trees"))) == 1


def test_of_many_trials_the_better_ones_and_an_even_choice_of_the_others_are_kept() -> None:
    many = [
        replace(parent_trial(rate=repr(number / 1000)), number=number, objective=float(number))
        for number in range(1000)
    ]
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
    assert thin_observations(many, 10, direction=direction) == many
    kept = [sign * (each.value or 0.0) for each in thin_observations(many, 5, direction=direction)]
    assert kept == [9.0, 1.0, 2.0, 7.0, 4.0]  # 1 and 2, and every third of the rest, the first of all among them


def test_an_unmeasured_trial_ranks_no_better_than_the_worst() -> None:
    many = [
        observation(None, State.FAILED),
        observation(-9.0, State.CUT_SHORT),
        *(observation(float(value)) for value in range(4)),
    ]
    kept = thin_observations(many, 4, direction=Direction.MINIMIZE)
    assert [each.value for each in kept] == [None, 0.0, 1.0, 2.0]


def test_parents_share_what_is_kept() -> None:
    trials = [
        replace(parent_trial(rate=repr(number / 500)), number=number, objective=float(number)) for number in range(500)
    ]
    plan = TuningPlan(
        StrategyKind.BAYESIAN, (DEFINITION,), 1, warm_start=WarmStart(WarmStartKind.IDENTICAL, ("1", "2", "3"))
    )
    parents = {"one": trials, "two": trials[:10], "three": trials}
    found = parent_observations(plan, DEFINITION, space=Space(DEFINITION.ranges), parents=parents)
    assert [sum(each.source == same_task_source(parent) for each in found) for parent in parents] == [66, 10, 66]
    assert parent_observations(plan, DEFINITION, space=Space(DEFINITION.ranges), parents={}) == []


@pytest.mark.parametrize(
    ("changed", "source"),
    [({"batch": "32.65"}, same_task_source("parent")), ({"batch": "32.66"}, "parent"), ({"batch": "many"}, "parent")],
)
def test_two_percent_of_a_fixed_number_make_no_difference(changed: dict[str, str], source: str) -> None:
    assert [each.source for each in learned(parent_trial(**changed))] == [source]


def test_a_fixed_value_that_the_parent_did_not_have_counts_as_the_same() -> None:
    values = {name: text for name, text in VALUES.items() if name != "batch"}
    assert [each.source for each in learned(replace(parent_trial(), values=values))] == [same_task_source("parent")]


def test_a_parent_with_several_algorithms_teaches_by_their_names() -> None:
    trials = [replace(parent_trial(rate="0.1"), definition=""), replace(parent_trial(rate="0.2"), definition="network")]
    assert [each.values["rate"] for each in learned(*trials)] == [0.1]
