"""Training jobs of one user on a real yard, through boto3."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.system.fuzz.world import User
from trainyard.testing.eventually import eventually

GROUP = "/aws/sagemaker/TrainingJobs"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6-cpu-py312"
ENDED = ("Completed", "Failed", "Stopped")
# Of a job that runs until a test stops it or its yard ends, however slow the machine is.
UNTIL_STOPPED = {"StoppingCondition": {"MaxRuntimeInSeconds": 86_400}}


@dataclass(frozen=True)
class Trainee:
    """A user with a bucket, who runs training jobs."""

    user: User
    bucket: str = "data"
    role: str = "TrainyardRole"

    @property
    def sagemaker(self) -> Any:
        return self.user.client("sagemaker")

    def prepare(self) -> "Trainee":
        s3 = self.user.client("s3")
        s3.create_bucket(Bucket=self.bucket)
        for key in ("train/a.csv", "train/deep/b.csv"):
            s3.put_object(Bucket=self.bucket, Key=key, Body=b"1,2,3\n")
        return self

    def request(self, name: str, script: str, **changed: Any) -> dict[str, Any]:
        """Upload a script as the SDK does, and return the request that runs it."""
        key = f"{name}/source/sourcedir.tar.gz"
        self.user.client("s3").put_object(Bucket=self.bucket, Key=key, Body=packed({"train.py": script}))
        shape = {
            "TrainingJobName": name,
            "RoleArn": f"arn:aws:iam::{self.user.account}:role/{self.role}",
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "HyperParameters": {
                "sagemaker_program": '"train.py"',
                "sagemaker_submit_directory": f'"s3://{self.bucket}/{key}"',
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 300},
        }
        return shape | changed

    def start(self, name: str, script: str, **changed: Any) -> None:
        self.sagemaker.create_training_job(**self.request(name, script, **changed))

    def describe(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return answer

    def reach(self, name: str, *statuses: str, within_s: float = 90) -> dict[str, Any]:
        """Wait until the job has one of these primary or secondary statuses."""

        def look() -> dict[str, Any] | None:
            told = self.describe(name)
            return told if {told["TrainingJobStatus"], told["SecondaryStatus"]} & set(statuses) else None

        try:
            return eventually(look, within=timedelta(seconds=within_s)) or {}
        except AssertionError as error:
            raise AssertionError(f"{name} {error}: {self.describe(name)}; its log: {self.lines(name)[-5:]}") from error

    def run(self, name: str, script: str, **changed: Any) -> dict[str, Any]:
        """Run a job to its end and return its description."""
        self.start(name, script, **changed)
        return self.reach(name, *ENDED)

    def streams(self, name: str) -> list[str]:
        logs = self.user.client("logs")
        try:
            found = logs.describe_log_streams(
                logGroupName=GROUP, logStreamNamePrefix=f"{name}/", orderBy="LogStreamName"
            )
        # The log group does not exist until the first job of a user has started.
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [stream["logStreamName"] for stream in found["logStreams"]]

    def lines(self, name: str, *, instance: int = 0) -> list[str]:
        """Return the log of an instance so far."""
        streams = self.streams(name)
        if len(streams) <= instance:
            return []
        page = self.user.client("logs").get_log_events(
            logGroupName=GROUP, logStreamName=streams[instance], startFromHead=True
        )
        return [event["message"] for event in page["events"]]

    def await_line(self, name: str, line: str) -> None:
        """Wait until the first instance has printed a line. Raise an AssertionError if the job ends first."""

        def look() -> bool:
            told = self.describe(name)
            is_there = line in self.lines(name)
            assert is_there or told["TrainingJobStatus"] not in ENDED, (told, self.lines(name)[-5:])
            return is_there

        eventually(look, within=timedelta(seconds=90))

    def printed(self, name: str, *, instance: int = 0) -> list[str]:
        """Return the output of the program of an instance so far, without the lines of its agent."""
        return [line for line in self.lines(name, instance=instance) if not line.startswith("[trainyard] ")]

    def keys(self, prefix: str) -> list[str]:
        found = self.user.client("s3").list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    def archive(self, key: str) -> dict[str, bytes | None]:
        """Return the entries of a stored tar.gz by name; None for entries that are not files."""
        body = self.user.client("s3").get_object(Bucket=self.bucket, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            files = {entry.name: archive.extractfile(entry) if entry.isfile() else None for entry in archive}
            return {name: None if file is None else file.read() for name, file in files.items()}


def packed(files: Mapping[str, str | bytes]) -> bytes:
    """Return a tar.gz of text or binary files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
