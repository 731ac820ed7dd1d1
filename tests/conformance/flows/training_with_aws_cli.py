"""Training commands that people type: aws sagemaker create-training-job, wait, describe, list, stop, and the log."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import Any

# Not through its shebang line, which breaks if the path to Python contains a space.
AWS = (sys.executable, Path(sys.executable).with_name("aws"))
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
RUN = uuid.uuid4().hex[:8]
TRAIN = (
    "import os\nprint('loss=0.25')\nopen(os.path.join(os.environ['SM_MODEL_DIR'], 'weights.txt'), 'w').write('0.5')\n"
)


def main() -> None:
    account = parsed("sts", "get-caller-identity")
    role = f"arn:aws:iam::{account['Account']}:role/{account['Arn'].split('/')[1]}"
    bucket, name = f"cli-training-{RUN}", f"typed-{RUN}"
    with tempfile.TemporaryDirectory() as folder:
        aws("s3", "mb", f"s3://{bucket}")
        code = Path(folder) / "sourcedir.tar.gz"
        code.write_bytes(packed("train.py", TRAIN))
        aws("s3", "cp", code, f"s3://{bucket}/code/sourcedir.tar.gz")
        create(name, bucket, role)
        job = ended(name)
        assert job["TrainingJobStatus"] == "Completed", job
        aws("s3", "cp", job["ModelArtifacts"]["S3ModelArtifacts"], Path(folder) / "model.tar.gz")
        with tarfile.open(Path(folder) / "model.tar.gz") as archive:
            assert "weights.txt" in [entry.removeprefix("./") for entry in archive.getnames()]
    told(name)
    ends(f"slow-{RUN}", bucket, role)


def create(name: str, bucket: str, role: str, *more: str) -> None:
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": metrics}
    script = ("sagemaker_program=train.py", f"sagemaker_submit_directory=s3://{bucket}/code/sourcedir.tar.gz")
    aws(
        *("sagemaker", "create-training-job", "--training-job-name", name, "--role-arn", role),
        *("--algorithm-specification", json.dumps(algorithm)),
        *(more or ("--hyper-parameters", ",".join(script))),
        *("--output-data-config", f"S3OutputPath=s3://{bucket}/out"),
        *("--resource-config", "InstanceType=ml.m5.large,InstanceCount=1,VolumeSizeInGB=10"),
        *("--stopping-condition", "MaxRuntimeInSeconds=300"),
    )


def ended(name: str) -> Any:
    """Wait for the end. The CLI's own waiter polls every two minutes; this polls often."""
    for _ in range(90):
        job = parsed("sagemaker", "describe-training-job", "--training-job-name", name)
        if job["TrainingJobStatus"] not in ("InProgress", "Stopping"):
            aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)
            return job
    raise AssertionError(f"{name} did not end")


def told(name: str) -> None:
    listed = parsed("sagemaker", "list-training-jobs", "--name-contains", RUN, "--status-equals", "Completed")
    assert [job["TrainingJobName"] for job in listed["TrainingJobSummaries"]] == [name]
    group = ("--log-group-name", "/aws/sagemaker/TrainingJobs")
    (stream,) = parsed("logs", "describe-log-streams", *group, "--log-stream-name-prefix", f"{name}/")["logStreams"]
    read = parsed("logs", "get-log-events", *group, "--log-stream-name", stream["logStreamName"], "--start-from-head")
    assert "loss=0.25" in [event["message"] for event in read["events"]]
    filters = json.dumps([{"Name": "TrainingJobName", "Operator": "Equals", "Value": name}])
    found = parsed(
        "sagemaker", "search", "--resource", "TrainingJob", "--search-expression", f'{{"Filters": {filters}}}'
    )
    assert [each["TrainingJob"]["FinalMetricDataList"][0]["Value"] for each in found["Results"]] == [0.25]


def ends(name: str, bucket: str, role: str) -> None:
    """A job that would take minutes is stopped and deleted."""
    metrics: list[str] = []
    algorithm = {
        "TrainingImage": IMAGE,
        "TrainingInputMode": "File",
        "MetricDefinitions": metrics,
        "ContainerEntrypoint": ["sleep", "600"],
    }
    create(name, bucket, role, "--algorithm-specification", json.dumps(algorithm))
    aws("sagemaker", "stop-training-job", "--training-job-name", name)
    assert ended(name)["TrainingJobStatus"] == "Stopped"
    aws("sagemaker", "delete-training-job", "--training-job-name", name)
    listed = parsed("sagemaker", "list-training-jobs", "--name-contains", name)
    assert listed["TrainingJobSummaries"] == []


def packed(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def parsed(*arguments: str | Path) -> Any:
    return json.loads(aws(*arguments))


def aws(*arguments: str | Path) -> str:
    run = subprocess.run([*AWS, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"aws {arguments}: {run.stderr}{run.stdout}"
    return run.stdout


main()
