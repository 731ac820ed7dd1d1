from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker.requests import create, describe
from tests.unit.server.services.sagemaker.tuning.requests import (
    RATE,
    config,
    create_tuning,
    definition,
    resource,
    study,
    trial,
)
from trainyard.engines.contract import Capacity
from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.errors import InvalidRequest, LimitExceeded
from trainyard.foundation.jobs.tuning import TuningTrial
from trainyard.foundation.locations import BucketRef
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query, ResourceId
from trainyard.server.services.sagemaker.tuning.trial_launch import TrainingJobLauncher
from trainyard.testing.engines.simulated import SimulatedEngine

RULES = [{"Key": "trainyard:prune-on", "Value": "NotANumber LossNotDecreasing"}]


def launch(user: As, begun: TuningTrial | None = None, name: str = "tune") -> ResourceId:
    wanted = begun or trial(user, 1, name)
    return TrainingJobLauncher(user.yard).launch(resource(user, name), wanted, now=NOON)


def launched(user: As, begun: TuningTrial | None = None, name: str = "tune") -> dict[str, Any]:
    """Return the DescribeTrainingJob answer of a trial."""
    return describe(user, job_of(user.yard.records.load_by_id(launch(user, begun, name))).name)


def test_a_trial_is_a_training_job_of_the_owner_with_static_and_tuned_hyperparameters(anna: As) -> None:
    create_tuning(anna)
    told = launched(anna)
    assert told["TrainingJobName"] == trial(anna, 1).job
    assert told["TuningJobArn"] == study(anna).arn
    assert told["TrainingJobArn"] == f"arn:aws:sagemaker:eu-west-3:{anna.account}:training-job/{trial(anna, 1).job}"
    assert told["HyperParameters"] == {
        **definition(anna)["StaticHyperParameters"],
        "lr": "0.01",
        "depth": "1",
        "_tuning_objective_metric": "loss",
    }
    for member in ("InputDataConfig", "RoleArn", "ResourceConfig", "AlgorithmSpecification"):
        assert told[member] == definition(anna)[member]


def test_everything_else_of_the_definition_reaches_the_training_job(anna: As) -> None:
    given = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90},
        "RetryStrategy": {"MaximumRetryAttempts": 4},
        "Environment": {"A": "b"},
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    }
    create_tuning(anna, TrainingJobDefinition=definition(anna, **given))
    told = launched(anna)
    assert {member: told[member] for member in given} == given
    assert told["EnableNetworkIsolation"] is False


def test_each_trial_has_a_place_of_its_own_for_checkpoints(anna: As) -> None:
    checkpoints = {"S3Uri": "s3://data/checkpoints/", "LocalPath": "/state"}
    create_tuning(anna, TrainingJobDefinition=definition(anna, CheckpointConfig=checkpoints))
    told = launched(anna)["CheckpointConfig"]
    assert told == {"S3Uri": f"s3://data/checkpoints/{trial(anna, 1).job}", "LocalPath": "/state"}


def test_a_trial_that_is_begun_again_is_the_same_training_job(anna: As) -> None:
    create_tuning(anna)
    first = launch(anna)
    # Even if what it needed is gone, the job exists.
    anna.yard.objects.delete_many(BucketRef(anna.account, "data"), ["code/sourcedir.tar.gz"])
    assert launch(anna) == first
    assert len(anna.yard.records.find(Query(KIND, account=anna.account)).resources) == 1


def test_a_training_job_with_the_same_name_is_not_mistaken_for_the_trial(anna: As) -> None:
    create_tuning(anna)
    create(anna, trial(anna, 1).job)
    with pytest.raises(InvalidRequest, match="that is not a trial of the tuning job tune"):
        launch(anna)


def test_a_missing_requirement_is_reported(anna: As) -> None:
    create_tuning(anna)
    anna.yard.objects.delete_many(BucketRef(anna.account, "data"), ["code/sourcedir.tar.gz"])
    with pytest.raises(InvalidRequest, match=r"There is no object at .*sourcedir\.tar\.gz"):
        launch(anna)


def test_a_quota_without_room_is_a_limit_that_passes(anna: As) -> None:
    create_tuning(anna)
    Quotas(anna.yard.records).put(Quota("anna", "ml.m5.large", CapacityKind.ON_DEMAND, 1), now=NOON)
    launch(anna)
    with pytest.raises(LimitExceeded):
        launch(anna, trial(anna, 2))


def test_a_trial_has_the_tags_that_its_tuning_job_has_by_then(anna: As) -> None:
    arn = create_tuning(anna, Tags=[{"Key": "a", "Value": "1"}])["HyperParameterTuningJobArn"]
    first = launched(anna)["TrainingJobArn"]
    anna("sagemaker", "AddTags", ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}])
    second = launched(anna, trial(anna, 2))["TrainingJobArn"]
    tags = [anna("sagemaker", "ListTags", ResourceArn=each)["Tags"] for each in (first, second)]
    assert tags == [[{"Key": "a", "Value": "1"}], [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]]


def test_rules_that_prune_stop_the_training_job(anna: As) -> None:
    create_tuning(anna, Tags=RULES)
    debugger = job_of(anna.yard.records.load_by_id(launch(anna))).plan.debugger
    assert debugger is not None
    assert [(rule.name, rule.rule) for rule in debugger.rules] == [(each, each) for each in RULES[0]["Value"].split()]
    assert all(rule.actions == ({"name": "stoptraining"},) for rule in debugger.rules)


def test_a_trial_is_of_its_own_definition(anna: As) -> None:
    own = {"HyperParameterRanges": {"ContinuousParameterRanges": [RATE]}}
    images = ("pytorch-training:2.6", "pytorch-training:2.5")
    definitions = [
        definition(
            anna,
            DefinitionName=name,
            TuningObjective={"Type": "Minimize", "MetricName": metric},
            AlgorithmSpecification={
                "TrainingImage": image,
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": metric, "Regex": "(.*)"}],
            },
            **own,
        )
        for name, image, metric in zip(("a", "b"), images, ("loss", "error"), strict=True)
    ]
    several = config(HyperParameterTuningJobObjective=None, ParameterRanges=None)
    changed: dict[str, Any] = {"TrainingJobDefinition": None, "TrainingJobDefinitions": definitions}
    create_tuning(anna, HyperParameterTuningJobConfig=several, **changed)
    told = launched(anna, replace(trial(anna, 1), definition="b", values={"lr": "0.01"}))
    assert told["AlgorithmSpecification"]["TrainingImage"] == "pytorch-training:2.5"
    assert told["HyperParameters"]["_tuning_objective_metric"] == "error"


def choices(*types: str, **changed: Any) -> dict[str, Any]:
    each = [{"InstanceType": name, "InstanceCount": 1, "VolumeSizeInGB": 5} for name in types]
    return {"HyperParameterTuningResourceConfig": {"InstanceConfigs": each, **changed}, "ResourceConfig": None}


def test_of_several_instance_types_a_trial_gets_the_first_that_the_machine_has(anna: As) -> None:
    given = definition(anna, **choices("ml.p4d.24xlarge", "ml.m5.large", "ml.c5.large"))
    create_tuning(anna, TrainingJobDefinition=given)
    assert launched(anna)["ResourceConfig"]["InstanceType"] == "ml.m5.large"


def test_each_of_several_instance_types_is_held_against_the_engine_that_it_would_run_on(anna: As) -> None:
    compute = anna.yard.compute
    large = Capacity.of_machine(slots=8, cpus=96.0, memory_bytes=2 * 1024**4, gpus=tuple(range(8)))
    far = SimulatedEngine(compute.jobs, name="far", is_here=False, capacity=large)
    user = replace(
        anna, yard=replace(anna.yard, compute=replace(compute, engines=EngineSet([compute.engines.default, far])))
    )
    given = definition(user, **choices("ml.p4d.24xlarge", "ml.m5.large"))

    create_tuning(user, "here", TrainingJobDefinition=given)
    create_tuning(user, "far", TrainingJobDefinition=given, Tags=[{"Key": "trainyard:engine", "Value": "far"}])

    kinds = [launched(user, name=name)["ResourceConfig"]["InstanceType"] for name in ("here", "far")]
    assert kinds == ["ml.m5.large", "ml.p4d.24xlarge"]


def test_an_instance_type_without_room_in_the_quota_gives_way_to_the_next(anna: As) -> None:
    given = definition(anna, **choices("ml.m5.large", "ml.c5.large", AllocationStrategy="Prioritized"))
    create_tuning(anna, TrainingJobDefinition=given)
    Quotas(anna.yard.records).put(Quota("anna", "ml.m5.large", CapacityKind.ON_DEMAND, 1), now=NOON)
    kinds = [launched(anna, trial(anna, number))["ResourceConfig"]["InstanceType"] for number in (1, 2)]
    assert kinds == ["ml.m5.large", "ml.c5.large"]


def test_the_resources_of_the_sdk_are_those_of_a_training_job(anna: As) -> None:
    given = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 5}
    changed = {"HyperParameterTuningResourceConfig": given, "ResourceConfig": None}
    create_tuning(anna, TrainingJobDefinition=definition(anna, **changed))
    assert launched(anna)["ResourceConfig"] == given


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ResourceConfig": None}, "needs either a ResourceConfig or a HyperParameterTuningResourceConfig"),
        (choices("ml.m5.large") | {"ResourceConfig": {"InstanceType": "ml.m5.large"}}, "needs either a ResourceConfig"),
        (choices("ml.m5.large", InstanceType="ml.m5.large"), "each with its own InstanceType; leave InstanceType out"),
        (choices("ml.m5.large", "ml.other.9"), '"ml.other.9" is not an instance type this yard knows'),
    ],
)
def test_resources_that_are_not_clear_are_refused_at_the_create(
    anna: As, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        create_tuning(anna, TrainingJobDefinition=definition(anna, **changed))
