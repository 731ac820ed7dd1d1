"""Experiments with the sagemaker SDK's Run and with smexperiments, outside jobs and in one."""

import tempfile
import time
import uuid
from pathlib import Path

import boto3
import sagemaker
from sagemaker.analytics import ExperimentAnalytics
from sagemaker.experiments import Run, list_runs, load_run
from sagemaker.pytorch import PyTorch
from smexperiments.experiment import Experiment
from smexperiments.tracker import Tracker
from smexperiments.trial import Trial
from smexperiments.trial_component import TrialComponent

SCRIPT = """
from smexperiments.tracker import Tracker

with Tracker.load() as tracker:
    tracker.log_parameter("seed", 7)
open("/opt/ml/model/weights", "w").write("w")
print("loss=0.25;", flush=True)
"""


def main() -> None:
    session = sagemaker.Session()
    name = f"digits-{uuid.uuid4().hex[:6]}"
    log_runs(session, name)
    train_in_a_run(session, name)
    track_components(f"old-{name}")


def log_runs(session: sagemaker.Session, name: str) -> None:
    for number in range(2):
        with Run(experiment_name=name, run_name=f"run-{number}", sagemaker_session=session) as run:
            run.log_parameter("lr", 0.1 * (number + 1))
            run.log_parameters({"model": "mlp", "layers": 3})
            for step in range(25):
                run.log_metric(name="loss", value=1 / (step + 1), step=step)
    with load_run(experiment_name=name, run_name="run-0", sagemaker_session=session) as again:
        again.log_parameter("more", "text")
    assert sorted(run.run_name for run in list_runs(name, sagemaker_session=session)) == ["run-0", "run-1"]
    wait_for_metric(session, f"{name}-run-1", "loss", 25)
    table = ExperimentAnalytics(
        experiment_name=name,
        sagemaker_session=session,
        sort_by="metrics.loss.min",
        sort_order="Ascending",
        metric_names=["loss"],
        parameter_names=["lr", "more", "model"],
    ).dataframe()
    assert sorted(table["TrialComponentName"]) == [f"{name}-run-0", f"{name}-run-1"], table
    assert sorted(table["lr"]) == [0.1, 0.2], table
    assert list(table["loss - Last"]) == [0.04, 0.04], table
    assert list(table["loss - Count"]) == [25, 25], table


def train_in_a_run(session: sagemaker.Session, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)
        with Run(experiment_name=name, run_name="trained", sagemaker_session=session) as run:
            job = PyTorch(
                entry_point="train.py",
                source_dir=folder,
                role=sagemaker.get_execution_role(session),
                framework_version="1.13.1",
                py_version="py39",
                instance_count=1,
                instance_type="ml.m5.large",
                metric_definitions=[{"Name": "loss", "Regex": "loss=(.*?);"}],
                hyperparameters={"epochs": 3},
                sagemaker_session=session,
            )
            job.fit(experiment_config=run.experiment_config, logs="None")
    component = f"{job.latest_training_job.name}-aws-training-job"
    wait_for_metric(session, component, "loss", 1)
    found = session.sagemaker_client.describe_trial_component(TrialComponentName=component)
    assert found["Status"]["PrimaryStatus"] == "Completed", found
    assert found["Parameters"]["seed"] == {"NumberValue": 7.0}, found
    assert found["Parameters"]["epochs"] == {"NumberValue": 3.0}, found
    assert found["OutputArtifacts"]["SageMaker.ModelArtifact"]["Value"] == job.model_data, found


def wait_for_metric(session: sagemaker.Session, component: str, metric: str, count: int) -> None:
    found = {}
    for _ in range(240):
        found = session.sagemaker_client.describe_trial_component(TrialComponentName=component)
        if any(each["MetricName"] == metric and each["Count"] == count for each in found["Metrics"]):
            return
        time.sleep(0.25)
    raise AssertionError(found)


def track_components(name: str) -> None:
    client = boto3.client("sagemaker")
    experiment = Experiment.create(name, description="old", sagemaker_boto_client=client)
    trial = Trial.create(experiment.experiment_name, f"{name}-trial", sagemaker_boto_client=client)
    with Tracker.create(display_name="prepare", sagemaker_boto_client=client) as tracker:
        tracker.log_parameters({"max_seq_length": 64, "kind": "text"})
        tracker.log_input("data", "s3://data/train", "text/csv")
    trial.add_trial_component(tracker.trial_component)
    [listed] = list(trial.list_trial_components())
    loaded = TrialComponent.load(listed.trial_component_name, sagemaker_boto_client=client)
    assert loaded.parameters == {"max_seq_length": 64.0, "kind": "text"}, loaded
    assert loaded.input_artifacts["data"].value == "s3://data/train", loaded
    assert loaded.status.primary_status == "Completed", loaded
    experiment.delete_all(action="--force")
    assert name not in [each.experiment_name for each in Experiment.list(sagemaker_boto_client=client)]


if __name__ == "__main__":
    main()
