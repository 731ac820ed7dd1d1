from tests.unit.server.control.tuning.studies import Studies, tuning_request
from trainyard.foundation.jobs.tuning import TrialStatus, TuningStatus

LIMITS = {"ResourceLimits": {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 2}}


def ended_parent(studies: Studies) -> None:
    study = studies.create("parent", **LIMITS)
    claims = studies.begin(study, 2)
    studies.end(study, claims[1], 0.5)
    studies.end(study, claims[2], outcome="failed", reason="Odd.")
    assert not studies.turn(study)
    assert studies.job("parent").status is TuningStatus.COMPLETED


def create_child(studies: Studies) -> None:
    request = tuning_request(studies.bench, "child", **LIMITS)
    request["WarmStartConfig"] = {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "parent"}],
        "WarmStartType": "IdenticalDataAndAlgorithm",
    }
    studies.bench.anna.at(studies.bench.watch())("sagemaker", "CreateHyperParameterTuningJob", **request)


def test_the_trials_of_parents_have_all_their_hyperparameters(studies: Studies) -> None:
    ended_parent(studies)
    create_child(studies)
    (measured, failed) = studies.take("child").question().parents["parent"]
    assert (measured.objective, measured.values["lr"], measured.values["epochs"]) == (0.5, "0.1", "3")
    assert (failed.status, failed.values["lr"]) == (TrialStatus.FAILED, "0.2")


def test_a_parent_that_was_deleted_since_tells_nothing(studies: Studies) -> None:
    ended_parent(studies)
    create_child(studies)
    studies.bench.anna("sagemaker", "DeleteHyperParameterTuningJob", HyperParameterTuningJobName="parent")
    assert studies.take("child").question().parents == {}
