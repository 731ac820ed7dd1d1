"""Training jobs on a yard, created and followed as a client does."""

import io
import itertools
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard._sdk.connection import find_yard
from trainyard.testing.yard import RunningYard, running_yard

SCRIPTS = Path(__file__).parent / "scripts"
BUCKET = "benchmark"
IMAGE = "pytorch-training:2.13"
GROUP = "/aws/sagemaker/TrainingJobs"


@contextmanager
def open_jobs(folder: Path, *, python: Path, settings: Mapping[str, str] | None = None) -> Iterator["Jobs"]:
    """Run a yard whose jobs use this Python, for the length of a block."""
    variables = {f"TRAINYARD_SERVER_{name.upper()}": value for name, value in (settings or {}).items()}
    with running_yard(folder, environment=variables) as yard:
        yard.home.images_file.write_text(f'[images]\n"pytorch-training" = "{python}"\n')
        yield Jobs(yard)


class Jobs:
    """The jobs of a yard's administrator, with one bucket for their code and their models."""

    def __init__(self, yard: RunningYard) -> None:
        self.yard = yard
        self.client = find_yard(yard.home).client()
        self._numbers = itertools.count(1)
        self.client.call("s3", "CreateBucket", Bucket=BUCKET)

    def upload(self, script: Path) -> str:
        """Upload a script, packed as the SDKs do, and return its location."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(script, script.name)
        self.client.call("s3", "PutObject", Bucket=BUCKET, Key=f"{script.stem}.tar.gz", Body=packed.getvalue())
        return f"s3://{BUCKET}/{script.stem}.tar.gz"

    def create(
        self,
        script: Path,
        code: str,
        *,
        arguments: Mapping[str, str] | None = None,
        metrics: Sequence[Any] = (),
        is_isolated: bool = False,
        instances: int = 1,
    ) -> str:
        """Create a job and return its name as soon as the call returns."""
        name = f"{script.stem.replace('_', '-')}-{next(self._numbers)}"
        hyperparameters = {"sagemaker_program": f'"{script.name}"', "sagemaker_submit_directory": f'"{code}"'}
        self.client.call(
            "sagemaker",
            "CreateTrainingJob",
            TrainingJobName=name,
            RoleArn=f"arn:aws:iam::{self.yard.credentials.account}:role/{self.yard.credentials.role}",
            AlgorithmSpecification={
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                **({"MetricDefinitions": metrics} if metrics else {}),
            },
            HyperParameters=hyperparameters | dict(arguments or {}),
            OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
            EnableNetworkIsolation=is_isolated,
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
        )
        return name

    def describe(self, name: str) -> dict[str, Any]:
        return self.client.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)

    def finish(self, name: str) -> dict[str, Any]:
        """Wait until a job has completed; any other end is an error."""
        with self.client.stream("trainyard", "FollowJob", TrainingJobName=name, Logs=False) as lines:
            for _ in lines:
                pass
        told = self.describe(name)
        assert told["TrainingJobStatus"] == "Completed", f"{name}: {told.get('FailureReason')}\n{self.lines(name)}"
        return told

    def lines(self, name: str) -> list[str]:
        """Return the first line of each instance of a job, in order."""
        streams = self.client.call("logs", "DescribeLogStreams", logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
        pages = [
            self.client.call(
                "logs", "GetLogEvents", logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
            )
            for stream in streams["logStreams"]
        ]
        return [event["message"] for page in pages for event in page["events"]]
