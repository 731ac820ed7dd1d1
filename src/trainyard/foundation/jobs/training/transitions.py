"""The legal transitions of a training job between secondary statuses. Nothing else decides them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs.status import SecondaryStatus, Status, Transition
from trainyard.foundation.jobs.training.job import TrainingJob

# Stop reasons: the job waited too long for capacity, or waited and ran too long together.
MAX_PENDING, MAX_WAIT = "max_pending", "max_wait"

_S = SecondaryStatus
_ENDS = frozenset({_S.COMPLETED, _S.FAILED, _S.STOPPED, _S.MAX_RUNTIME_EXCEEDED, _S.MAX_WAIT_TIME_EXCEEDED})
_RESTARTS = frozenset({_S.INTERRUPTED, _S.RESTARTING})

# Statuses may be skipped: a job without channels downloads nothing. A job that was asked to stop cannot become
# Completed, which would contradict its primary status Stopping. Restarting is the only way back: to Starting, with
# another attempt, after an attempt whose instances were lost or, via Interrupted, one that was interrupted.
LEGAL: Mapping[SecondaryStatus, frozenset[SecondaryStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.STARTING: frozenset({_S.DOWNLOADING, _S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.DOWNLOADING: frozenset({_S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.TRAINING: frozenset({_S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.UPLOADING: frozenset({_S.STOPPING}) | _RESTARTS | _ENDS,
    _S.INTERRUPTED: frozenset({_S.RESTARTING, _S.STOPPING, _S.FAILED}),
    _S.RESTARTING: frozenset({_S.STARTING, _S.INTERRUPTED, _S.STOPPING, _S.FAILED}),
    _S.STOPPING: _ENDS - {_S.COMPLETED},
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.MAX_RUNTIME_EXCEEDED: frozenset(),
    _S.MAX_WAIT_TIME_EXCEEDED: frozenset(),
}

# The messages of AWS, which users of its SDK know.
MESSAGES: Mapping[SecondaryStatus, str] = {
    _S.PENDING: "Waiting for capacity",
    _S.STARTING: "Preparing the instances for training",
    _S.DOWNLOADING: "Downloading input data",
    _S.TRAINING: "Training image download completed. Training in progress.",
    _S.UPLOADING: "Uploading generated training model",
    _S.INTERRUPTED: "The job stopped because the managed spot training instances were interrupted.",
    _S.RESTARTING: "Restarting the training job",
    _S.STOPPING: "Stopping the training job",
    _S.COMPLETED: "Training job completed",
    _S.FAILED: "Training job failed",
    _S.STOPPED: "Training job stopped",
    _S.MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    _S.MAX_WAIT_TIME_EXCEEDED: "The job stopped because it exceeded the maximum allowed wait time.",
}


def first_transition(at: datetime) -> Transition:
    """Return the first entry of the history of every job."""
    return Transition(_S.PENDING, at, MESSAGES[_S.PENDING])


def may_become(job: TrainingJob, to: SecondaryStatus) -> bool:
    return to in LEGAL[job.secondary]


def advance(job: TrainingJob, to: SecondaryStatus, *, at: datetime, message: str = "") -> TrainingJob:
    """Return the job in its next status. Conflict if the transition is not legal.

    If a clock was set back and `at` is before the last transition, the time of that transition counts.
    """
    if not may_become(job, to):
        raise Conflict("training job", job.name, f"is {job.secondary} and cannot become {to}")
    last = job.transitions[-1]
    at = max(at, last.started_at)
    closed = replace(last, ended_at=at)
    ends_too = at if to in _ENDS else None
    entered = Transition(to, at, message or MESSAGES[to], ended_at=ends_too)
    return replace(job, transitions=(*job.transitions[:-1], closed, entered))


def ask_to_stop(job: TrainingJob, reason: str, *, at: datetime, message: str = "") -> TrainingJob:
    """Return the job as Stopping, or stopped if nothing of it runs; unchanged if it is Stopping already."""
    if job.secondary is _S.STOPPING:
        return job
    stopping = replace(advance(job, _S.STOPPING, at=at, message=message), stop_reason=reason)
    return stopping if stopping.attempt else advance(stopping, stopped_status(stopping), at=at, message=message)


def stopped_status(job: TrainingJob) -> SecondaryStatus:
    """Return the final status of a job that was asked to stop."""
    return _S.MAX_WAIT_TIME_EXCEEDED if job.stop_reason == MAX_WAIT else _S.STOPPED


def give_up(job: TrainingJob, *, at: datetime) -> TrainingJob:
    """Return the job stopped, or Stopping, if one of its time limits is over; unchanged otherwise.

    Waiting for capacity may have a limit. Waiting and running of a spot job together has one.
    """
    if job.ends_until is not None and at >= job.ends_until:
        return ask_to_stop(job, MAX_WAIT, at=at)
    if job.waits_until is None or at < job.waits_until:
        return job
    message = "Training job pending time exceeded MaxPendingTimeInSeconds provided"
    return ask_to_stop(job, MAX_PENDING, at=at, message=message)


def interrupt(job: TrainingJob, why: str) -> TrainingJob:
    """Return the job with its live attempt marked as interrupted; unchanged if it has none, or is ending anyway."""
    if job.attempt is None or job.attempt.interruption or job.status is not Status.IN_PROGRESS:
        return job
    return job.with_attempt(replace(job.attempt, interruption=why))
