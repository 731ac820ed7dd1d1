"""Experiments on a real yard: runs of scripts and of training jobs, and a yard that is killed in between."""

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard._sdk.connection import Access
from trainyard.analytics import ExperimentAnalytics
from trainyard.experiments import Experiment, Run, list_runs, load_run
from trainyard.session import Session
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard

PATIENCE = timedelta(seconds=90)

# Logs to the run that the job was started from, and to the component of the job itself.
LOGS = """
from smexperiments.tracker import Tracker
from trainyard.experiments import load_run

with load_run() as run:
    run.log_parameter("from_job", 1)
    for step in range(30):
        run.log_metric("accuracy", step / 30, step=step)

with Tracker.load() as tracker:
    tracker.log_parameters({"seed": 7})
    tracker.log_metric("tracked", 0.5, iteration_number=0)
print("loss=0.25;", flush=True)

# As smexperiments of AWS does in jobs.
import json, os
with open(os.environ["SAGEMAKER_METRICS_DIRECTORY"] + "/1.json", "a") as file:
    for step in range(5):
        file.write(json.dumps({"MetricName": "filed", "Value": step, "IterationNumber": step}) + "\\n")
"""
LOSS = {
    "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6-cpu-py312",
    "TrainingInputMode": "File",
    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*?);"}],
}


def session_of(yard: RunningYard, stack: ExitStack) -> Session:
    known = yard.credentials
    client = Access(yard.http, known.access_key_id, known.secret_access_key, known.region).client()
    stack.callback(client.close)
    return Session(api=client)


def trainee_of(yard: RunningYard) -> Trainee:
    known = yard.credentials
    return Trainee(
        User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    )


def metrics_of(run: Run) -> dict[str, Any]:
    return {each["MetricName"]: each for each in run.describe()["Metrics"]}


@pytest.mark.flow
def test_runs_of_scripts_and_jobs_are_recorded_compared_and_survive_a_kill(tmp_path: Path) -> None:
    yard, stack = start_yard(tmp_path / "yard"), ExitStack()
    try:
        session = session_of(yard, stack)
        experiment = Experiment("digits", description="small models", sagemaker_session=session)
        for number in range(2):
            with experiment.run(f"script-{number}", tags={"team": "vision"}) as run:
                run.log_parameters({"lr": 0.1 / (number + 1), "model": "mlp"})
                for step in range(50):
                    run.log_metric("loss", 1 / (step + 1 + number), step=step)
                run.log_confusion_matrix(["a", "b"], ["a", "a"], title="confusion")
        with pytest.raises(ZeroDivisionError), experiment.run("failing"):
            raise ZeroDivisionError("division")

        # What was acknowledged survives, and nothing counts twice.
        yard.kill()
        yard = start_yard(tmp_path / "yard")
        session = session_of(yard, stack)
        first = load_run("script-0", "digits", sagemaker_session=session)
        eventually(lambda: metrics_of(first).get("loss", {}).get("Count") == 50, within=PATIENCE)
        loss = metrics_of(first)["loss"]
        assert (loss["Min"], loss["Max"], loss["Last"]) == (0.02, 1.0, 0.02)
        told = first.describe()
        assert told["Status"]["PrimaryStatus"] == "Completed"
        assert "CommitId" in told["MetadataProperties"]
        assert told["Parameters"]["trainyard.python"]["StringValue"].startswith("3.")
        assert {"confusion"} == set(told["OutputArtifacts"])
        assert {"packages"} == set(told["InputArtifacts"])
        failing = load_run("failing", "digits", sagemaker_session=session).describe()["Status"]
        assert failing == {"PrimaryStatus": "Failed", "Message": "ZeroDivisionError: division"}

        trained = Run("digits", "job", sagemaker_session=session)
        trainee = trainee_of(yard).prepare()
        trainee.start("learns", LOGS, AlgorithmSpecification=LOSS, ExperimentConfig=trained.experiment_config)
        ended = trainee.reach("learns", "Completed", "Failed")
        assert ended["TrainingJobStatus"] == "Completed", "\n".join(trainee.lines("learns"))
        eventually(lambda: metrics_of(trained).get("accuracy", {}).get("Count") == 30, within=PATIENCE)
        assert trained.parameters["from_job"] == 1.0
        of_job = Run._of_component(session, "learns-aws-training-job")

        def is_complete() -> bool:
            found = of_job.describe()
            names = {each["MetricName"] for each in found["Metrics"]}
            return found["Status"]["PrimaryStatus"] == "Completed" and names == {"loss", "tracked", "filed"}

        eventually(is_complete, within=PATIENCE)
        assert of_job.parameters["seed"] == 7.0
        assert metrics_of(of_job)["filed"]["Count"] == 5

        table = ExperimentAnalytics("digits", sagemaker_session=session, sort_by="metrics.loss.min").records()
        assert [each["TrialComponentName"] for each in table][:2] == ["learns-aws-training-job", "digits-script-0"]
        assert {each.run_name for each in list_runs("digits", sagemaker_session=session)} == {
            "script-0",
            "script-1",
            "failing",
            "job",
        }
        experiment = Experiment("digits", sagemaker_session=session)
        experiment.delete()
        assert session.api.call("sagemaker", "ListExperiments")["ExperimentSummaries"] == []
    finally:
        stack.close()
        yard.stop()
