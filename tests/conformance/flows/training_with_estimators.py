"""Training with estimators. Its argument is their package: sagemaker or trainyard.

The same code runs with either; with sagemaker, after `trainyard connect`.
"""

import contextlib
import importlib
import io
import json
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAIN = """
import argparse, json, os, sys, time
import beside

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="finish")
parser.add_argument("--steps", type=int, default=1)
options = parser.parse_args()
folders = {name: os.environ["SM_CHANNEL_" + name.upper()] for name in json.loads(os.environ["SM_CHANNELS"])}
channels = {name: sorted(os.listdir(folder)) for name, folder in folders.items()}
print("seen", json.dumps({"channels": channels, "greeting": os.environ.get("GREETING"), "beside": beside.WORD}))
for step in range(options.steps):
    print(f"loss={1 / (step + 1)};", flush=True)
if options.mode == "fail":
    raise ValueError("the numbers do not add up")
if options.mode == "wait":
    time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.txt"), "w") as file:
    file.write("0.5")
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "report.txt"), "w") as file:
    file.write("fine")
"""


@dataclass(frozen=True, slots=True)
class Kit:
    """The package under test, and where the script and the data are."""

    package: str
    session: Any
    role: str
    source: str
    data: str

    def of(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package}.{module}"), name)

    @property
    def bucket(self) -> str:
        return str(self.session.default_bucket())

    def estimator(self, kind: str, **options: Any) -> Any:
        """Return a framework estimator, or the generic one for any image."""
        versions = {"framework_version": "1.13.1", "py_version": "py39"}
        common = {
            "role": self.role,
            "instance_count": 1,
            "instance_type": "ml.m5.large",
            "sagemaker_session": self.session,
        }
        script = {"entry_point": "train.py", "source_dir": self.source}
        if kind == "PyTorch":
            return self.of("pytorch", "PyTorch")(**(versions | common | script | options))
        retrieve = importlib.import_module(f"{self.package}.image_uris").retrieve
        image = retrieve("pytorch", "us-east-1", "1.13.1", "py39", "ml.m5.large", image_scope="training")
        return self.of("estimator", "Estimator")(image, **(common | script | options))


def main(package: str) -> None:
    root = importlib.import_module(package)
    session = root.Session()
    with tempfile.TemporaryDirectory() as folder:
        source, data = Path(folder, "source"), Path(folder, "data")
        for directory in (source, data):
            directory.mkdir()
        (source / "train.py").write_text(TRAIN)
        (Path(folder) / "beside.py").write_text("WORD = 'brought'")
        (data / "a.csv").write_text("1,2")
        (data / "b.csv").write_text("3,4")
        location = session.upload_data(str(data), key_prefix=f"data-{uuid.uuid4().hex[:8]}")
        kit = Kit(package, session, root.get_execution_role(session), str(source), location)
        for flow in (every_option, one_input, no_input, isolated, fails, stops, follows_a_session, stays_warm):
            print(flow.__name__, flush=True)
            flow(kit, [str(Path(folder) / "beside.py")])


def every_option(kit: Kit, brought: list[str]) -> None:
    """A generic estimator with every option that a job can have here, attached again by name."""
    prefix = f"s3://{kit.bucket}/every-option"
    job = kit.estimator(
        "Estimator",
        dependencies=brought,
        hyperparameters={"steps": 3},
        environment={"GREETING": "hello"},
        tags=[{"Key": "team", "Value": "blue"}],
        output_path=f"{prefix}/out",
        code_location=f"{prefix}/code",
        base_job_name="every-option",
        max_run=600,
        metric_definitions=[{"Name": "loss", "Regex": "loss=(.*?);"}],
    )
    train = kit.of("inputs", "TrainingInput")(kit.data, distribution="FullyReplicated", content_type="text/csv")
    job.fit({"train": train, "validation": f"{kit.data}/a.csv"}, wait=False)
    shown = said(job.logs)
    name = job.latest_training_job.name
    assert name.startswith("every-option-")
    seen = json.loads(next(line for line in shown.splitlines() if "seen {" in line).partition("seen ")[2])
    assert seen["channels"] == {"train": ["a.csv", "b.csv"], "validation": ["a.csv"]}, seen
    assert (seen["greeting"], seen["beside"]) == ("hello", "brought")
    described = job.latest_training_job.describe()
    assert described["Environment"] == {"GREETING": "hello"}
    assert described["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert described["HyperParameters"]["sagemaker_submit_directory"].startswith(f'"{prefix}/code/{name}/')
    assert {metric["MetricName"]: round(metric["Value"], 2) for metric in described["FinalMetricDataList"]} == {
        "loss": 0.33
    }
    assert job.model_data == f"{prefix}/out/{name}/output/model.tar.gz"
    assert archived(kit, job.model_data) == {"weights.txt": "0.5"}
    assert archived(kit, f"{prefix}/out/{name}/output/output.tar.gz") == {"report.txt": "fine"}
    found = kit.of("estimator", "Estimator").attach(name, sagemaker_session=kit.session)
    assert (found.model_data, found.instance_type, found.max_run) == (job.model_data, "ml.m5.large", 600)
    assert {tag["Key"]: tag["Value"] for tag in found.tags}["team"] == "blue"
    assert "seen {" in said(found.logs)


def one_input(kit: Kit, brought: list[str]) -> None:
    """A location alone becomes the channel training."""
    job = kit.estimator("PyTorch", dependencies=brought)
    shown = said(lambda: job.fit(kit.data))
    assert '"channels": {"training": ["a.csv", "b.csv"]}' in shown, shown
    assert "Training" in shown
    found = kit.of("pytorch", "PyTorch").attach(job.latest_training_job.name, sagemaker_session=kit.session)
    assert (found.model_data, found.entry_point) == (job.model_data, "train.py")
    single = kit.estimator("PyTorch", dependencies=brought)
    single.fit(kit.of("inputs", "TrainingInput")(f"{kit.data}/b.csv"), logs=False)
    assert '"channels": {"training": ["b.csv"]}' in said(single.logs)


def no_input(kit: Kit, brought: list[str]) -> None:
    job = kit.estimator("PyTorch", dependencies=brought)
    job.fit(logs=False)
    assert '"channels": {}' in said(job.logs)


def isolated(kit: Kit, brought: list[str]) -> None:
    """An isolated job gets its code through a channel."""
    job = kit.estimator("PyTorch", dependencies=brought, enable_network_isolation=True, instance_count=2)
    job.fit({"train": kit.data}, logs=False)
    assert job.latest_training_job.describe()["EnableNetworkIsolation"] is True
    shown = said(job.logs)
    assert '"channels": {"code": ["sourcedir.tar.gz"], "train": ["a.csv", "b.csv"]}' in shown, shown


def fails(kit: Kit, brought: list[str]) -> None:
    job = kit.estimator("PyTorch", dependencies=brought, hyperparameters={"mode": "fail"})
    failure = kit.of("exceptions", "UnexpectedStatusException")
    reason = status = ""
    try:
        job.fit(logs=False)
    except failure as error:
        reason, status = str(error), error.actual_status
    assert status == "Failed"
    assert "ValueError: the numbers do not add up" in reason, reason
    described = job.latest_training_job.describe()
    assert described["TrainingJobStatus"] == "Failed"
    assert "train.py, line" in described["FailureReason"]


def stops(kit: Kit, brought: list[str]) -> None:
    job = kit.estimator("PyTorch", dependencies=brought, hyperparameters={"mode": "wait"})
    job.fit(wait=False)
    await_status(kit, job, "Training", member="SecondaryStatus")
    job.latest_training_job.stop()
    await_status(kit, job, "Stopped", member="TrainingJobStatus")


def follows_a_session(kit: Kit, brought: list[str]) -> None:
    """Jobs by name, as programs without an estimator handle them."""
    job = kit.estimator("PyTorch", dependencies=brought)
    job.fit(wait=False)
    name = job.latest_training_job.name
    described = kit.session.wait_for_job(name)
    assert described["TrainingJobStatus"] == "Completed"
    assert kit.session.describe_training_job(name)["ModelArtifacts"]["S3ModelArtifacts"] == job.model_data
    assert "seen {" in said(lambda: kit.session.logs_for_job(name, wait=True))
    waiting = kit.estimator("PyTorch", dependencies=brought, hyperparameters={"mode": "wait"})
    waiting.fit(wait=False)
    kit.session.stop_training_job(waiting.latest_training_job.name)
    await_status(kit, waiting, "Stopped", member="TrainingJobStatus")


def stays_warm(kit: Kit, brought: list[str]) -> None:
    """A job can request retries if its instance is lost, and a warm instance afterwards."""
    job = kit.estimator("PyTorch", dependencies=brought, keep_alive_period_in_seconds=120, max_retry_attempts=2)
    job.fit(logs=False)
    described = job.latest_training_job.describe()
    assert described["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 120
    assert described["RetryStrategy"] == {"MaximumRetryAttempts": 2}
    assert described["WarmPoolStatus"]["Status"] in ("Available", "InUse", "Reused"), described["WarmPoolStatus"]


def said(call: Callable[[], Any]) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        call()
    return shown.getvalue()


def archived(kit: Kit, uri: str) -> dict[str, str]:
    """Return the files in an archive on S3."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory() as folder:
        kit.session.download_data(folder, bucket, key)
        with tarfile.open(Path(folder) / Path(key).name) as archive:
            files = {entry.name.removeprefix("./"): archive.extractfile(entry) for entry in archive}
            return {name: file.read().decode() for name, file in files.items() if file is not None}


def await_status(kit: Kit, job: Any, wanted: str, *, member: str) -> None:
    deadline = time.monotonic() + 60
    while (now := kit.session.describe_training_job(job.latest_training_job.name)[member]) != wanted:
        assert time.monotonic() < deadline, f"it is {now} and never became {wanted}"
        time.sleep(0.2)


main(sys.argv[1])
