from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.processing.requests import cluster, create, describe, input_of, output_of
from tests.unit.server.services.sagemaker.requests import IMAGE
from trainyard.foundation.errors import InvalidRequest, LimitExceeded
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.jobs.processing.plan import OutputPlan
from trainyard.server.jobs.processing import KIND, job_of
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.records.contract import Query, ResourceKey
from trainyard.wire.fault import Fault

DATA, OUT = "/opt/ml/processing/input/data", "/opt/ml/processing/out"


def inputs(*given: dict[str, Any]) -> dict[str, Any]:
    return {"ProcessingInputs": list(given)}


def outputs(*given: dict[str, Any]) -> dict[str, Any]:
    return {"ProcessingOutputConfig": {"Outputs": list(given)}}


def test_a_job_is_accepted_with_its_arn_and_described_as_it_was_asked_for(anna: As) -> None:
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}:processing-job/clean"
    asked: dict[str, Any] = {"Environment": {"COLOUR": "blue"}, "NetworkConfig": {"EnableNetworkIsolation": True}}
    assert create(anna, **asked, Tags=[{"Key": "team", "Value": "a"}]) == {"ProcessingJobArn": arn}
    told = describe(anna)
    assert (told["ProcessingJobArn"], told["ProcessingJobStatus"], told["CreationTime"]) == (arn, "InProgress", NOON)
    assert told["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}
    assert {member: told[member] for member in asked} == asked
    assert told["ProcessingResources"] == cluster()
    assert told["AppSpecification"]["ImageUri"] == IMAGE
    assert "ProcessingStartTime" not in told
    tags = anna("sagemaker", "ListTags", ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "team", "Value": "a"}]


def test_the_plan_has_what_the_platform_brings_and_stores(anna: As) -> None:
    managed = {"InputName": "own", "AppManaged": True, **input_of("", "s3://x/y", "/tmp") | {"InputName": "own"}}
    create(
        anna,
        **inputs(
            input_of("data", "s3://data/train/", f"{DATA}/", S3DataDistributionType="ShardedByS3Key"),
            input_of("deps", "s3://data/code/", f"{DATA}/deps", S3InputMode=None),
            managed,
        ),
        **outputs(output_of("out", "s3://data/out", OUT, "Continuous"), output_of("more", "s3://data/more", OUT)),
        ProcessingResources=cluster(InstanceCount=2),
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    job = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "clean")))
    assert job.plan.inputs == (
        ChannelPlan("data", "s3://data/train/", is_sharded=True, path=DATA),
        ChannelPlan("deps", "s3://data/code/", path=f"{DATA}/deps"),
    )
    assert job.plan.outputs == (
        OutputPlan("out", "s3://data/out", OUT, is_continuous=True),
        OutputPlan("more", "s3://data/more", OUT),
    )
    assert (job.plan.hosts, job.plan.max_runtime_s) == (("algo-1", "algo-2"), 60)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (inputs(input_of("data", "s3://data/none/", DATA)), 'no objects under "s3://data/none/"'),
        (inputs(input_of("data", "s3://nowhere/x", DATA)), 'bucket "nowhere"'),
        (inputs(input_of("data", "https://data/train", DATA)), "must begin with s3://"),
        (inputs(input_of("data", "s3://data/train/", "/opt/ml/input/data")), "below /opt/ml/processing"),
        (inputs(input_of("data", "s3://data/train/", f"{DATA}/../../../x")), 'cannot contain ".."'),
        (inputs(input_of("data", "s3://data/train/", None)), 'LocalPath of the input "data" is missing'),  # type: ignore[arg-type]
        (inputs(input_of("data", "s3://data/train/", DATA, S3CompressionType="Gzip")), "Gzip is only for"),
        (inputs(input_of("data", "s3://data/train/", DATA, S3InputMode="Pipe")), "does not serve the S3InputMode Pipe"),
        (inputs(*(input_of("data", "s3://data/train/", f"{DATA}/{n}") for n in (1, 2))), "used more than once"),
        (inputs(*(input_of(n, "s3://data/train/", DATA) for n in ("a", "b"))), "is that of several inputs"),
        (inputs({"InputName": "data"}), "needs an S3Input"),
        (outputs(output_of("out", "s3://nowhere/x", OUT)), 'bucket "nowhere"'),
        (outputs(output_of("out", "s3://data/out", DATA)), "overlaps that of an input"),
        (outputs(output_of("out", "s3://data/out", "/opt/ml/processing")), "below /opt/ml/processing"),
        ({"AppSpecification": {"ImageUri": IMAGE}}, "the job must say what to run"),
        ({"AppSpecification": {"ImageUri": "unknown:1", "ContainerEntrypoint": ["a"]}}, "unknown"),
        ({"RoleArn": "arn:aws:iam::{account}:role/Nobody"}, "Could not assume role"),
        ({"ProcessingResources": cluster(InstanceType=None)}, "ClusterConfig needs an InstanceType"),
    ],
)
def test_what_is_sure_to_fail_is_refused_and_leaves_nothing(anna: As, changed: dict[str, Any], words: str) -> None:
    if "RoleArn" in changed:
        changed = {"RoleArn": changed["RoleArn"].format(account=anna.account)}
    if "ProcessingResources" in changed:
        changed["ProcessingResources"]["ClusterConfig"].pop("InstanceType")
    with pytest.raises((Fault, InvalidRequest)) as caught:
        create(anna, **changed)
    assert words in str(caught.value)
    assert anna.yard.records.find(Query(KIND)).resources == []


def test_a_name_in_use_is_a_conflict_in_the_words_of_aws(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault) as caught:
        create(anna)
    assert caught.value.code == "ResourceInUse"
    assert "Processing job names must be unique within an AWS account and region" in caught.value.message


def test_instances_of_processing_jobs_count_toward_the_quotas_of_their_user(accounts: Accounts, anna: As) -> None:
    quotas = Quotas(anna.yard.records)
    user = next(each.name for each in anna.yard.records.users() if each.account == anna.account)
    quotas.put(Quota(user, "*", CapacityKind.ON_DEMAND, 1), now=NOON)
    create(anna)
    with pytest.raises((Fault, LimitExceeded)) as caught:
        create(anna, "another")
    assert "current utilization of 1" in str(caught.value)
    anna("sagemaker", "StopProcessingJob", ProcessingJobName="clean")
    create(anna, "another")
