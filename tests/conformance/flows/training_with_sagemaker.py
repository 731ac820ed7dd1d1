"""Training with the sagemaker SDK after `trainyard connect`: jobs that complete, fail, and are stopped."""

import contextlib
import io
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import sagemaker
from sagemaker.analytics import TrainingJobAnalytics
from sagemaker.exceptions import UnexpectedStatusException
from sagemaker.pytorch import PyTorch

SCRIPT = """
import argparse, os, time

parser = argparse.ArgumentParser()
parser.add_argument("--mode")
mode = parser.parse_args().mode
with open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "numbers.csv")) as file:
    numbers = [float(number) for number in file.read().split(",")]
for epoch in range(1, 4):
    print(f"epoch {epoch} loss={sum(numbers) / epoch}", flush=True)
if mode == "fail":
    raise ValueError("the numbers do not add up")
if mode == "wait":
    time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.txt"), "w") as file:
    file.write(str(sum(numbers)))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)
        (Path(folder) / "numbers.csv").write_text("1,2,3")
        session = sagemaker.Session()
        data = session.upload_data(str(Path(folder) / "numbers.csv"), key_prefix="numbers")
        completes(session, folder, data=data)
        fails(session, folder, data=data)
        stops(session, folder, data=data)


def completes(session: sagemaker.Session, folder: str, *, data: str) -> None:
    job = estimator(session, folder, mode="finish")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        job.fit({"train": data})
    assert "epoch 3 loss=2.0" in shown.getvalue()
    assert "Training seconds:" in shown.getvalue()
    assert weights(session, job.model_data) == "6.0"
    name = job.latest_training_job.name
    assert PyTorch.attach(name, sagemaker_session=session).model_data == job.model_data
    final = session.describe_training_job(name)["FinalMetricDataList"]
    assert [(metric["MetricName"], metric["Value"]) for metric in final] == [("loss", 2.0)]
    table = TrainingJobAnalytics(name, metric_names=["loss"], sagemaker_session=session).dataframe()
    assert len(table) > 0


def fails(session: sagemaker.Session, folder: str, *, data: str) -> None:
    job = estimator(session, folder, mode="fail")
    reason = ""
    try:
        job.fit({"train": data}, logs="None")
    except UnexpectedStatusException as error:
        reason = str(error)
    assert "the numbers do not add up" in reason


def stops(session: sagemaker.Session, folder: str, *, data: str) -> None:
    job = estimator(session, folder, mode="wait")
    job.fit({"train": data}, wait=False)
    name = job.latest_training_job.name
    wait_for(session, name, "Training", member="SecondaryStatus")
    session.stop_training_job(name)
    wait_for(session, name, "Stopped", member="TrainingJobStatus")


def estimator(session: sagemaker.Session, folder: str, *, mode: str) -> Any:
    return PyTorch(
        entry_point="train.py",
        source_dir=folder,
        role=sagemaker.get_execution_role(session),
        framework_version="2.8.0",
        py_version="py312",
        instance_count=1,
        instance_type="ml.m5.large",
        hyperparameters={"mode": mode},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        sagemaker_session=session,
    )


def weights(session: sagemaker.Session, location: str) -> str:
    bucket, _, key = location.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory() as folder:
        session.download_data(folder, bucket, key)
        with tarfile.open(Path(folder) / "model.tar.gz") as archive:
            member = archive.extractfile("weights.txt")
            assert member is not None
            return member.read().decode()


def wait_for(session: sagemaker.Session, name: str, wanted: str, *, member: str) -> None:
    deadline = time.monotonic() + 60
    while session.describe_training_job(name)[member] != wanted:
        assert time.monotonic() < deadline, f"{name} never became {wanted}"
        time.sleep(0.2)


main()
