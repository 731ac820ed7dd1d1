"""Whole processing jobs on a real yard and its engine, through boto3."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import ENDED, IMAGE
from trainyard.testing.eventually import eventually

GROUP = "/aws/sagemaker/ProcessingJobs"
ROOT = "/opt/ml/processing"
SPLIT = """
import json, os, pathlib, socket, sys
host = json.load(open("/opt/ml/config/resourceconfig.json"))["current_host"]
job = json.load(open("/opt/ml/config/processingjobconfig.json"))
assert job["ProcessingInputs"][0]["S3Input"]["S3DownloadMode"] == "StartOfJob", job
assert socket.gethostbyname("algo-2").startswith(("127.", "10.")), socket.gethostbyname("algo-2")
root = pathlib.Path("/opt/ml/processing")
names = sorted(path.name for path in (root / "in").iterdir())
print("splitting", names, sys.argv[1:], (root / "code/deps/word.txt").read_text(), flush=True)
for name in names:
    (root / "out" / f"{host}-{name}").write_text((root / "in" / name).read_text().upper())
    (root / "in" / name).write_text("inputs may be changed")
(root / "out/link").symlink_to("/etc/passwd")
pathlib.Path("/opt/ml/output/message").write_text(f"{host} is done. ")
"""
FAIL = """
import pathlib, sys
pathlib.Path("/opt/ml/processing/out/partial").write_text("half")
pathlib.Path("/opt/ml/output/message").write_bytes(b"no text: \\xff")
print("boom", file=sys.stderr)
sys.exit(3)
"""
WAIT = """
import pathlib, signal, sys, time
state = pathlib.Path("/opt/ml/processing/state")
signal.signal(signal.SIGTERM, lambda *_: sys.exit((state / "stopped").write_text("by SIGTERM") * 0))
(state / "step").write_text("1")
while True:
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Processes:
    """A user with a bucket, who runs processing jobs."""

    user: User

    @property
    def sagemaker(self) -> Any:
        return self.user.client("sagemaker")

    def create(self, name: str, script: str, *, inputs: Any = (), outputs: Any = (), **changed: Any) -> None:
        self.user.client("s3").put_object(Bucket="data", Key=f"{name}/run.py", Body=script.encode())
        command = ["python3", f"{ROOT}/code/run.py"]
        request = {
            "ProcessingJobName": name,
            "RoleArn": f"arn:aws:iam::{self.user.account}:role/TrainyardRole",
            "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": command, "ContainerArguments": ["--all"]},
            "ProcessingResources": {
                "ClusterConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 30}
            },
            "ProcessingInputs": [*inputs, source("code", f"s3://data/{name}/run.py", f"{ROOT}/code")],
            "ProcessingOutputConfig": {"Outputs": list(outputs)},
        }
        self.sagemaker.create_processing_job(**(request | changed))

    def describe(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.sagemaker.describe_processing_job(ProcessingJobName=name)
        return answer

    def end_of(self, name: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            told = self.describe(name)
            return told if told["ProcessingJobStatus"] in ENDED else None

        return eventually(look, within=timedelta(seconds=90)) or {}

    def lines(self, name: str) -> dict[str, list[str]]:
        """Return the lines of each log stream by the name of its instance."""
        logs = self.user.client("logs")
        streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
        found = {}
        for stream in (each["logStreamName"] for each in streams):
            page = logs.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True)
            found[stream.rpartition("/")[2][:6]] = [event["message"] for event in page["events"]]
        return found

    def stored(self, prefix: str) -> dict[str, str]:
        s3 = self.user.client("s3")
        keys = [each["Key"] for each in s3.list_objects_v2(Bucket="data", Prefix=prefix).get("Contents", ())]
        return {key.removeprefix(prefix): s3.get_object(Bucket="data", Key=key)["Body"].read().decode() for key in keys}


@pytest.fixture(scope="module")
def anna(administrator: User) -> Processes:
    user = Processes(administrator.add_user("processing-anna"))
    s3 = user.user.client("s3")
    s3.create_bucket(Bucket="data")
    for number in range(4):
        s3.put_object(Bucket="data", Key=f"in/{number}.txt", Body=b"line %d" % number)
    s3.put_object(Bucket="data", Key="deps/word.txt", Body=b"beside")
    return user


def source(name: str, uri: str, path: str, **changed: Any) -> dict[str, Any]:
    data = {"S3Uri": uri, "LocalPath": path, "S3DataType": "S3Prefix", "S3InputMode": "File", **changed}
    return {"InputName": name, "S3Input": data}


def output(uri: str, path: str, mode: str = "EndOfJob") -> dict[str, Any]:
    return {"OutputName": "out", "S3Output": {"S3Uri": uri, "LocalPath": path, "S3UploadMode": mode}}


@pytest.mark.flow
def test_a_processing_job_splits_its_data_over_two_instances_and_stores_what_they_write(anna: Processes) -> None:
    anna.create(
        "split",
        SPLIT,
        inputs=[
            source("data", "s3://data/in", f"{ROOT}/in", S3DataDistributionType="ShardedByS3Key"),
            # In the folder of the code, as SDKs bring dependencies, and before it.
            source("../deps", "s3://data/deps/word.txt", f"{ROOT}/code/deps"),
        ],
        outputs=[output("s3://data/split/out/", f"{ROOT}/out")],
        ProcessingResources={
            "ClusterConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 2, "VolumeSizeInGB": 30}
        },
    )
    told = anna.end_of("split")
    lines = anna.lines("split")
    assert told["ProcessingJobStatus"] == "Completed", (told, lines)
    assert told["ExitMessage"] == "algo-1 is done. algo-2 is done. "
    assert told["ProcessingStartTime"] < told["ProcessingEndTime"]
    assert "splitting ['0.txt', '2.txt'] ['--all'] beside" in lines["algo-1"]
    assert "splitting ['1.txt', '3.txt'] ['--all'] beside" in lines["algo-2"]
    # The link is not followed.
    written = {f"algo-{number % 2 + 1}-{number}.txt": f"LINE {number}" for number in range(4)}
    assert anna.stored("split/out/") == written
    assert anna.stored("in/") == {f"{number}.txt": f"line {number}" for number in range(4)}
    listed = anna.sagemaker.list_processing_jobs(NameContains="spl")["ProcessingJobSummaries"]
    assert [(each["ProcessingJobName"], each["ProcessingJobStatus"]) for each in listed] == [("split", "Completed")]


@pytest.mark.flow
def test_a_processing_job_that_fails_keeps_its_outputs_and_says_why(anna: Processes) -> None:
    anna.create("fail", FAIL, outputs=[output("s3://data/fail/out", f"{ROOT}/out")])
    told = anna.end_of("fail")
    assert told["ProcessingJobStatus"] == "Failed", told
    assert told["FailureReason"].startswith("AlgorithmError"), told
    assert "boom" in told["FailureReason"]
    assert "exit code: 3" in told["FailureReason"]
    assert told["ExitMessage"] == "no text: \N{REPLACEMENT CHARACTER}"
    assert anna.stored("fail/out/") == {"partial": "half"}


@pytest.mark.flow
def test_a_stopped_processing_job_has_stored_its_continuous_output_and_what_it_wrote_when_it_was_asked(
    anna: Processes,
) -> None:
    anna.create("wait", WAIT, outputs=[output("s3://data/wait/state", f"{ROOT}/state", "Continuous")])
    eventually(lambda: anna.stored("wait/state/") == {"step": "1"}, within=timedelta(seconds=90))
    assert anna.describe("wait")["ProcessingJobStatus"] == "InProgress"
    anna.sagemaker.stop_processing_job(ProcessingJobName="wait")
    told = anna.end_of("wait")
    assert told["ProcessingJobStatus"] == "Stopped", told
    assert anna.stored("wait/state/") == {"step": "1", "stopped": "by SIGTERM"}
    anna.sagemaker.delete_processing_job(ProcessingJobName="wait")
    assert anna.lines("wait") == {}


def test_a_processing_job_ends_at_its_time_limit(anna: Processes) -> None:
    outputs = [output("s3://data/late/state", f"{ROOT}/state")]
    anna.create("late", WAIT, outputs=outputs, StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert anna.end_of("late")["ProcessingJobStatus"] == "Stopped"
    assert anna.stored("late/state/") == {"step": "1", "stopped": "by SIGTERM"}
