import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create, describe
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.jobs.training import KIND, LOG_GROUP
from trainyard.server.log_streams import GROUP, open_foreign_stream
from trainyard.server.records.contract import ResourceKey
from trainyard.wire.fault import Fault


def stop(user: As, name: str = "mnist") -> None:
    user("sagemaker", "StopTrainingJob", TrainingJobName=name)


def delete(user: As, name: str = "mnist") -> None:
    user("sagemaker", "DeleteTrainingJob", TrainingJobName=name)


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "StopTrainingJob", "DeleteTrainingJob"])
def test_a_job_that_is_not_there_is_a_validation_exception_as_waiters_expect(anna: As, operation: str) -> None:
    with pytest.raises(Fault, match=r"^Requested resource not found\.$") as caught:
        anna("sagemaker", operation, TrainingJobName="none")
    assert (caught.value.code, caught.value.status) == ("ValidationException", 400)


def test_an_administrator_sees_the_jobs_of_all(accounts: Accounts, anna: As) -> None:
    create(anna)
    assert describe(accounts.admin)["TrainingJobArn"] == describe(anna)["TrainingJobArn"]


def test_a_job_that_ended_cannot_be_stopped(anna: As) -> None:
    create(anna)
    stop(anna)
    with pytest.raises(Fault, match="rejected because the training job is in status Stopped") as caught:
        stop(anna)
    assert caught.value.code == "ValidationException"


def test_a_stop_may_be_repeated_while_the_job_is_stopping(anna: As) -> None:
    create(anna)
    job = advance(load(anna), SecondaryStatus.STARTING, at=seconds(1))
    remember(anna, advance(job, SecondaryStatus.STOPPING, at=seconds(2)))
    stop(anna)
    assert describe(anna)["TrainingJobStatus"] == "Stopping"


def test_only_a_job_that_ended_can_be_deleted(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match="InProgress; stop it") as caught:
        delete(anna)
    assert caught.value.code == "ResourceInUse"


def test_a_deleted_job_leaves_neither_files_nor_streams_and_its_name_is_free(anna: As) -> None:
    create(anna)
    stop(anna)
    folder = anna.yard.compute.jobs / anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist")).id
    (folder / "1" / "algo-1" / "logs").mkdir(parents=True)
    group = ResourceKey(anna.account, GROUP, LOG_GROUP)
    for name in ("mnist/algo-1-1", "mnist-2/algo-1-1"):
        open_foreign_stream(anna.yard.records, group, name, region="eu-west-3", folder=str(folder), now=seconds(1))
    delete(anna)
    assert not folder.exists()
    streams = anna("logs", "DescribeLogStreams", logGroupName=LOG_GROUP)["logStreams"]
    assert [stream["logStreamName"] for stream in streams] == ["mnist-2/algo-1-1"]
    create(anna)
