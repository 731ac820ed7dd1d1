"""Features of the sagemaker SDK alone: metrics as a table, the profiler turned off and on, warm pools, image names."""

import contextlib
import io
import tempfile
import time
from pathlib import Path
from typing import Any

import sagemaker
from sagemaker.analytics import TrainingJobAnalytics
from sagemaker.pytorch import PyTorch

TRAIN = """
import os, time
for step in range(3):
    print(f"loss={3.0 - step}; accuracy={step / 4};", flush=True)
while not os.path.exists("/tmp/never"):
    time.sleep(0.1)
"""
SHORT = TRAIN.partition("while")[0]


def main() -> None:
    session = sagemaker.Session()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("train.py", TRAIN), ("short.py", SHORT)):
            (Path(folder) / name).write_text(text)
        reports_metrics(session, folder)
        updates_the_profiler(session, folder)
        updates_the_warm_pool(session, folder)
    names_images(session)


def reports_metrics(session: sagemaker.Session, folder: str) -> None:
    job = estimator(session, folder, script="short.py")
    job.fit(logs="None")
    table = job.training_job_analytics.dataframe()
    assert set(table["metric_name"]) == {"loss", "accuracy"}
    assert all(3.0 >= value >= 1.0 for value in table[table["metric_name"] == "loss"]["value"])
    one = TrainingJobAnalytics(job.latest_training_job.name, metric_names=["accuracy"], sagemaker_session=session)
    assert list(one.dataframe()["metric_name"].unique()) == ["accuracy"]
    assert list(table.columns) == ["timestamp", "metric_name", "value"]


def updates_the_profiler(session: sagemaker.Session, folder: str) -> None:
    job = estimator(session, folder, script="train.py")
    job.fit(wait=False)
    name = job.latest_training_job.name
    wait_for(session, name, "Training")
    job.disable_profiling()
    described = session.describe_training_job(name)
    assert described["ProfilingStatus"] == "Disabled"
    assert described["ProfilerConfig"]["DisableProfiler"] is True
    job.update_profiler(system_monitor_interval_millis=1000)
    described = session.describe_training_job(name)
    assert described["ProfilingStatus"] == "Enabled"
    assert described["ProfilerConfig"]["ProfilingIntervalInMilliseconds"] == 1000
    session.stop_training_job(name)
    wait_for(session, name, "Stopped")


def updates_the_warm_pool(session: sagemaker.Session, folder: str) -> None:
    job = estimator(session, folder, script="short.py", keep_alive_period_in_seconds=300)
    job.fit(logs="None")
    name = job.latest_training_job.name
    assert session.describe_training_job(name)["WarmPoolStatus"]["Status"] == "Available"
    session.update_training_job(name, resource_config={"KeepAlivePeriodInSeconds": 0})
    deadline = time.monotonic() + 30
    while session.describe_training_job(name)["WarmPoolStatus"]["Status"] != "Terminated":
        assert time.monotonic() < deadline, "the warm pool never ended"
        time.sleep(0.2)


def names_images(session: sagemaker.Session) -> None:
    """Whatever Python a framework version shipped with, its image name maps to an environment of the yard."""
    images = [
        sagemaker.image_uris.retrieve(
            framework, session.boto_region_name, version, instance_type=kind, image_scope="training", py_version=python
        )
        for framework, version, python in (
            ("pytorch", "1.9", "py38"),
            ("pytorch", "1.13", "py39"),
            ("tensorflow", "2.11", "py39"),
        )
        for kind in ("ml.m5.large", "ml.p3.2xlarge")
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text("print('ran')")
        for image in images:
            job = sagemaker.estimator.Estimator(
                image,
                sagemaker.get_execution_role(session),
                1,
                "ml.m5.large",
                entry_point="train.py",
                source_dir=folder,
                sagemaker_session=session,
            )
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                job.fit(wait=False)
                job.logs()
            assert "ran" in shown.getvalue(), image


def estimator(session: sagemaker.Session, folder: str, *, script: str, **options: Any) -> Any:
    metrics = [{"Name": "loss", "Regex": "loss=(.*?);"}, {"Name": "accuracy", "Regex": "accuracy=(.*?);"}]
    return PyTorch(
        entry_point=script,
        source_dir=folder,
        role=sagemaker.get_execution_role(session),
        framework_version="1.13.1",
        py_version="py39",
        instance_count=1,
        instance_type="ml.m5.large",
        metric_definitions=metrics,
        sagemaker_session=session,
        **options,
    )


def wait_for(session: sagemaker.Session, name: str, wanted: str) -> None:
    deadline = time.monotonic() + 60
    while (now := session.describe_training_job(name)["SecondaryStatus"]) != wanted:
        assert time.monotonic() < deadline, f"it is {now} and never became {wanted}"
        time.sleep(0.2)


main()
