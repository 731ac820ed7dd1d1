import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import prepare
from tests.unit.server.services.sagemaker.tuning.requests import (
    DEPTH,
    LOSS,
    OPTIMIZER,
    RATE,
    config,
    create_tuning,
    definition,
    describe_tuning,
    study,
    tuning_request,
)
from trainyard.foundation.jobs.tuning import RangeKind, Scaling, StrategyKind, TuningStatus
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.jobs.tuning import tuning_key
from trainyard.wire.fault import Fault


def refusal(user: As, **changed: Any) -> str:
    """Return the message that refuses a tuning job, of which nothing may be left."""
    with pytest.raises(Fault) as caught:
        create_tuning(user, **changed)
    assert caught.value.code == "ValidationException"
    assert not user("sagemaker", "ListHyperParameterTuningJobs")["HyperParameterTuningJobSummaries"]
    return caught.value.message


def test_without_scipy_a_tuning_job_is_refused_with_the_command_that_brings_it(
    anna: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert "pip install 'trainyard[tuning]'" in refusal(anna)


def test_a_tuning_job_is_accepted_with_its_arn_and_a_plan(anna: As) -> None:
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}:hyper-parameter-tuning-job/Tune"
    assert create_tuning(anna, "Tune") == {"HyperParameterTuningJobArn": arn}
    job = study(anna, "Tune")
    assert (job.name, job.status, job.created_at) == ("Tune", TuningStatus.IN_PROGRESS, NOON)
    assert (job.plan.strategy, job.plan.max_trials, job.plan.max_parallel) == (StrategyKind.RANDOM, 20, 2)
    depth, rate = job.plan.definitions[0].ranges
    assert (depth.kind, depth.low, depth.high, depth.scaling) == (RangeKind.INTEGER, 1, 9, Scaling.AUTO)
    assert (rate.kind, rate.low, rate.high, rate.scaling) == (RangeKind.CONTINUOUS, 0.001, 0.1, Scaling.LOGARITHMIC)


def test_it_is_due_at_once_and_the_yard_is_woken(anna: As) -> None:
    woken: list[str] = []
    compute = replace(anna.yard.compute, wake=woken.append)
    create_tuning(replace(anna, yard=replace(anna.yard, compute=compute)))
    created = anna.yard.records.load(tuning_key(anna.account, "tune"))
    assert woken == [created.id]
    assert anna.yard.records.in_state("tuning-job") == [created]
    assert anna.yard.records.first_due("tuning-job", now=NOON) == created


def test_names_that_differ_in_case_only_are_the_same(anna: As) -> None:
    create_tuning(anna, "Tune")
    with pytest.raises(Fault, match=r"unique.*whatever their case.*hyper-parameter-tuning-job/Tune\)") as caught:
        create_tuning(anna, "tUNE")
    assert caught.value.code == "ResourceInUse"
    assert describe_tuning(anna, "TUNE")["HyperParameterTuningJobName"] == "Tune"


def test_two_users_may_have_tuning_jobs_of_one_name(accounts: Accounts, anna: As) -> None:
    create_tuning(anna)
    with pytest.raises(Fault) as caught:
        describe_tuning(accounts.ben)
    assert caught.value.code == "ResourceNotFound"
    create_tuning(prepare(accounts.ben))


def test_random_seeds_differ_and_a_given_seed_is_stored(anna: As) -> None:
    for name in ("a", "b"):
        create_tuning(anna, name)
    create_tuning(anna, "c", HyperParameterTuningJobConfig=config(RandomSeed=7))
    assert study(anna, "a").plan.seed != study(anna, "b").plan.seed
    assert study(anna, "c").plan.seed == 7


def test_a_built_in_algorithm_is_refused_by_its_name_and_not_for_its_metrics(anna: As) -> None:
    image = "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File"}
    given = definition(anna, AlgorithmSpecification=algorithm, StaticHyperParameters={"epochs": "3"})
    assert "is the built-in algorithm Image Classification" in refusal(anna, TrainingJobDefinition=given)


def test_a_definition_whose_training_jobs_would_fail_is_refused(anna: As) -> None:
    where = {"S3OutputPath": "s3://nowhere/x"}
    message = refusal(anna, TrainingJobDefinition=definition(anna, OutputDataConfig=where))
    assert message == (
        'The training job definition cannot be run: The bucket "nowhere" of S3OutputPath does not exist; create it '
        "first, or name another."
    )
    image = {"TrainingImage": "mine:1", "TrainingInputMode": "File", "MetricDefinitions": [LOSS]}
    assert "mine:1" in refusal(anna, TrainingJobDefinition=definition(anna, AlgorithmSpecification=image))
    role = f"arn:aws:iam::{anna.account}:role/other"
    assert "Could not assume role" in refusal(anna, TrainingJobDefinition=definition(anna, RoleArn=role))
    outside = {"S3Uri": "s3://data/ck", "LocalPath": "/.host/etc"}
    message = refusal(anna, TrainingJobDefinition=definition(anna, CheckpointConfig=outside))
    assert 'CheckpointConfig.LocalPath is "/.host/etc"; it must be a folder below /opt/ml' in message
    broken = [{"Name": "loss", "Regex": "loss=(["}]
    algorithm = {**definition(anna)["AlgorithmSpecification"], "MetricDefinitions": broken}
    message = refusal(anna, TrainingJobDefinition=definition(anna, AlgorithmSpecification=algorithm))
    assert 'The metric "loss" has an invalid regular expression' in message


def test_a_definition_of_several_is_named_when_it_cannot_be_run(anna: As) -> None:
    objective = {"Type": "Minimize", "MetricName": "loss"}
    own = {"TuningObjective": objective, "HyperParameterRanges": {"ContinuousParameterRanges": [RATE]}}
    given = [
        definition(anna, DefinitionName="good", **own),
        definition(anna, DefinitionName="bad", **own, CheckpointConfig={"S3Uri": "s3://nowhere/x"}),
    ]
    several = config(HyperParameterTuningJobObjective=None, ParameterRanges=None)
    message = refusal(
        anna, HyperParameterTuningJobConfig=several, TrainingJobDefinition=None, TrainingJobDefinitions=given
    )
    assert message.startswith('The training job definition "bad" cannot be run: The bucket "nowhere"')


def test_a_quota_too_small_for_one_training_job_is_refused(accounts: Accounts, anna: As) -> None:
    Quotas(anna.yard.records).put(Quota("anna", "ml.m5.large", CapacityKind.ON_DEMAND, 1), now=NOON)
    create_tuning(anna)
    assert "Your quota allows only 1 of 2 parallel training jobs; the others wait." in study(anna).notes
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    with pytest.raises(Fault, match=r"needs 2 of ml\.m5\.large, but your quota is 1") as caught:
        create_tuning(anna, "other", TrainingJobDefinition=definition(anna, ResourceConfig=two))
    assert caught.value.code == "ResourceLimitExceeded"


def test_a_range_of_one_value_is_accepted_and_noted(anna: As) -> None:
    ranges = {"ContinuousParameterRanges": [{**RATE, "MaxValue": "0.001"}], "CategoricalParameterRanges": [OPTIMIZER]}
    create_tuning(anna, HyperParameterTuningJobConfig=config(ParameterRanges=ranges))
    note = 'The range of "lr" has only one value; every training job gets 0.001.'
    assert [each for each in study(anna).notes if "one value" in each] == [note]


def test_more_training_jobs_than_combinations_are_accepted_and_noted(anna: As) -> None:
    few = {"CategoricalParameterRanges": [OPTIMIZER], "IntegerParameterRanges": [DEPTH]}
    create_tuning(anna, HyperParameterTuningJobConfig=config(ParameterRanges=few))
    note = "The ranges have 18 combinations, fewer than 20 training jobs; some are repeated."
    assert note in study(anna).notes


def test_tags_are_stored_and_checked(anna: As) -> None:
    arn = create_tuning(anna, Tags=[{"Key": "team", "Value": "vision"}])["HyperParameterTuningJobArn"]
    assert anna("sagemaker", "ListTags", ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "vision"}]
    assert "Tags" not in anna.yard.records.load(tuning_key(anna.account, "tune")).body["request"]
    with pytest.raises(Fault, match="reserved"):
        create_tuning(anna, "other", Tags=[{"Key": "aws:x", "Value": ""}])


def test_thirty_ranges_and_a_category_of_thirty_values_are_accepted(anna: As) -> None:
    rates = [{**RATE, "Name": f"lr{number}"} for number in range(29)]
    words = {"Name": "word", "Values": [str(number) for number in range(30)]}
    ranges = {"ContinuousParameterRanges": rates, "CategoricalParameterRanges": [words]}
    create_tuning(anna, HyperParameterTuningJobConfig=config(ParameterRanges=ranges))
    assert len(study(anna).plan.definitions[0].ranges) == 30


def test_the_request_is_stored_as_sent(anna: As) -> None:
    sent = tuning_request(anna)
    create_tuning(anna)
    assert anna.yard.records.load(tuning_key(anna.account, "tune")).body["request"] == sent
