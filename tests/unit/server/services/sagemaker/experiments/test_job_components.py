"""The components that training jobs make by themselves, in the experiment that they name or in none."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import channel, create, prepare
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import Artifact, TrainingJob
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.control.experiments.job_components import METRICS_INTERVAL, JobComponentKind
from trainyard.server.jobs.training import KIND, change_to, events_of, job_of
from trainyard.server.records.contract import Claim, ResourceKey
from trainyard.wire.fault import Fault

S = SecondaryStatus


@pytest.fixture
def anna(anna: As) -> As:
    """Return a user whose yard makes components from now on, with the trial `first` of the experiment `tune`."""
    run(anna)
    anna("sagemaker", "CreateExperiment", ExperimentName="Tune")
    anna("sagemaker", "CreateTrial", TrialName="first", ExperimentName="Tune")
    return anna


def kind_of(user: As, *, at: float = 100) -> JobComponentKind:
    return JobComponentKind(user.yard.records, lambda: seconds(at), worker="w", site=user.yard.compute.site)


def run(user: As, kind: JobComponentKind | None = None, *, at: float = 100) -> int:
    """Do what the controller does at that moment; return how many steps there were."""
    kind, count = kind or kind_of(user, at=at), 0
    for claim in kind.claim_due():
        kind.step(claim, ())
        count += 1
    return count


def change(user: As, name: str, after: Callable[[TrainingJob], TrainingJob], *, at: float = 60) -> None:
    resource = user.yard.records.load(ResourceKey(user.account, KIND, name))
    before = job_of(resource)
    job = after(before)
    events = events_of(before, job)
    assert user.yard.records.apply(resource, change_to(resource, job), now=seconds(at), events=events)


def to(*statuses: SecondaryStatus, at: float = 60) -> Callable[[TrainingJob], TrainingJob]:
    def after(job: TrainingJob) -> TrainingJob:
        for status in statuses:
            job = advance(job, status, at=seconds(at))
        return job

    return after


def component(user: As, job: str = "mnist") -> Any:
    return user("sagemaker", "DescribeTrialComponent", TrialComponentName=f"{job}-aws-training-job")


def parents(user: As, job: str = "mnist") -> Any:
    return user("sagemaker", "ListTrials", TrialComponentName=f"{job}-aws-training-job")["TrialSummaries"]


def test_a_job_makes_a_component_with_what_it_was_given(anna: As) -> None:
    given = {"lr": "0.1", "optimizer": '"adam"', "sagemaker_program": "t.py"}
    data = [channel("train", "s3://data/train/", ContentType="text/csv")]
    code = {"sagemaker_submit_directory": "s3://data/code/sourcedir.tar.gz"}
    create(anna, "MNIST-1", HyperParameters=given | code, InputDataConfig=data)
    run(anna)
    found = component(anna, "MNIST-1")
    assert found["TrialComponentName"] == "mnist-1-aws-training-job"
    assert found["Source"] == {
        "SourceArn": f"arn:aws:sagemaker:eu-west-3:{anna.account}:training-job/mnist-1",
        "SourceType": "SageMakerTrainingJob",
    }
    assert found["Status"]["PrimaryStatus"] == "InProgress"
    assert found["Parameters"]["lr"] == {"NumberValue": 0.1}
    assert found["Parameters"]["optimizer"] == {"StringValue": '"adam"'}
    assert found["Parameters"]["SageMaker.InstanceCount"] == {"NumberValue": 1.0}
    assert found["InputArtifacts"]["train"] == {"Value": "s3://data/train/", "MediaType": "text/csv"}
    assert parents(anna, "mnist-1") == []
    listed = anna("sagemaker", "ListTrialComponents", SourceArn=found["Source"]["SourceArn"])
    assert len(listed["TrialComponentSummaries"]) == 1


def test_a_component_follows_the_status_the_metrics_and_the_results_of_its_job(anna: As) -> None:
    create(anna)
    run(anna)
    change(anna, "mnist", to(S.STARTING, S.TRAINING, at=10))

    def finish(job: TrainingJob) -> TrainingJob:
        instance = InstanceState("algo-1", metrics={"loss": MetricSummary(0.5, seconds(4), 3, False, 0.25, 2.0)})
        attempt = Attempt(1, seconds(1), "KEY", (instance,), ended_at=seconds(20))
        model = {"model": Artifact("s3://data/output/mnist/output/model.tar.gz", 7)}
        job = replace(job, attempts=(attempt,), artifacts=model)
        return to(S.UPLOADING, S.COMPLETED, at=20)(job)

    change(anna, "mnist", finish)
    run(anna)
    found = component(anna)
    assert found["Status"] == {
        "PrimaryStatus": "Completed",
        "Message": "Status: Completed, secondary status: Completed, failure reason: .",
    }
    assert (found["StartTime"], found["EndTime"]) == (seconds(10), seconds(20))
    assert found["OutputArtifacts"]["SageMaker.ModelArtifact"]["Value"].endswith("model.tar.gz")
    [loss] = found["Metrics"]
    assert (loss["Last"], loss["Min"], loss["Max"], loss["Count"]) == (0.5, 0.25, 2.0, 3)
    assert loss["SourceArn"] == found["Source"]["SourceArn"]


def test_metrics_of_a_running_job_follow_within_seconds(anna: As) -> None:
    create(anna)
    moment = 100.0
    kind = JobComponentKind(anna.yard.records, lambda: seconds(moment), worker="w", site=anna.yard.compute.site)
    run(anna, kind)

    def learn(job: TrainingJob) -> TrainingJob:
        instance = InstanceState("algo-1", metrics={"loss": MetricSummary(0.5, seconds(4), 1)})
        return replace(job, attempts=(Attempt(1, seconds(1), "KEY", (instance,)),))

    change(anna, "mnist", learn)
    assert (run(anna, kind), component(anna)["Metrics"]) == (0, [])
    moment += METRICS_INTERVAL.total_seconds()
    assert run(anna, kind) == 1
    assert component(anna)["Metrics"][0]["Last"] == 0.5


def test_a_job_with_a_trial_has_its_component_there_before_it_starts(anna: As) -> None:
    config = {
        "ExperimentName": "tune",
        "TrialName": "FIRST",
        "TrialComponentDisplayName": "Training",
        "RunName": "run-1",
    }
    create(anna, ExperimentConfig=config)
    assert component(anna)["DisplayName"] == "Training"
    assert [each["TrialName"] for each in parents(anna)] == ["first"]
    found = anna("sagemaker", "ListTrialComponents", ExperimentName="Tune")["TrialComponentSummaries"]
    assert len(found) == 1
    assert anna("sagemaker", "DescribeTrainingJob", TrainingJobName="mnist")["ExperimentConfig"] == config
    run(anna)
    assert [each["TrialName"] for each in parents(anna)] == ["first"]


def test_a_job_with_an_experiment_only_gets_a_trial_of_its_own(anna: As) -> None:
    create(anna, ExperimentConfig={"ExperimentName": "Tune"})
    [trial] = parents(anna)
    assert anna("sagemaker", "DescribeTrial", TrialName=trial["TrialName"])["ExperimentName"] == "Tune"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"ExperimentName": "none"}, "/none' does not exist"),
        ({"TrialName": "none"}, "/none' does not exist"),
        ({"ExperimentName": "other", "TrialName": "first"}, "belongs to the experiment Tune, not to other"),
    ],
)
def test_an_experiment_that_does_not_fit_is_refused(anna: As, config: dict[str, str], words: str) -> None:
    anna("sagemaker", "CreateExperiment", ExperimentName="other")
    with pytest.raises(Fault, match=words):
        create(anna, ExperimentConfig=config)
    with pytest.raises(Fault, match="not found"):
        load_job(anna)


def load_job(user: As) -> Any:
    return user("sagemaker", "DescribeTrainingJob", TrainingJobName="mnist")


def test_a_yard_that_was_killed_misses_no_job_and_doubles_none(anna: As) -> None:
    create(anna, "before")
    kind = kind_of(anna)
    [claim] = kind.claim_due()
    assert isinstance(claim, Claim)
    # Killed here. The lease of the cursor runs out.
    create(anna, "after")
    run(anna, at=200)
    names = [each["TrialComponentName"] for each in listed(anna)]
    assert sorted(names) == ["after-aws-training-job", "before-aws-training-job"]


def listed(user: As) -> list[Any]:
    found: list[Any] = user("sagemaker", "ListTrialComponents")["TrialComponentSummaries"]
    return found


def test_jobs_from_before_have_no_component_unless_they_are_running(accounts: Accounts) -> None:
    user = prepare(accounts.anna)
    for name in ("ended", "running"):
        create(user, name)
    change(user, "ended", to(S.STARTING, S.TRAINING, S.UPLOADING, S.COMPLETED))
    change(user, "running", lambda job: replace(job, attempts=(Attempt(1, seconds(1), "KEY", ()),)))
    run(user)
    assert [each["TrialComponentName"] for each in listed(user)] == ["running-aws-training-job"]


def test_a_component_of_a_user_with_that_name_is_left_alone(anna: As) -> None:
    anna("sagemaker", "CreateTrialComponent", TrialComponentName="mnist-aws-training-job")
    create(anna)
    run(anna)
    assert "Source" not in component(anna)


def test_a_new_job_with_the_name_of_a_deleted_one_starts_over(anna: As) -> None:
    create(anna)
    run(anna)
    change(anna, "mnist", to(S.STARTING, S.TRAINING, S.UPLOADING, S.COMPLETED))
    anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    run(anna)
    assert component(anna)["Status"] == {"PrimaryStatus": "Completed", "Message": "The training job was deleted."}
    create(anna, HyperParameters={**load_hyperparameters(), "epochs": "9"})
    run(anna)
    assert component(anna)["Parameters"]["epochs"] == {"NumberValue": 9.0}
    assert component(anna)["Status"]["PrimaryStatus"] == "InProgress"


def load_hyperparameters() -> dict[str, str]:
    return {"sagemaker_program": "t.py", "sagemaker_submit_directory": "s3://data/code/sourcedir.tar.gz"}


def test_what_a_script_adds_to_the_component_of_its_job_stays(anna: As) -> None:
    create(anna)
    run(anna)
    more = {"seed": {"NumberValue": 7}}
    anna("sagemaker", "UpdateTrialComponent", TrialComponentName="mnist-aws-training-job", Parameters=more)
    change(anna, "mnist", to(S.STARTING))
    run(anna)
    assert component(anna)["Parameters"]["seed"] == {"NumberValue": 7.0}
