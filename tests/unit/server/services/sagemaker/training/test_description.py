from dataclasses import replace

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import create, describe
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import Artifact, TrainingJob
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.jobs.training import KIND, change_to, job_of
from trainyard.server.records.contract import ResourceKey

S = SecondaryStatus


def remember(user: As, job: TrainingJob) -> None:
    resource = user.yard.records.load(ResourceKey(user.account, KIND, job.name))
    assert user.yard.records.apply(resource, change_to(resource, job), now=seconds(60)) is not None


def load(user: As, name: str = "mnist") -> TrainingJob:
    return job_of(user.yard.records.load(ResourceKey(user.account, KIND, name)))


def test_members_that_the_sdk_reads_are_always_present(anna: As) -> None:
    create(anna)
    told = describe(anna)
    assert told["OutputDataConfig"] == {"KmsKeyId": "", "S3OutputPath": "s3://data/output"}
    assert told["ModelArtifacts"] == {"S3ModelArtifacts": "s3://data/output/mnist/output/model.tar.gz"}
    assert (told["EnableNetworkIsolation"], told["EnableManagedSpotTraining"]) == (False, False)
    assert told["ProfilingStatus"] == "Enabled"
    for member in ("HyperParameters", "InputDataConfig", "ResourceConfig", "RoleArn", "AlgorithmSpecification"):
        assert member in told
    for member in ("TrainingStartTime", "TrainingEndTime", "TrainingTimeInSeconds", "FailureReason"):
        assert member not in told


def test_a_model_without_compression_is_a_prefix(anna: As) -> None:
    create(anna, OutputDataConfig={"S3OutputPath": "s3://data/output/", "CompressionType": "NONE"})
    told = describe(anna)
    assert told["ModelArtifacts"] == {"S3ModelArtifacts": "s3://data/output/mnist/output/model/"}
    assert told["OutputDataConfig"]["CompressionType"] == "NONE"


def test_transitions_are_described_with_their_ends(anna: As) -> None:
    create(anna)
    remember(anna, advance(load(anna), S.STARTING, at=seconds(3)))
    first, last = describe(anna)["SecondaryStatusTransitions"]
    assert (first["Status"], first["EndTime"]) == ("Pending", seconds(3))
    assert last == {
        "Status": "Starting",
        "StartTime": seconds(3),
        "StatusMessage": "Preparing the instances for training",
    }
    assert describe(anna)["LastModifiedTime"] == seconds(60)


def test_a_job_of_half_a_second_is_billed_for_one(anna: As) -> None:
    create(anna)
    job = advance(advance(load(anna), S.STARTING, at=seconds(1)), S.TRAINING, at=seconds(2))
    remember(anna, advance(job, S.COMPLETED, at=seconds(2.5)))
    told = describe(anna)
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (1, 1)
    assert told["TrainingEndTime"] == seconds(2.5)


def test_a_long_reason_is_cut_on_the_wire_and_stored_in_full(anna: As) -> None:
    create(anna)
    remember(anna, advance(replace(load(anna), failure="x" * 5000), S.FAILED, at=seconds(1)))
    assert len(describe(anna)["FailureReason"]) == 1024
    assert len(load(anna).failure) == 5000


def test_final_metrics_and_artifacts_are_described(anna: As) -> None:
    create(anna)
    diverged = MetricSummary(0.0, seconds(4), 0, has_lapsed=True)  # which never was a number
    instance = InstanceState("algo-1", metrics={"loss": MetricSummary(0.5, seconds(4), 3), "error": diverged})
    job = replace(
        load(anna),
        attempts=(Attempt(1, seconds(1), "KEY", (instance,)),),
        artifacts={"model": Artifact("s3://elsewhere/model.tar.gz", 3)},
    )
    remember(anna, job)
    told = describe(anna)
    assert told["FinalMetricDataList"] == [{"MetricName": "loss", "Value": 0.5, "Timestamp": seconds(4)}]
    assert told["ModelArtifacts"]["S3ModelArtifacts"] == "s3://elsewhere/model.tar.gz"


def test_a_spot_job_is_billed_at_its_price_and_for_a_second_at_least(anna: As) -> None:
    times = {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}
    for name, ran_s in {"short": 0.4, "long": 999.5}.items():
        create(anna, name, EnableManagedSpotTraining=True, StoppingCondition=times)
        attempt = Attempt(1, seconds(1), "KEY", (InstanceState("algo-1"),), ended_at=seconds(2 + ran_s))
        job = advance(replace(load(anna, name), attempts=(attempt,)), S.STARTING, at=seconds(1))
        job = advance(job, S.TRAINING, at=seconds(2))
        remember(anna, advance(job, S.COMPLETED, at=seconds(2 + ran_s)))
    told = describe(anna, "short")
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (1, 1)
    told = describe(anna, "long")
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (1000, 300)
    assert told["EnableManagedSpotTraining"] is True
    assert told["StoppingCondition"] == times
