from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import describe
from tests.unit.server.services.sagemaker.tuning.requests import (
    add_trials,
    change_tuning,
    create_tuning,
    describe_tuning,
    end_tuning,
    resource,
    study,
    trial,
)
from trainyard.foundation.jobs.tuning import TuningStatus
from trainyard.server.jobs.tuning import TRIAL
from trainyard.server.records.contract import Query
from trainyard.server.services.sagemaker.tuning.trial_launch import TrainingJobLauncher
from trainyard.wire.fault import Fault


def stop(user: As, name: str = "tune") -> dict[str, object]:
    return user("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName=name)


def delete(user: As, name: str = "tune") -> dict[str, object]:
    return user("sagemaker", "DeleteHyperParameterTuningJob", HyperParameterTuningJobName=name)


def test_a_stop_is_remembered_and_wakes_the_controller(anna: As) -> None:
    create_tuning(anna)
    woken: list[str] = []
    compute = replace(anna.yard.compute, wake=woken.append)
    later = replace(anna, yard=replace(anna.yard, compute=compute)).at(NOON + timedelta(minutes=1))
    assert stop(later) == {}
    assert (study(anna).status, study(anna).stop_reason) == (TuningStatus.STOPPING, "Its user stopped it.")
    assert woken == [resource(anna).id]
    assert describe_tuning(anna)["LastModifiedTime"] == later.now
    assert stop(anna) == {}, "one that is being stopped already is no error"


def test_a_tuning_job_that_has_ended_is_not_stopped(anna: As) -> None:
    create_tuning(anna)
    end_tuning(anna, t1=0.5)
    with pytest.raises(Fault, match="rejected because the hyperparameter tuning job is in status Completed") as caught:
        stop(anna)
    assert caught.value.code == "ValidationException"


def test_only_ended_jobs_are_deleted_and_their_training_jobs_stay(anna: As) -> None:
    create_tuning(anna)
    TrainingJobLauncher(anna.yard).launch(resource(anna), trial(anna, 1), now=NOON)
    add_trials(anna, trial(anna, 1))
    parent, begun = resource(anna).id, trial(anna, 1).job
    with pytest.raises(Fault, match="Tuning job tune is InProgress; stop it") as caught:
        delete(anna)
    assert caught.value.code == "ResourceInUse"
    change_tuning(anna, replace(study(anna), status=TuningStatus.STOPPED))
    assert delete(anna) == {}
    assert anna.yard.records.count(Query(TRIAL, parent=parent)) == 0
    assert describe(anna, begun)["TrainingJobStatus"] == "InProgress"
    create_tuning(anna)
    assert describe_tuning(anna)["TrainingJobStatusCounters"]["InProgress"] == 0


def test_tuning_jobs_of_others_are_not_found_but_by_an_administrator(accounts: Accounts, anna: As) -> None:
    create_tuning(anna)
    for call in (stop, delete, describe_tuning):
        with pytest.raises(Fault) as caught:
            call(accounts.ben)
        assert caught.value.code == "ResourceNotFound"
    assert describe_tuning(accounts.admin, "TUNE")["HyperParameterTuningJobName"] == "tune"
    stop(accounts.admin)
    assert study(anna).status is TuningStatus.STOPPING
