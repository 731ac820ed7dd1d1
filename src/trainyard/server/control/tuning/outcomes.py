"""What became of a trial, as its training job tells. Pure."""

import math
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.jobs import Status, TrainingJob
from trainyard.foundation.tuning import StopCause, Trial, TrialStatus
from trainyard.server.control.actions.asking import BY_RULE

# The reasons for which the controller of a tuning job stops a trial, as its training job remembers them.
EARLY, OVER = "early stopping", "tuning job over"

_CAUSES = {EARLY: StopCause.EARLY, OVER: StopCause.STUDY, BY_RULE: StopCause.RULE, "user": StopCause.USER}
_STATUSES = {
    Status.COMPLETED: TrialStatus.COMPLETED,
    Status.STOPPED: TrialStatus.STOPPED,
    Status.FAILED: TrialStatus.FAILED,
}


def ended(trial: Trial, job: TrainingJob, *, metric: str) -> Trial:
    """The trial after the end of its training job."""
    return replace(
        trial,
        status=_STATUSES[job.status],
        objective=_objective(job, metric),
        cause=_cause(job) if job.status is Status.STOPPED else None,
        why=_why(job, metric),
        started_at=job.training_started_at,
        ended_at=job.ended_at,
    )


def failed(trial: Trial, why: str, *, at: datetime) -> Trial:
    """The trial without a training job that could tell anything."""
    return replace(trial, status=TrialStatus.FAILED, why=why, ended_at=at)


def gone(trial: Trial, *, at: datetime) -> Trial:
    return failed(trial, f"Its training job {trial.job} was deleted before its end was known.", at=at)


def never_reported(metric: str) -> str:
    """Why a trial that completed says nothing."""
    return f"It never reported the objective metric {metric}; see whether its log has what the regex looks for."


def is_fruitless(trial: Trial, *, metric: str) -> bool:
    """Whether a trial failed, or ran and never reported what is tuned: more of its kind would be as useless."""
    return trial.status is TrialStatus.FAILED or trial.why == never_reported(metric)


def _objective(job: TrainingJob, metric: str) -> float | None:
    """What was reported last, which may be no finite number."""
    summary = job.metrics.get(metric)
    if summary is None:
        return None
    return math.nan if summary.has_lapsed else summary.value


def _cause(job: TrainingJob) -> StopCause | None:
    """None for a job whose own time was over."""
    return _CAUSES.get(job.stop_reason)


def _why(job: TrainingJob, metric: str) -> str:
    if job.status is Status.FAILED:
        return job.failure
    if job.status is Status.STOPPED:
        return _told_at_stop(job)
    if metric not in job.metrics:
        return never_reported(metric)
    return f"The last {metric} that it reported is no finite number." if job.metrics[metric].has_lapsed else ""


def _told_at_stop(job: TrainingJob) -> str:
    """What its history says of the stop: the step that began it, else the last."""
    steps = [step for step in job.transitions if step.status == "Stopping"]
    return (steps or job.transitions)[-1].message
