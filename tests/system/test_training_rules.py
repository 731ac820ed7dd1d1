"""Limits of jobs on a real yard: quotas, retries, warm pools, updates and strictness."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.watching import living_agents
from trainyard.foundation.clock import utc_now
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard
from trainyard.wire.client import Client

GREET = 'print("hello", flush=True)\n'
WAIT = """
import time
print("waiting", flush=True)
while True:
    time.sleep(0.05)
"""
# Waits forever in the first attempt. Later attempts find what the first one left, and complete.
COUNT_ATTEMPTS = """
import time
import boto3
s3 = boto3.client("s3")
number = s3.list_objects_v2(Bucket="data", Prefix="attempts/")["KeyCount"] + 1
s3.put_object(Bucket="data", Key=f"attempts/{number}", Body=b"")
print(f"attempt {number} loss={1 / number};", flush=True)
while number == 1:
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


@pytest.fixture
def quota(administrator: User) -> Iterator["Quotas"]:
    with closing(Quotas(administrator)) as quotas:
        yield quotas
        quotas.clear()


class Quotas:
    """The quotas of a yard, as an administrator sets them."""

    def __init__(self, administrator: User) -> None:
        self._client = client_of(administrator)

    def set(self, user: str, kind: str, limit: int) -> None:
        self._client.call("trainyard", "PutQuota", UserName=user, InstanceType=kind, Kind="on-demand", Limit=limit)

    def use(self, user: str, kind: str) -> int:
        found = self._client.call("trainyard", "ListQuotas", UserName=user)["Quotas"]
        return int(next(each["Use"] for each in found if each["InstanceType"] == kind))

    def clear(self) -> None:
        for each in self._client.call("trainyard", "ListQuotas")["Quotas"]:
            named = {member: each[member] for member in ("UserName", "InstanceType", "Kind")}
            self._client.call("trainyard", "DeleteQuota", **named)

    def close(self) -> None:
        self._client.close()


def client_of(user: User) -> Client:
    return Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)


def kept(seconds: int) -> dict[str, Any]:
    return {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 1,
        "VolumeSizeInGB": 1,
        "KeepAlivePeriodInSeconds": seconds,
    }


def count_points(trainee: Trainee, name: str, start: datetime, end: datetime) -> float:
    """Return how many values of its loss a job has in CloudWatch."""
    points = trainee.user.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": name}],
        StartTime=start - timedelta(minutes=1),
        EndTime=end + timedelta(minutes=1),
        Period=3600,
        Statistics=["SampleCount"],
    )["Datapoints"]
    return float(sum(point["SampleCount"] for point in points))


def test_a_job_whose_agent_is_killed_is_tried_again_and_completes(anna: Trainee, yard: RunningYard) -> None:
    metrics = [{"Name": "loss", "Regex": "loss=(.*?);"}]
    algorithm = {"TrainingImage": "pytorch-training", "TrainingInputMode": "File", "MetricDefinitions": metrics}
    anna.start("again", COUNT_ATTEMPTS, RetryStrategy={"MaximumRetryAttempts": 1}, AlgorithmSpecification=algorithm)
    anna.await_line("again", "attempt 1 loss=1.0;")
    begun = anna.describe("again")["TrainingStartTime"]
    eventually(lambda: count_points(anna, "again", begun, utc_now()) == 1)  # it is searched for beside the log
    (agent,) = living_agents(yard, "again")
    os.kill(agent, signal.SIGKILL)
    told = anna.reach("again", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("again", instance=1))
    statuses = [step["Status"] for step in told["SecondaryStatusTransitions"]]
    assert statuses.count("Training") == 2
    assert statuses[statuses.index("Restarting") + 1] == "Starting"
    (message,) = [
        step["StatusMessage"] for step in told["SecondaryStatusTransitions"] if step["Status"] == "Restarting"
    ]
    assert message == "Attempt 1 was lost. Retry 1 of 1 starts the job again."
    assert [anna.printed("again", instance=number) for number in (0, 1)] == [
        ["attempt 1 loss=1.0;"],
        ["attempt 2 loss=0.5;"],
    ]
    (final,) = told["FinalMetricDataList"]
    assert final["Value"] == 0.5
    started, ended = told["TrainingStartTime"], told["TrainingEndTime"]
    assert count_points(anna, "again", started, ended) == 2
    assert living_agents(yard, "again") == []


def test_a_program_that_fails_is_not_tried_again(anna: Trainee) -> None:
    told = anna.run("hopeless", "raise SystemExit(3)\n", RetryStrategy={"MaximumRetryAttempts": 30})
    assert told["TrainingJobStatus"] == "Failed"
    assert len(anna.streams("hopeless")) == 1


def test_a_job_above_its_quota_is_refused_until_another_has_ended(anna: Trainee, quota: Quotas) -> None:
    quota.set("anna", "ml.m5.large", 1)
    anna.start("allowed", WAIT)
    with pytest.raises(ClientError) as caught:
        anna.start("refused", GREET)
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceLimitExceeded"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "'ml.m5.large for training job usage' is 1 Instances" in error["Message"]
    assert "`trainyard quota set anna ml.m5.large 2`" in error["Message"]
    anna.sagemaker.stop_training_job(TrainingJobName="allowed")
    anna.reach("allowed", "Stopped")
    assert anna.run("refused", GREET)["TrainingJobStatus"] == "Completed"
    assert quota.use("anna", "ml.m5.large") == 0


def test_many_who_create_at_once_do_not_get_past_a_quota(anna: Trainee, quota: Quotas) -> None:
    quota.set("*", "*", 5)
    request = anna.request("crowd", WAIT)
    clients = threading.local()

    def create(number: int) -> str:
        if not hasattr(clients, "sagemaker"):
            clients.sagemaker = anna.sagemaker
        try:
            clients.sagemaker.create_training_job(**request | {"TrainingJobName": f"crowd-{number}"})
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "created"

    with ThreadPoolExecutor(32) as threads:
        answers = Counter(threads.map(create, range(200)))
    assert answers == {"created": 5, "ResourceLimitExceeded": 195}
    assert quota.use("anna", "*") == 5
    for each in anna.sagemaker.list_training_jobs(NameContains="crowd", MaxResults=100)["TrainingJobSummaries"]:
        anna.sagemaker.stop_training_job(TrainingJobName=each["TrainingJobName"])
        anna.reach(each["TrainingJobName"], "Stopped")
    assert quota.use("anna", "*") == 0


@pytest.mark.slow
def test_usage_is_correct_after_a_kill(tmp_path: Path) -> None:
    home = tmp_path / "yard"
    first = start_yard(home)
    try:
        kill_while_many_create(first)
    finally:
        first.kill()
    with running_yard(home) as second, closing(Quotas(administrator_of(second))) as quotas:
        trainee = trainee_of(second)
        jobs = trainee.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert 1 <= len(jobs) <= 2
        assert quotas.use(second.credentials.user, "*") == len(jobs)
        for job in jobs:
            trainee.sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])
            trainee.reach(job["TrainingJobName"], "Stopped")
        assert quotas.use(second.credentials.user, "*") == 0


def kill_while_many_create(yard: RunningYard) -> None:
    """Create six jobs at once, of which two may run, and kill the yard after the first success."""
    trainee = trainee_of(yard).prepare()
    with closing(Quotas(administrator_of(yard))) as quotas:
        quotas.set("*", "*", 2)
    requests = [trainee.request(f"job-{number}", WAIT) for number in range(6)]

    def create(request: dict[str, Any]) -> None:
        with suppress(ClientError, BotoCoreError):  # refused, or cut off
            trainee.sagemaker.create_training_job(**request)

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(create, request) for request in requests]
        eventually(lambda: bool(trainee.sagemaker.list_training_jobs()["TrainingJobSummaries"]))
        yard.kill()
        for each in asked:
            each.result()


@pytest.mark.flow
def test_a_warm_pool_passes_from_job_to_job_and_ends_on_request(anna: Trainee) -> None:
    first = anna.run("pool-1", GREET, ResourceConfig=kept(600))
    assert first["WarmPoolStatus"]["Status"] == "Available"
    anna.run("pool-2", GREET, ResourceConfig=kept(300))
    assert anna.describe("pool-1")["WarmPoolStatus"]["Status"] == "Reused"
    assert anna.describe("pool-1")["WarmPoolStatus"]["ReusedByJob"] == "pool-2"
    found = anna.sagemaker.list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [each["TrainingJobName"] for each in found] == ["pool-2"]
    anna.sagemaker.update_training_job(TrainingJobName="pool-2", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    assert anna.describe("pool-2")["WarmPoolStatus"]["Status"] == "Terminated"
    with pytest.raises(ClientError, match=r"\(ValidationException\).*warm pool that is Terminated"):
        anna.sagemaker.update_training_job(TrainingJobName="pool-2", ResourceConfig={"KeepAlivePeriodInSeconds": 9})


@pytest.mark.flow
def test_a_running_job_is_updated_and_continues(anna: Trainee) -> None:
    anna.start("updated", WAIT)
    anna.await_line("updated", "waiting")
    told = anna.describe("updated")
    answer = anna.sagemaker.update_training_job(
        TrainingJobName="updated",
        ProfilerConfig={"S3OutputPath": "s3://data/profile", "ProfilingIntervalInMilliseconds": 500},
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
    )
    assert answer["TrainingJobArn"] == told["TrainingJobArn"]
    changed = anna.describe("updated")
    assert (changed["ProfilingStatus"], changed["ResourceConfig"]["KeepAlivePeriodInSeconds"]) == ("Enabled", 60)
    anna.sagemaker.update_training_job(TrainingJobName="updated", ProfilerConfig={"DisableProfiler": True})
    assert anna.describe("updated")["ProfilingStatus"] == "Disabled"
    anna.sagemaker.stop_training_job(TrainingJobName="updated")
    assert anna.reach("updated", "Stopped")["WarmPoolStatus"]["Status"] == "Available"
    with pytest.raises(ClientError, match="in status Stopped"):
        anna.sagemaker.update_training_job(TrainingJobName="updated", ProfilerConfig={"DisableProfiler": False})


def test_metrics_do_not_move_the_time_of_the_last_modification(anna: Trainee) -> None:
    script = "import time\nfor step in range(3000):\n    print(f'loss={step};', flush=True)\n    time.sleep(0.1)\n"
    metrics = [{"Name": "loss", "Regex": "loss=(.*?);"}]
    algorithm = {"TrainingImage": "pytorch-training", "TrainingInputMode": "File", "MetricDefinitions": metrics}
    anna.start("steady", script, AlgorithmSpecification=algorithm)
    anna.reach("steady", "Training")
    eventually(lambda: "FinalMetricDataList" in anna.describe("steady"))
    told = anna.describe("steady")
    began = told["SecondaryStatusTransitions"][-1]["StartTime"]
    assert (told["SecondaryStatus"], told["LastModifiedTime"] - began < timedelta(seconds=1)) == ("Training", True)
    eventually(lambda: anna.describe("steady")["FinalMetricDataList"][0]["Value"] > 10)
    assert anna.describe("steady")["LastModifiedTime"] == told["LastModifiedTime"]
    anna.sagemaker.stop_training_job(TrainingJobName="steady")
    anna.reach("steady", "Stopped")


def test_a_strict_yard_refuses_what_it_has_only_in_part(tmp_path: Path) -> None:
    with running_yard(tmp_path / "yard", environment={"TRAINYARD_SERVER_STRICT": "true"}) as yard:
        trainee = trainee_of(yard).prepare()
        image = {"TrainingImage": "pytorch-training", "TrainingInputMode": "File"}
        large = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
        local = large | {"InstanceType": "local"}
        told = trainee.run("whole", GREET, ResourceConfig=local, AlgorithmSpecification=image)
        assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
        with pytest.raises(ClientError, match=r"\(ValidationException\).*Each ml\.p5\.48xlarge gets .* is strict"):
            trainee.start("large", GREET, ResourceConfig=large, AlgorithmSpecification=image)
        old = {"TrainingImage": "pytorch-training:0.1", "TrainingInputMode": "File"}
        with pytest.raises(ClientError, match=r"\(ValidationException\).*is strict about versions"):
            trainee.start("old", GREET, ResourceConfig=local, AlgorithmSpecification=old)


def administrator_of(yard: RunningYard) -> User:
    known = yard.credentials
    return User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)


def trainee_of(yard: RunningYard) -> Trainee:
    return Trainee(administrator_of(yard))
