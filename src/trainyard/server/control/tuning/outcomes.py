"""The result of a trial, from its training job. Pure."""

import math
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.jobs.status import Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.tuning import StopCause, TrialStatus, TuningTrial
from trainyard.server.control.actions.triggers import STOPPED_BY_RULE

# Stop reasons of a training job that its tuning job stopped.
STOPPED_EARLY, TUNING_OVER = "early stopping", "tuning job over"

_CAUSES = {
    STOPPED_EARLY: StopCause.EARLY,
    TUNING_OVER: StopCause.STUDY,
    STOPPED_BY_RULE: StopCause.RULE,
    "user": StopCause.USER,
}
_STATUSES = {
    Status.COMPLETED: TrialStatus.COMPLETED,
    Status.STOPPED: TrialStatus.STOPPED,
    Status.FAILED: TrialStatus.FAILED,
}


def end_trial(trial: TuningTrial, job: TrainingJob, *, metric: str) -> TuningTrial:
    """Return the trial with the result of its training job, which has ended."""
    return replace(
        trial,
        status=_STATUSES[job.status],
        objective=_objective(job, metric),
        cause=_cause(job) if job.status is Status.STOPPED else None,
        why=_why(job, metric),
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def fail_trial(trial: TuningTrial, why: str, *, at: datetime) -> TuningTrial:
    """Return the trial as failed, without a training job."""
    return replace(trial, status=TrialStatus.FAILED, why=why, ended_at=at)


def fail_deleted_trial(trial: TuningTrial, *, at: datetime) -> TuningTrial:
    return fail_trial(trial, f"Its training job {trial.job} was deleted before the result was read.", at=at)


def never_reported(metric: str) -> str:
    """Return why a completed trial has no objective. The text is stored and compared later, so it must not change."""
    return f"It never reported the objective metric {metric}; see whether its log has what the regex looks for."


def is_fruitless(trial: TuningTrial, *, metric: str) -> bool:
    """Whether a trial failed, or never reported the objective. More trials like it would be useless."""
    return trial.status is TrialStatus.FAILED or trial.why == never_reported(metric)


def _objective(job: TrainingJob, metric: str) -> float | None:
    """Return the value that was reported last; NaN if it was not finite."""
    summary = job.metrics.get(metric)
    if summary is None:
        return None
    return math.nan if summary.has_lapsed else summary.value


def _cause(job: TrainingJob) -> StopCause | None:
    """Return who stopped a job; None if its own time was over."""
    return _CAUSES.get(job.stop_reason)


def _why(job: TrainingJob, metric: str) -> str:
    if job.status is Status.FAILED:
        return job.failure
    if job.status is Status.STOPPED:
        return _stop_message(job)
    if metric not in job.metrics:
        return never_reported(metric)
    return f"The last {metric} that it reported is not a finite number." if job.metrics[metric].has_lapsed else ""


def _stop_message(job: TrainingJob) -> str:
    """Return the message of the transition to Stopping, or else of the last one."""
    steps = [step for step in job.transitions if step.status == "Stopping"]
    return (steps or job.transitions)[-1].message
