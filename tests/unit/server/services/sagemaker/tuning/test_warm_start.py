from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import channel
from tests.unit.server.services.sagemaker.tuning.requests import (
    DEPTH,
    RATE,
    change_tuning,
    config,
    create_tuning,
    definition,
    describe_tuning,
    end_tuning,
    resource,
    study,
)
from trainyard.foundation.jobs.tuning import TuningStatus, WarmStartKind
from trainyard.wire.fault import Fault

IDENTICAL, TRANSFER = "IdenticalDataAndAlgorithm", "TransferLearning"


def start_from(*parents: str, kind: str = TRANSFER) -> dict[str, Any]:
    named = [{"HyperParameterTuningJobName": name} for name in parents]
    return {"ParentHyperParameterTuningJobs": named, "WarmStartType": kind}


@pytest.fixture
def parent(anna: As) -> As:
    """Return a user with an ended tuning job whose trials 1 and 2 have an objective."""
    create_tuning(anna, "Parent")
    end_tuning(anna, "Parent", t1=0.5, t2=0.25)
    return anna


def refusal(user: As, *parents: str, kind: str = TRANSFER, **changed: Any) -> str:
    with pytest.raises(Fault) as caught:
        create_tuning(user, WarmStartConfig=start_from(*parents, kind=kind), **changed)
    assert caught.value.code == "ValidationException"
    return caught.value.message


def test_a_warm_start_remembers_its_parents_by_their_ids(parent: As) -> None:
    create_tuning(parent, WarmStartConfig=start_from("parent", kind=IDENTICAL))
    start = study(parent).plan.warm_start
    assert start is not None
    assert (start.kind, start.parents) == (WarmStartKind.IDENTICAL, (resource(parent, "Parent").id,))
    assert describe_tuning(parent)["WarmStartConfig"] == start_from("parent", kind=IDENTICAL)


def test_a_static_hyperparameter_may_be_tuned_and_vice_versa(parent: As) -> None:
    static = {**definition(parent)["StaticHyperParameters"], "depth": "3"}
    del static["epochs"]
    ranges = {"ContinuousParameterRanges": [RATE], "IntegerParameterRanges": [{**DEPTH, "Name": "epochs"}]}
    create_tuning(
        parent,
        WarmStartConfig=start_from("Parent"),
        HyperParameterTuningJobConfig=config(ParameterRanges=ranges),
        TrainingJobDefinition=definition(parent, StaticHyperParameters=static),
    )
    assert study(parent).plan.warm_start is not None


def test_hyperparameters_that_sdks_add_do_not_count(parent: As) -> None:
    static = {**definition(parent)["StaticHyperParameters"], "sagemaker_region": '"x"'}
    create_tuning(
        parent,
        WarmStartConfig=start_from("Parent"),
        TrainingJobDefinition=definition(parent, StaticHyperParameters=static),
    )


def test_all_different_names_are_listed(parent: As) -> None:
    static = {**definition(parent)["StaticHyperParameters"], "beta": "1", "alpha": "1"}
    del static["epochs"]
    message = refusal(parent, "Parent", TrainingJobDefinition=definition(parent, StaticHyperParameters=static))
    assert message.startswith(
        "The set of tunable plus static HyperParameter names is not the same across current and parent tuning jobs."
    )
    assert "alpha, beta are not in the parent; remove them" in message
    assert "epochs of the parent is missing here; add it, with a range or as StaticHyperParameters" in message


def test_a_different_objective_is_refused_naming_both(parent: As) -> None:
    other = {"Type": "Maximize", "MetricName": "loss"}
    message = refusal(parent, "Parent", HyperParameterTuningJobConfig=config(HyperParameterTuningJobObjective=other))
    assert 'has the objective to Maximize "loss", but that of the parent "Parent" was to Minimize "loss"' in message


def test_identical_wants_the_same_data_and_image(parent: As) -> None:
    elsewhere = [channel("train", "s3://data/code/")]
    message = refusal(
        parent, "Parent", kind=IDENTICAL, TrainingJobDefinition=definition(parent, InputDataConfig=elsewhere)
    )
    assert 'the channel "train" is s3://data/code, but was s3://data/train' in message
    assert "or choose TransferLearning" in message
    image = {**definition(parent)["AlgorithmSpecification"], "TrainingImage": "pytorch-training:2.6"}
    changed = definition(parent, AlgorithmSpecification=image)
    message = refusal(parent, "Parent", kind=IDENTICAL, TrainingJobDefinition=changed)
    assert 'the TrainingImage is "pytorch-training:2.6", but was' in message
    create_tuning(parent, WarmStartConfig=start_from("Parent"), TrainingJobDefinition=changed)


def test_parents_must_exist_have_ended_and_be_named_once(parent: As) -> None:
    create_tuning(parent, "running")
    assert 'The parent "nobody" does not exist' in refusal(parent, "Parent", "nobody")
    assert 'The parent "running" is InProgress; wait until it has ended' in refusal(parent, "running")
    assert "does not exist" in refusal(parent, "tune"), "a tuning job cannot start from itself"
    assert 'The parent "Parent" is named more than once' in refusal(parent, "Parent", "pARENT")


def test_parents_without_measurements_are_refused(parent: As) -> None:
    create_tuning(parent, "barren")
    change_tuning(parent, replace(study(parent, "barren"), status=TuningStatus.FAILED))
    assert "so there is nothing to start from" in refusal(parent, "barren")
    create_tuning(parent, WarmStartConfig=start_from("barren", "Parent"))


def test_a_grid_has_no_use_for_a_start(parent: As) -> None:
    grid = config(Strategy="Grid", ParameterRanges={"CategoricalParameterRanges": [{"Name": "lr", "Values": ["1"]}]})
    assert "Grid tries every combination" in refusal(parent, "Parent", HyperParameterTuningJobConfig=grid)


def test_the_best_of_all_is_described_if_data_and_algorithm_are_the_same(parent: As) -> None:
    create_tuning(parent, WarmStartConfig=start_from("Parent", kind=IDENTICAL))
    create_tuning(parent, "other", WarmStartConfig=start_from("Parent"))
    told = describe_tuning(parent)
    best = told["OverallBestTrainingJob"]
    assert "BestTrainingJob" not in told
    assert (best["TuningJobName"], best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]) == ("Parent", 0.25)
    end_tuning(parent, t1=0.75, t2=0.125)
    told = describe_tuning(parent)
    assert told["OverallBestTrainingJob"] == told["BestTrainingJob"]
    assert "OverallBestTrainingJob" not in describe_tuning(parent, "other")


def test_a_parent_that_is_deleted_later_is_forgotten(parent: As) -> None:
    create_tuning(parent, WarmStartConfig=start_from("Parent", kind=IDENTICAL))
    parent("sagemaker", "DeleteHyperParameterTuningJob", HyperParameterTuningJobName="Parent")
    assert "OverallBestTrainingJob" not in describe_tuning(parent)
