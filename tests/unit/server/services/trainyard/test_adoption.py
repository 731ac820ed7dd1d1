from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create, request
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.sagemaker.tuning.requests import (
    DEPTH,
    LOSS,
    RATE,
    config,
    create_tuning,
    definition,
    describe_tuning,
    resource,
    study,
)
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.foundation.jobs.tuning import TuningStatus
from trainyard.server.jobs.tuning import trial_of, trials_of
from trainyard.server.records.contract import QueueState
from trainyard.wire.fault import Fault

OBJECTIVE = {"Type": "Minimize", "MetricName": "loss"}
RANGES = {"ContinuousParameterRanges": [RATE]}
ALGORITHM = {"MetricDefinitions": [LOSS]}


def finish(user: As, name: str, loss: float | None = None, *, rate: str = "0.01", **hyperparameters: str) -> None:
    """Add a completed training job, with this loss if one is given."""
    given = request(user)["HyperParameters"] | {"lr": rate} | hyperparameters
    algorithm = request(user)["AlgorithmSpecification"] | ALGORITHM
    create(user, name, HyperParameters=given, AlgorithmSpecification=algorithm)
    job = advance(
        advance(load(user, name), SecondaryStatus.STARTING, at=seconds(1)), SecondaryStatus.TRAINING, at=seconds(2)
    )
    metrics = {} if loss is None else {"loss": MetricSummary(loss, seconds(3), 1)}
    attempt = Attempt(1, seconds(1), "KEY", (InstanceState("algo-1", metrics=metrics),), ended_at=seconds(4))
    remember(user, advance(replace(job, attempts=(attempt,)), SecondaryStatus.COMPLETED, at=seconds(4)))


def adopt(user: As, name: str = "adopted", **asked: Any) -> dict[str, Any]:
    given = {"Objective": OBJECTIVE, "ParameterRanges": RANGES} | asked
    return user("trainyard", "AdoptTrainingJobs", HyperParameterTuningJobName=name, **given)


def refusal(user: As, **asked: Any) -> str:
    with pytest.raises(Fault) as caught:
        adopt(user, **asked)
    assert caught.value.code == "ValidationException"
    assert not user("sagemaker", "ListHyperParameterTuningJobs")["HyperParameterTuningJobSummaries"]
    return caught.value.message


def test_finished_training_jobs_become_the_trials_of_an_ended_tuning_job(anna: As) -> None:
    finish(anna, "b", 0.5, rate="0.01")
    finish(anna, "a", 0.25, rate="0.02")
    told = adopt(anna, TrainingJobNames=["b", "a"])
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}:hyper-parameter-tuning-job/adopted"
    assert told == {"HyperParameterTuningJobArn": arn, "AdoptedJobs": ["a", "b"], "PassedOver": []}
    described = describe_tuning(anna, "adopted")
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["ObjectiveStatusCounters"] == {"Succeeded": 2, "Pending": 0, "Failed": 0}
    best = described["BestTrainingJob"]
    assert (best["TrainingJobName"], best["TunedHyperParameters"]) == ("a", {"lr": "0.02"})
    assert study(anna, "adopted").plan.definitions[0].static == {"epochs": "3"}


def test_it_is_never_due(anna: As) -> None:
    finish(anna, "a", 0.25)
    adopt(anna, TrainingJobNames=["a"])
    assert [anna.yard.records.in_state("tuning-job", state) for state in QueueState] == [[], [], []]


def test_a_tuning_job_can_start_from_adopted_jobs(anna: As) -> None:
    finish(anna, "a", 0.25)
    adopt(anna, TrainingJobNames=["a"])
    parents = [{"HyperParameterTuningJobName": "adopted"}]
    start = {"ParentHyperParameterTuningJobs": parents, "WarmStartType": "IdenticalDataAndAlgorithm"}
    create_tuning(anna, WarmStartConfig=start, HyperParameterTuningJobConfig=config(ParameterRanges=RANGES))
    assert describe_tuning(anna)["OverallBestTrainingJob"]["TrainingJobName"] == "a"
    with pytest.raises(Fault, match=r"depth is not in the parent"):
        create_tuning(anna, "other", WarmStartConfig=start, TrainingJobDefinition=definition(anna))


def test_a_prefix_skips_unusable_jobs_and_gives_the_reasons(anna: As) -> None:
    finish(anna, "run-1", 0.5)
    finish(anna, "run-2")
    finish(anna, "walk-1", 0.5)
    create(anna, "run-3")
    told = adopt(anna, NamePrefix="run-")
    assert told["AdoptedJobs"] == ["run-1"]
    reasons = {each["TrainingJobName"]: each["Reason"] for each in told["PassedOver"]}
    assert reasons == {
        "run-2": "it is Completed and has no usable value of loss.",
        "run-3": "it is InProgress; wait until it has ended.",
    }


def test_a_named_job_that_cannot_be_adopted_is_refused_with_the_reason(anna: As) -> None:
    finish(anna, "a", 0.5)
    finish(anna, "mute")
    finish(anna, "odd", 0.5, rate="fast")
    finish(anna, "other", 0.5, epochs="9")
    deep = {"IntegerParameterRanges": [DEPTH]}
    assert 'The training job "mute" cannot be adopted: it is Completed and has no usable value of loss' in refusal(
        anna, TrainingJobNames=["a", "mute"]
    )
    assert "it has no hyperparameter depth, which has a range" in refusal(
        anna, TrainingJobNames=["a"], ParameterRanges=deep
    )
    assert "its lr is fast, which does not fit a Continuous range" in refusal(anna, TrainingJobNames=["odd"])
    assert "a and other also differ in epochs; give that a range" in refusal(anna, TrainingJobNames=["a", "other"])
    assert "Give either TrainingJobNames or a NamePrefix" in refusal(anna)
    assert "There is no training job to adopt. mute: it is Completed" in refusal(anna, NamePrefix="mute")


def test_a_call_that_was_cut_off_is_completed_by_the_next(anna: As) -> None:
    for name in ("a", "b"):
        finish(anna, name, 0.5)
    adopt(anna, TrainingJobNames=["a", "b"])
    parent = resource(anna, "adopted")
    lost = list(trials_of(anna.yard.records, parent.id))[-1]
    anna.yard.records.delete(lost, now=seconds(5))
    adopt(anna.at(seconds(60)), TrainingJobNames=["a", "b"])
    assert [trial_of(each).job for each in trials_of(anna.yard.records, parent.id)] == ["a", "b"]


def test_a_name_in_use_is_a_conflict(anna: As) -> None:
    finish(anna, "a", 0.5)
    create_tuning(anna, "Adopted")
    with pytest.raises(Fault, match="already exists; choose another name") as caught:
        adopt(anna, TrainingJobNames=["a"])
    assert caught.value.code == "ConflictException"
    assert study(anna, "adopted").status is TuningStatus.IN_PROGRESS


def test_training_jobs_of_others_are_not_found(accounts: Accounts, anna: As) -> None:
    finish(anna, "a", 0.5)
    for user in (accounts.ben, accounts.admin):
        with pytest.raises(Fault) as caught:
            adopt(user, TrainingJobNames=["a"])
        assert caught.value.code == "ResourceNotFound"
