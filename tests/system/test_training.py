"""Whole training jobs on a real yard and its local engine, through boto3."""

import io
import os
import signal
import tarfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import ENDED, GROUP, Trainee
from tests.system.watching import living_agents
from trainyard.link.specs import read_spec
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

GREET = """
import os, sys
print("hello from", os.uname().nodename, flush=True)
print("and from stderr", file=sys.stderr, flush=True)
for step in range(1, 5):
    print(f"step {step} loss={1 / step};", flush=True)
with open(os.environ["SM_MODEL_DIR"] + "/weights.bin", "wb") as file:
    file.write(b"w" * 1000)
"""
WAIT = """
import time
print("waiting", flush=True)
while True:
    time.sleep(0.05)
"""
COUNT = """
import os, time
for number in range(20):
    print("line", number, flush=True)
    time.sleep(0.1)
open(os.environ["SM_MODEL_DIR"] + "/weights.bin", "wb").write(os.urandom(30_000_000))
"""
LINGER = """
import signal, time
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
print("ready", flush=True)
while not stopped:
    time.sleep(0.05)
time.sleep(2)
"""
LOSS = [{"Name": "loss", "Regex": "loss=(.*?);"}]

ROOM_FOR_MORE = pytest.mark.not_on("ray", because="its cluster has room for more than one job, and none has to wait")


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


def with_metrics(image: str = "pytorch-training:2.6") -> dict[str, Any]:
    return {"TrainingImage": image, "TrainingInputMode": "File", "MetricDefinitions": LOSS}


def two(kind: str = "ml.m5.large") -> dict[str, Any]:
    return {"InstanceType": kind, "InstanceCount": 2, "VolumeSizeInGB": 1}


@pytest.fixture(scope="module")
def greeting(anna: Trainee) -> dict[str, Any]:
    """A completed job named "greet", as it is described."""
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/"}},
    }
    told = anna.run("greet", GREET, InputDataConfig=[channel], AlgorithmSpecification=with_metrics())
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    return told


@pytest.mark.flow
def test_a_script_is_trained_to_a_model(anna: Trainee, greeting: dict[str, Any]) -> None:
    statuses = [step["Status"] for step in greeting["SecondaryStatusTransitions"]]
    assert statuses == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert greeting["ModelArtifacts"]["S3ModelArtifacts"] == "s3://data/out/greet/output/model.tar.gz"
    body = anna.user.client("s3").get_object(Bucket="data", Key="out/greet/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert [member.name for member in archive if member.isfile()] == ["weights.bin"]
    assert greeting["TrainingTimeInSeconds"] >= 1


@pytest.mark.flow
@pytest.mark.usefixtures("greeting")
def test_its_output_is_a_log_stream_in_order(anna: Trainee) -> None:
    (stream,) = anna.streams("greet")
    assert stream.startswith("greet/algo-1-")
    assert anna.printed("greet")[:3] == ["hello from algo-1", "and from stderr", "step 1 loss=1.0;"]


@pytest.mark.usefixtures("greeting")
def test_its_log_begins_with_the_environment_that_its_image_stands_for(anna: Trainee) -> None:
    """The image names another version of torch than the installed one, or torch is not installed."""
    first = anna.lines("greet")[0]
    assert first.startswith("[trainyard] The image pytorch-training:2.6 maps to an environment with ")


def test_its_metrics_are_in_its_description_and_in_cloudwatch(anna: Trainee, greeting: dict[str, Any]) -> None:
    (final,) = greeting["FinalMetricDataList"]
    assert (final["MetricName"], final["Value"]) == ("loss", 0.25)
    cloudwatch = anna.user.client("cloudwatch")
    dimensions = [{"Name": "TrainingJobName", "Value": "greet"}]
    assert cloudwatch.list_metrics(Namespace=GROUP, MetricName="loss")["Metrics"] == [
        {"Namespace": GROUP, "MetricName": "loss", "Dimensions": dimensions}
    ]
    points = cloudwatch.get_metric_statistics(
        Namespace=GROUP,
        MetricName="loss",
        Dimensions=dimensions,
        StartTime=greeting["TrainingStartTime"] - timedelta(minutes=1),
        EndTime=greeting["TrainingEndTime"] + timedelta(minutes=1),
        Period=300,
        Statistics=["SampleCount", "Minimum", "Maximum"],
    )["Datapoints"]
    assert sum(point["SampleCount"] for point in points) == 4
    assert (min(point["Minimum"] for point in points), max(point["Maximum"] for point in points)) == (0.25, 1.0)


def test_a_job_is_listed_found_tagged_and_deleted(anna: Trainee) -> None:
    sagemaker = anna.sagemaker
    told = anna.run("passing", GREET, Tags=[{"Key": "team", "Value": "vision"}])
    summary = sagemaker.list_training_jobs(NameContains="passin", StatusEquals="Completed")["TrainingJobSummaries"]
    assert [each["TrainingJobName"] for each in summary] == ["passing"]
    expression = {"Filters": [{"Name": "Tags.team", "Operator": "Equals", "Value": "vision"}]}
    (found,) = sagemaker.search(Resource="TrainingJob", SearchExpression=expression)["Results"]
    assert found["TrainingJob"]["TrainingJobArn"] == told["TrainingJobArn"]
    sagemaker.add_tags(ResourceArn=told["TrainingJobArn"], Tags=[{"Key": "stage", "Value": "test"}])
    tags = {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=told["TrainingJobArn"])["Tags"]}
    assert tags == {"team": "vision", "stage": "test"}
    sagemaker.delete_training_job(TrainingJobName="passing")
    with pytest.raises(ClientError, match=r"\(ValidationException\).*Requested resource not found\."):
        anna.describe("passing")
    assert anna.streams("passing") == []


@pytest.mark.flow
def test_logs_are_there_while_the_job_runs_and_a_stop_ends_it(anna: Trainee) -> None:
    anna.start("waiting", WAIT)
    eventually(lambda: "waiting" in anna.lines("waiting"))
    assert anna.describe("waiting")["SecondaryStatus"] == "Training"
    anna.sagemaker.stop_training_job(TrainingJobName="waiting")
    told = anna.reach("waiting", "Stopped")
    assert [step["Status"] for step in told["SecondaryStatusTransitions"]][-2:] == ["Stopping", "Stopped"]
    with pytest.raises(ClientError, match="in status Stopped"):
        anna.sagemaker.stop_training_job(TrainingJobName="waiting")


def test_what_a_program_saves_while_it_is_stopped_is_kept(anna: Trainee) -> None:
    script = """
import os, signal, sys, time
def save(*_):
    open(os.environ["SM_MODEL_DIR"] + "/late.bin", "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
    anna.start("saving", script)
    eventually(lambda: "ready" in anna.lines("saving"))
    anna.sagemaker.stop_training_job(TrainingJobName="saving")
    anna.reach("saving", "Stopped")
    assert anna.keys("out/saving/") == ["out/saving/output/model.tar.gz"]


def test_a_program_that_fails_gives_its_reason(anna: Trainee) -> None:
    told = anna.run("failing", 'print("before")\nraise ValueError("batch 7 is empty")\n')
    assert told["TrainingJobStatus"] == told["SecondaryStatus"] == "Failed"
    assert "batch 7 is empty" in told["FailureReason"]
    assert "before" in anna.lines("failing")


def test_a_program_that_takes_too_long_is_stopped_at_its_limit(anna: Trainee) -> None:
    told = anna.run("slow", WAIT, StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (told["TrainingJobStatus"], told["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_two_instances_know_each_other_and_log_apart(anna: Trainee) -> None:
    script = 'import os\nprint(os.environ["SM_CURRENT_HOST"], os.environ["SM_HOSTS"])\n'
    told = anna.run("pair", script, ResourceConfig=two())
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    lines = [line for number in (0, 1) for line in anna.lines("pair", instance=number) if line.startswith("algo-")]
    assert lines == ['algo-1 ["algo-1","algo-2"]', 'algo-2 ["algo-1","algo-2"]']


def test_what_two_instances_saved_becomes_one_model(anna: Trainee) -> None:
    script = """
import os, time
host = os.environ["SM_CURRENT_HOST"]
time.sleep(1 if host == "algo-2" else 0)
for folder in (os.environ["SM_MODEL_DIR"], os.environ["SM_OUTPUT_DATA_DIR"]):
    open(f"{folder}/{host}", "w").write(host)
"""
    told = anna.run("shards", script, ResourceConfig=two())
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert anna.keys("out/shards/") == ["out/shards/output/model.tar.gz", "out/shards/output/output.tar.gz"]
    for key in anna.keys("out/shards/"):
        body = anna.user.client("s3").get_object(Bucket="data", Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            assert sorted(archive.getnames()) == ["algo-1", "algo-2"]


def test_the_instance_that_fails_ends_the_others(anna: Trainee) -> None:
    script = (
        "import os, sys, time\n"
        'if os.environ["SM_CURRENT_HOST"] == "algo-2":\n    sys.exit(3)\n'
        "while True:\n    time.sleep(0.05)\n"
    )
    told = anna.run("half", script, ResourceConfig=two())
    assert told["TrainingJobStatus"] == "Failed"
    assert "exit code 3" in told["FailureReason"].lower()


def test_a_program_reaches_the_yard_with_credentials_of_its_own(anna: Trainee) -> None:
    script = """
import boto3
print(boto3.client("sts").get_caller_identity()["Arn"])
boto3.client("s3").put_object(Bucket="data", Key="from-inside", Body=b"x")
"""
    told = anna.run("inside", script)
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("inside"))
    assert f"arn:aws:sts::{anna.user.account}:assumed-role/TrainyardRole/inside" in anna.lines("inside")
    assert anna.keys("from-inside") == ["from-inside"]


def test_local_is_an_instance_type(anna: Trainee) -> None:
    told = anna.run("local", GREET, ResourceConfig=two("local") | {"InstanceCount": 1})
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert told["ResourceConfig"]["InstanceType"] == "local"


def test_one_of_a_thousand_creates_with_the_same_name_succeeds(anna: Trainee) -> None:
    request = anna.request("popular", GREET)
    clients = threading.local()

    def create(_: int) -> str:
        if not hasattr(clients, "sagemaker"):
            clients.sagemaker = anna.sagemaker
        try:
            clients.sagemaker.create_training_job(**request)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "created"

    with ThreadPoolExecutor(32) as threads:
        answers = Counter(threads.map(create, range(1000)))
    assert answers == {"created": 1, "ResourceInUse": 999}
    assert anna.reach("popular", "Completed")["TrainingJobStatus"] == "Completed"


def test_the_jobs_of_one_user_do_not_exist_for_another(administrator: User, anna: Trainee) -> None:
    ben = Trainee(administrator.add_user("ben")).prepare()
    anna.run("mine", GREET)
    for call in ("describe_training_job", "stop_training_job", "delete_training_job"):
        with pytest.raises(ClientError, match=r"Requested resource not found\."):
            getattr(ben.sagemaker, call)(TrainingJobName="mine")
    assert ben.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    assert ben.sagemaker.search(Resource="TrainingJob")["Results"] == []
    told = ben.run("mine", 'print("of ben")\n')
    assert ben.printed("mine") == ["of ben"]
    assert told["TrainingJobArn"] != anna.describe("mine")["TrainingJobArn"]
    with pytest.raises(ClientError, match=r"Requested resource not found\."):
        ben.sagemaker.list_tags(ResourceArn=anna.describe("mine")["TrainingJobArn"])


@pytest.mark.parametrize(
    "status",
    [
        "created",
        "Training",
        pytest.param("Pending", marks=[pytest.mark.slow, ROOM_FOR_MORE]),
        *(pytest.param(status, marks=pytest.mark.slow) for status in ("Uploading", "Stopping")),
    ],
)
def test_a_yard_that_is_killed_finds_its_jobs_again(tmp_path: Path, status: str) -> None:
    home, one_slot = tmp_path / "yard", {"TRAINYARD_SERVER_SLOTS": "1"}
    first = start_yard(home, environment=one_slot)
    try:
        bring_to(trainee_of(first).prepare(), status)
    finally:
        first.kill()
    with running_yard(home, environment=one_slot) as second:
        trainee = trainee_of(second)
        told = trainee.reach("counting", *ENDED)
        if status == "Stopping":
            assert told["TrainingJobStatus"] == "Stopped", told
        else:
            assert told["TrainingJobStatus"] == "Completed", told
            assert trainee.printed("counting") == [f"line {number}" for number in range(20)]
            assert trainee.keys("out/counting/") == ["out/counting/output/model.tar.gz"]
        assert attempts_of(second, told) == 1
        assert not living_agents(second)


def bring_to(trainee: Trainee, status: str) -> None:
    """Bring a job named counting to that status."""
    if status == "Pending":
        trainee.start("first", COUNT)
        trainee.reach("first", "Training")
    trainee.start("counting", LINGER if status == "Stopping" else COUNT)
    if status == "created":  # acknowledged, and nothing more is known
        return
    if status == "Stopping":
        eventually(lambda: "ready" in trainee.lines("counting"))
        trainee.sagemaker.stop_training_job(TrainingJobName="counting")
    assert trainee.reach("counting", status)


def test_an_agent_that_is_killed_fails_its_job_with_a_reason(anna: Trainee, yard: RunningYard) -> None:
    anna.start("orphan", WAIT)
    eventually(lambda: "waiting" in anna.lines("orphan"))
    (agent,) = living_agents(yard)
    os.kill(agent, signal.SIGKILL)
    told = anna.reach("orphan", "Failed")
    assert "The agent of algo-1 died" in told["FailureReason"]
    assert not living_agents(yard)


def trainee_of(yard: RunningYard) -> Trainee:
    known = yard.credentials
    user = User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    return Trainee(user)


def attempts_of(yard: RunningYard, told: dict[str, Any]) -> int:
    """Return how often the first instance of a job was started."""
    specs = [read_spec(folder) for folder in yard.home.jobs.glob("*/*/algo-1")]
    return sum(spec.job_name == told["TrainingJobName"] for spec in specs)
