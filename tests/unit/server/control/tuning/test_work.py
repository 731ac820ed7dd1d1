import math
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.unit.server.control.tuning.studies import METRIC, Studies, values_of
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.jobs.status import Status
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.foundation.jobs.tuning import StopCause, TrialStatus, TuningStatus, TuningTrial
from trainyard.link.contract import FrameKind
from trainyard.server.control.tuning.contract import Suggestion
from trainyard.server.control.tuning.suggestions import PreparedSuggestion
from trainyard.server.control.tuning.work import LAUNCH_RETRY_PAUSE, LEASE, StudyOutdated, TuningWork
from trainyard.server.jobs import training as training_jobs
from trainyard.server.jobs.quotas import ANY, CapacityKind, Quota, Quotas
from trainyard.server.records.contract import Change, Query, Resource, ResourceId


def limits(trials: int, parallel: int, **changed: Any) -> dict[str, Any]:
    counted = {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": parallel}
    return {"ResourceLimits": counted | changed}


def training_names(studies: Studies) -> list[str]:
    found = studies.work.records.find(Query(training_jobs.KIND)).resources
    return sorted(each.key.name for each in found)


def test_a_study_keeps_its_slots_busy_until_all_trials_have_ended(studies: Studies) -> None:
    study = studies.create(**limits(3, 2))
    claims = studies.begin(study, 2)
    assert studies.turn(study, lr="0.9")
    assert len(studies.trials()) == 2  # no slot was free
    studies.end(study, claims[1], 0.5)
    claims |= studies.begin(study, 1)
    studies.end(study, claims[2], 0.2)
    studies.end(study, claims[3], 0.4)
    assert not studies.turn(study)
    job = studies.job()
    assert (job.status, job.planned, job.best, job.since_best) == (TuningStatus.COMPLETED, 3, 2, 1)
    assert values_of(studies.trials()) == [{"lr": "0.1"}, {"lr": "0.2"}, {"lr": "0.3"}]
    assert [trial.objective for trial in studies.trials()] == [0.5, 0.2, 0.4]
    assert [trial.job for trial in studies.trials()] == training_names(studies)
    assert job.ended_at is not None


def test_an_ended_study_is_never_due_again(studies: Studies) -> None:
    study = studies.create(**limits(1, 1))
    claims = studies.begin(study, 1)
    studies.end(study, claims[1], 0.5)
    assert not studies.turn(study)
    studies.bench.watch.forward(3600)
    assert studies.work.find_due() == []


def test_a_trial_is_remembered_before_its_training_job_exists(studies: Studies) -> None:
    class Killed:
        """Stands for a yard that is killed before the create: no real launcher stops at that point."""

        def launch(self, tuning_job: Resource, trial: TuningTrial, *, now: datetime) -> ResourceId:
            raise KeyboardInterrupt

    study = studies.create()
    killed = replace(studies.work, launcher=Killed())
    with pytest.raises(KeyboardInterrupt):
        Studies(studies.bench, killed).turn(study, lr="0.25")
    (trial,) = studies.trials()
    assert (trial.status, trial.values, training_names(studies)) == (TrialStatus.PLANNED, {"lr": "0.25"}, [])
    again = taken_by_another(studies)
    assert studies.turn(again)
    assert training_names(studies) == [trial.job]
    hyperparameters = studies.training_job().plan.hyperparameters
    assert (hyperparameters["lr"], hyperparameters["_tuning_objective_metric"]) == ("0.25", METRIC)


def test_a_training_job_that_was_begun_and_not_remembered_is_taken_over(studies: Studies) -> None:
    class KilledAfter:
        """Stands for a yard that is killed between the create and its own next write."""

        def __init__(self, work: TuningWork) -> None:
            self._launcher = work.launcher

        def launch(self, tuning_job: Resource, trial: TuningTrial, *, now: datetime) -> ResourceId:
            self._launcher.launch(tuning_job, trial, now=now)
            raise KeyboardInterrupt

    study = studies.create()
    killed = replace(studies.work, launcher=KilledAfter(studies.work))
    with pytest.raises(KeyboardInterrupt):
        Studies(studies.bench, killed).turn(study, lr="0.25")
    assert studies.trials()[0].status is TrialStatus.PLANNED
    again = taken_by_another(studies)
    studies.turn(again)
    (trial,) = studies.trials()
    assert (trial.status, trial.job_id) == (TrialStatus.IN_PROGRESS, studies.bench.resource(trial.job).id)
    assert training_names(studies) == [trial.job]


def test_a_yard_that_takes_over_a_study_counts_the_same(studies: Studies) -> None:
    study = studies.create(**limits(5, 2))
    claims = studies.begin(study, 2)
    studies.end(study, claims[2], 0.2)
    studies.end(study, claims[1], 0.5)
    studies.turn(study)
    again = taken_by_another(studies)
    assert (again.progress, again.ended, again.rows) == (study.progress, 2, {})
    assert again.question().trials == [study.trials[1], study.trials[2]]
    assert again.question().number == 3


def test_one_who_lost_its_lease_writes_nothing_more(studies: Studies) -> None:
    study = studies.create()
    again = taken_by_another(studies)
    assert not studies.work.step(study, [study.id])
    studies.bench.watch.forward(1)
    again.prepared = PreparedSuggestion(1, 0, Suggestion("", {"lr": "0.3"}))
    assert studies.work.step(again, [])
    study.hold(again.claim)  # as one who does not know yet
    study.prepared = PreparedSuggestion(1, 0, Suggestion("", {"lr": "0.9"}))
    with pytest.raises(StudyOutdated):
        studies.work.step(study, [])
    assert values_of(studies.trials()) == [{"lr": "0.3"}]


def taken_by_another(studies: Studies) -> Any:
    """The tuning job as a yard has it that was started after this one had been killed."""
    studies.bench.watch.forward(LEASE.total_seconds() + 1)
    again = replace(studies.work, worker="another").claim(studies.resource().id)
    assert again is not None, "the lease is over"
    return again


def test_one_failed_trial_never_ends_a_study(studies: Studies) -> None:
    study = studies.create(**limits(2, 2))
    claims = studies.begin(study, 2)
    studies.end(study, claims[1], outcome="failed", reason="Out of memory.")
    studies.end(study, claims[2], 0.2)
    assert not studies.turn(study)
    assert studies.job().status is TuningStatus.COMPLETED
    assert [(trial.status, trial.why) for trial in studies.trials()] == [
        (TrialStatus.FAILED, "Out of memory."),
        (TrialStatus.COMPLETED, ""),
    ]


def test_a_study_whose_first_trials_all_fail_fails_with_the_most_common_reason(studies: Studies) -> None:
    study = studies.create(**limits(20, 1))
    for number in range(5):
        claims = studies.begin(study, 1)
        studies.end(study, claims[number + 1], outcome="failed", reason="No module named x." if number else "Odd.")
    assert not studies.turn(study)
    job = studies.job()
    assert (job.status, job.planned) == (TuningStatus.FAILED, 5)
    assert job.failure == "Its first 5 training jobs all failed. The most common reason: No module named x."


def test_a_metric_that_never_appears_is_explained(studies: Studies) -> None:
    study = studies.create(**limits(1, 1))
    claims = studies.begin(study, 1)
    studies.end(study, claims[1])
    assert not studies.turn(study)
    job = studies.job()
    assert job.status is TuningStatus.FAILED
    assert "never reported the objective metric loss" in job.failure


def test_an_objective_that_is_no_number_at_the_end_is_no_measure(studies: Studies) -> None:
    study = studies.create(**limits(2, 2))
    claims = studies.begin(study, 2)
    studies.report(study, 1, 0.1)
    agent = studies.bench.agent(study.trials[1].job)
    agent.report(FrameKind.METRIC, name=METRIC, value=0.1, at_us=1, count=1, has_lapsed=True)
    studies.end(study, claims[1])
    studies.end(study, claims[2], 0.7)
    assert not studies.turn(study)
    first = studies.trials()[0]
    assert first.objective is not None
    assert math.isnan(first.objective)
    assert first.why == "The last loss that it reported is not a finite number."
    assert studies.job().best == 2


def test_a_deleted_child_counts_as_failed(studies: Studies) -> None:
    study = studies.create(**limits(2, 2))
    claims = studies.begin(study, 2)
    studies.end(study, claims[1], 0.5)
    studies.bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName=study.trials[1].job)
    studies.end(study, claims[2], 0.5)
    assert not studies.turn(study)
    first = studies.trials()[0]
    assert (first.status, first.why) == (
        TrialStatus.FAILED,
        f"Its training job {first.job} was deleted before the result was read.",
    )
    assert studies.job().status is TuningStatus.COMPLETED


@pytest.mark.parametrize(
    ("reason", "cause"), [("user", StopCause.USER), ("rule", StopCause.RULE), ("max_pending", None)]
)
def test_why_a_trial_was_stopped_is_kept(studies: Studies, reason: str, cause: StopCause | None) -> None:
    study = studies.create(**limits(1, 1))
    claims = studies.begin(study, 1)
    studies.report(study, 1, 0.5)
    resource = studies.bench.resource(study.trials[1].job)
    job = training_jobs.job_of(resource)
    after = ask_to_stop(job, reason, at=studies.bench.watch(), message="So it was.")
    studies.work.records.apply(resource, training_jobs.change_to(resource, after), now=studies.bench.watch())
    studies.bench.turn(claims[1], times=4)
    assert not studies.turn(study)
    (trial,) = studies.trials()
    assert (trial.status, trial.cause, trial.why, trial.objective) == (TrialStatus.STOPPED, cause, "So it was.", 0.5)


def test_a_stop_ends_the_children_and_then_the_study(studies: Studies) -> None:
    study = studies.create(**limits(9, 2))
    claims = studies.begin(study, 2)
    studies.report(study, 1, 0.5)
    studies.bench.anna("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName="search")
    assert studies.turn(study)
    assert studies.training_job(1).status is Status.STOPPING
    message = studies.training_job(1).transitions[-1].message
    assert message == "The tuning job search was stopped."
    for claim in claims.values():
        studies.bench.turn(claim, times=4)
    assert not studies.turn(study)
    assert studies.job().status is TuningStatus.STOPPED
    assert [trial.cause for trial in studies.trials()] == [StopCause.STUDY, StopCause.STUDY]
    assert studies.job().best == 1


def test_a_stop_while_a_trial_waits_to_be_begun_leaves_no_trace_of_it(studies: Studies) -> None:
    study = studies.create(**limits(9, 2))
    full(studies, 0)
    assert studies.turn(study, lr="0.3")
    assert [trial.status for trial in studies.trials()] == [TrialStatus.PLANNED]
    studies.bench.anna("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName="search")
    assert not studies.turn(study)
    job = studies.job()
    assert (job.status, job.planned, studies.trials(), training_names(studies)) == (TuningStatus.STOPPED, 0, [], [])


def test_a_stop_finds_the_child_that_was_begun_and_not_remembered(studies: Studies) -> None:
    study = studies.create(**limits(9, 2))
    full(studies, 0)
    studies.turn(study, lr="0.3")
    full(studies, 9)
    studies.work.launcher.launch(studies.resource(), studies.trials()[0], now=studies.bench.watch())
    studies.bench.anna("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName="search")
    assert studies.turn(study)
    assert not studies.turn(study)
    assert studies.training_job(1).status is Status.STOPPED
    assert [trial.cause for trial in studies.trials()] == [StopCause.STUDY]
    assert studies.job().status is TuningStatus.STOPPED


def full(studies: Studies, limit: int) -> None:
    """Let the user have so many instances at once."""
    user = studies.work.records.user(studies.bench.anna.account).name
    quota = Quota(user, ANY, CapacityKind.ON_DEMAND, limit)
    Quotas(studies.work.records).put(quota, now=studies.bench.watch())


def test_a_full_quota_makes_a_trial_wait_and_says_so(studies: Studies) -> None:
    study = studies.create(**limits(2, 2))
    full(studies, 1)
    claims = studies.begin(study, 1)
    assert studies.turn(study, lr="0.3")
    assert studies.turn(study)
    assert [trial.status for trial in studies.trials()] == [TrialStatus.IN_PROGRESS, TrialStatus.PLANNED]
    (note,) = studies.job().notes[-1:]
    assert note.startswith("Trials wait to be begun: The account-level service limit")
    studies.end(study, claims[1], 0.5)
    assert studies.turn(study)
    assert [trial.status for trial in studies.trials()] == [TrialStatus.COMPLETED, TrialStatus.IN_PROGRESS]


@pytest.mark.parametrize("error", [Unavailable("The disk is full."), InvalidRequest("Its bucket is gone.")])
def test_transient_errors_are_retried_and_others_fail(studies: Studies, error: Exception) -> None:
    class Refusing:
        """The real launcher refuses so only on a broken machine."""

        def launch(self, tuning_job: Resource, trial: TuningTrial, *, now: datetime) -> ResourceId:
            raise error

    study = studies.create(**limits(2, 1))
    assert Studies(studies.bench, replace(studies.work, launcher=Refusing())).turn(study, lr="0.3")
    (trial,) = studies.trials()
    if isinstance(error, InvalidRequest):
        assert (trial.status, trial.why) == (TrialStatus.FAILED, "Its bucket is gone.")
        return
    assert trial.status is TrialStatus.PLANNED
    studies.bench.watch.forward(LAUNCH_RETRY_PAUSE.total_seconds())
    assert studies.turn(study)
    assert studies.trials()[0].status is TrialStatus.IN_PROGRESS


def test_the_time_of_a_study_ends_it_and_its_children(studies: Studies) -> None:
    study = studies.create(**limits(9, 1, MaxRuntimeInSeconds=120))
    claims = studies.begin(study, 1)
    studies.report(study, 1, 0.5)
    studies.bench.turn(claims[1])
    studies.bench.watch.forward(119)
    study = studies.take()
    assert studies.turn(study)
    assert studies.training_job().status is Status.IN_PROGRESS
    studies.bench.watch.forward(1)
    assert studies.turn(study)
    assert studies.training_job().transitions[-1].message == (
        "The tuning job search is over. Its time limit of 120 s is over."
    )
    claim = studies.bench.work.claim()
    studies.bench.turn(claim, times=4)
    assert not studies.turn(study)
    job = studies.job()
    assert (job.status, job.stop_reason, job.best) == (TuningStatus.COMPLETED, "Its time limit of 120 s is over.", 1)


def test_a_reached_target_ends_a_study(studies: Studies) -> None:
    study = studies.create(TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 0.3})
    claims = studies.begin(study, 2)
    studies.end(study, claims[1], 0.29)
    assert studies.turn(study, lr="0.9")
    studies.bench.turn(claims[2], times=4)
    assert not studies.turn(study)
    job = studies.job()
    assert (job.status, job.planned, job.best) == (TuningStatus.COMPLETED, 2, 1)
    assert "the target was 0.3" in job.stop_reason


def test_nothing_left_to_try_ends_a_study_when_its_trials_have_ended(studies: Studies) -> None:
    study = studies.create()
    claims = studies.begin(study, 1)
    study.prepared = PreparedSuggestion(2, 0, None)
    assert studies.turn(study)
    assert studies.training_job().status is Status.IN_PROGRESS
    assert not study.wants_advice()
    studies.end(study, claims[1], 0.5)
    assert not studies.turn(study)
    assert (studies.job().status, studies.job().planned) == (TuningStatus.COMPLETED, 1)


def test_a_trial_that_does_worse_than_the_median_is_stopped_and_keeps_its_objective(studies: Studies) -> None:
    study = studies.create(**limits(9, 6), TrainingJobEarlyStoppingType="Auto")
    claims = studies.begin(study, 6)
    for number in range(1, 6):
        studies.report(study, number, 0.5, 0.4, 0.3)
    studies.report(study, 6, 0.9)
    assert studies.turn(study)
    assert studies.training_job(6).status is Status.IN_PROGRESS
    studies.report(study, 6, 0.8)
    assert studies.turn(study)
    assert studies.training_job(6).status is Status.STOPPING
    message = studies.training_job(6).transitions[-1].message
    assert message.startswith("Stopped early by the tuning job search: loss was 0.8 at report 2, worse than 0.45")
    studies.bench.turn(claims[6], times=4)
    assert studies.turn(study)
    trial = studies.trials()[5]
    assert (trial.status, trial.cause, trial.objective) == (TrialStatus.STOPPED, StopCause.EARLY, 0.8)
    assert (trial.curve, trial.why) == ((0.9, 0.8), message)


def test_a_yard_that_takes_over_knows_the_curves_of_ended_trials(studies: Studies) -> None:
    study = studies.create(**limits(9, 6), TrainingJobEarlyStoppingType="Auto")
    claims = studies.begin(study, 6)
    for number in range(1, 6):
        studies.end(study, claims[number], 0.5, 0.4)
    studies.turn(study)
    again = taken_by_another(studies)
    assert again.runs == {number: study.runs[number] for number in range(1, 6)}
    studies.report(study, 6, 0.9, 0.9)
    assert studies.turn(again)
    assert studies.training_job(6).status is Status.STOPPING


def test_another_yard_leaves_a_study_alone_that_is_not_of_its_site(studies: Studies) -> None:
    studies.create()
    assert replace(studies.work, site="elsewhere").find_due() == [
        studies.resource().id
    ]  # one without a site is anybody's
    resource = studies.resource()
    body = {**resource.body, "job": {**resource.body["job"], "site": "here"}}
    studies.work.records.apply(resource, Change(body=body), now=studies.bench.watch())
    assert replace(studies.work, site="elsewhere").find_due() == []
    assert replace(studies.work, site="here").find_due() == [resource.id]


def test_a_study_that_was_let_go_is_taken_up_at_once(studies: Studies) -> None:
    study = studies.create()
    studies.work.release(study)
    again = replace(studies.work, worker="another")
    assert again.find_due() == [study.id]
    assert again.claim(study.id) is not None
