import re
from typing import Any

import pytest

from tests.unit.server.services.sagemaker.tuning.requests import config
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import (
    CompletionCriteria,
    Direction,
    EarlyStopping,
    HyperbandResources,
    HyperparameterRange,
    Objective,
    RangeKind,
    TuningDefinition,
    TuningPlan,
)
from trainyard.server.services.sagemaker.tuning.plan import plan_of

LIMITS = {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 2}
RATE = HyperparameterRange("lr", RangeKind.CONTINUOUS, 0.1, 1.0)
CURVE = {"trainyard:early-stopping": "Curve"}


def definition(*ranges: HyperparameterRange, name: str = "", **static: str) -> TuningDefinition:
    return TuningDefinition(name, Objective("loss", Direction.MINIMIZE), ranges or (RATE,), static)


def words(name: str, count: int) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CATEGORICAL, values=tuple(str(number) for number in range(count)))


def plan(
    *definitions: TuningDefinition, tags: dict[str, str] | None = None, auto: bool = False, **changed: Any
) -> TuningPlan:
    given = definitions or (definition(),)
    return plan_of(config(**changed), given, tags=tags or {}, is_autotuned=auto)


def hyperband(*definitions: TuningDefinition, tags: dict[str, str] | None = None, **resources: int) -> TuningPlan:
    settings = {"HyperbandStrategyConfig": resources} if resources else None
    return plan(*definitions, tags=tags, Strategy="Hyperband", StrategyConfig=settings)


def test_a_plain_search_has_no_early_end() -> None:
    found = plan(ResourceLimits=LIMITS)
    assert (found.max_trials, found.max_parallel, found.early_stopping) == (9, 2, EarlyStopping.OFF)
    assert (found.completion, found.resources, found.pruning_rules) == (CompletionCriteria(), None, ())


def test_completion_criteria_are_read() -> None:
    criteria = {
        "TargetObjectiveMetricValue": 0.25,
        "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
        "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
    }
    assert plan(TuningJobCompletionCriteria=criteria).completion == CompletionCriteria(0.25, 5, True)
    never = {"ConvergenceDetected": {"CompleteOnConvergence": "Disabled"}}
    assert plan(TuningJobCompletionCriteria=never).completion == CompletionCriteria()


def test_the_tag_on_early_stopping_overrides_the_default_of_sdks() -> None:
    assert plan(TrainingJobEarlyStoppingType="Auto").early_stopping is EarlyStopping.MEDIAN
    assert plan(TrainingJobEarlyStoppingType="Off", tags=CURVE).early_stopping is EarlyStopping.CURVE


def test_a_grid_has_as_many_trials_as_combinations() -> None:
    grid = definition(words("a", 3), words("b", 4))
    free = {"MaxParallelTrainingJobs": 2}
    assert plan(grid, Strategy="Grid", ResourceLimits=free).max_trials == 12
    assert plan(grid, Strategy="Grid", ResourceLimits={**free, "MaxNumberOfTrainingJobs": 12}).max_trials == 12
    two = (definition(words("a", 3), name="x"), definition(words("a", 4), name="y"))
    assert plan(*two, Strategy="Grid", ResourceLimits=free).max_trials == 7


def test_hyperband_takes_its_resources_or_reads_the_epochs() -> None:
    assert hyperband(MinResource=2, MaxResource=9).resources == HyperbandResources(2, 9)
    assert hyperband(definition(num_epochs='"27"')).resources == HyperbandResources(1, 27)
    assert hyperband(definition(epochs="8"), MinResource=3).resources == HyperbandResources(3, 8)


def test_time_alone_or_a_criterion_alone_is_enough_of_a_limit() -> None:
    free = {"MaxParallelTrainingJobs": 1}
    assert plan(ResourceLimits={**free, "MaxRuntimeInSeconds": 120}).max_runtime_s == 120
    wanted = {"TargetObjectiveMetricValue": 0.0}
    assert plan(ResourceLimits=free, TuningJobCompletionCriteria=wanted).max_trials is None


def test_autotune_chooses_only_what_is_left_open() -> None:
    free = {"MaxParallelTrainingJobs": 1}
    chosen = plan(ResourceLimits=free, auto=True)
    assert chosen.max_trials is not None
    assert chosen.completion.on_convergence
    said = plan(ResourceLimits=LIMITS, TrainingJobEarlyStoppingType="Off", auto=True)
    assert (said.max_trials, said.early_stopping) == (9, EarlyStopping.OFF)


def test_rules_that_prune_are_named_once_each() -> None:
    tags = {"trainyard:prune-on": "NotANumber  LossNotDecreasing NotANumber"}
    assert plan(tags=tags).pruning_rules == ("NotANumber", "LossNotDecreasing")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"ResourceLimits": {"MaxParallelTrainingJobs": 1}}, "Nothing ends this tuning job; give MaxNumberOfTraining"),
        ({"ResourceLimits": {**LIMITS, "MaxNumberOfTrainingJobs": 10_001}}, "at most 10000 are allowed"),
        ({"ResourceLimits": {**LIMITS, "MaxParallelTrainingJobs": 1_001}}, "at most 1000 are allowed"),
        ({"Strategy": "Grid"}, "make lr categorical, or choose another strategy"),
        ({"TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": float("nan")}}, "it must be a finite number"),
        ({"StrategyConfig": {"HyperbandStrategyConfig": {}}}, "needs the strategy Hyperband, not Random"),
        ({"tags": {"trainyard:early-stopping": "soon"}}, 'is "soon"; use one of curve, auto, off'),
        ({"tags": {"trainyard:prune-on": "NotaNumber"}}, "did you mean NotANumber?"),
        ({"tags": {"trainyard:prune-on": "SimilarAcrossRuns"}}, "has an invalid rule"),
        ({"tags": {"trainyard:prune-on": "Confusion"}}, "only rules that need just statistics can prune"),
    ],
)
def test_a_plan_that_does_not_go_together_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        plan(**asked)


def test_a_grid_with_another_number_of_trials_than_combinations_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="all 12 combinations, but MaxNumberOfTrainingJobs is 9; leave it out"):
        plan(definition(words("a", 3), words("b", 4)), Strategy="Grid", ResourceLimits=LIMITS)
    many = definition(*(words(name, 30) for name in "abc"))
    with pytest.raises(InvalidRequest, match="The number of combinations of a Grid is 27000; at most 10000"):
        plan(many, Strategy="Grid", ResourceLimits={"MaxParallelTrainingJobs": 1})


@pytest.mark.parametrize(
    ("definitions", "resources", "message"),
    [
        ([definition()], {}, "does not say how long a training job can be; give MaxResource"),
        (
            [definition(epochs="many")],
            {"MinResource": 2},
            "or one of epochs, numepochs, n-epochs, n_epochs, num_epochs",
        ),
        ([definition()], {"MinResource": 5, "MaxResource": 4}, "MinResource is 5, more than the MaxResource"),
        ([definition()], {"MaxResource": 20_001}, "MaxResource is 20001; at most 20000 are allowed"),
        ([definition(name="a", epochs="3"), definition(name="b", epochs="4")], {}, "different numbers of epochs"),
    ],
)
def test_hyperband_without_a_clear_length_of_trials_is_refused(
    definitions: list[TuningDefinition], resources: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        hyperband(*definitions, **resources)


def test_hyperband_ends_trials_by_itself_alone() -> None:
    with pytest.raises(InvalidRequest, match="set TrainingJobEarlyStoppingType to Off"):
        hyperband(definition(epochs="3"), tags=CURVE)
