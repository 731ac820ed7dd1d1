"""How a training job moves from one secondary status to the next. Nothing else decides that."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs import SecondaryStatus, Status, TrainingJob, Transition

# The reasons of a stop because there was no room for too long, and because waiting and running took too long together.
MAX_PENDING, MAX_WAIT = "max_pending", "max_wait"

_S = SecondaryStatus
_ENDS = frozenset({_S.COMPLETED, _S.FAILED, _S.STOPPED, _S.MAX_RUNTIME_EXCEEDED, _S.MAX_WAIT_TIME_EXCEEDED})
_AWAY = frozenset({_S.INTERRUPTED, _S.RESTARTING})

# Statuses on the way may be skipped: a job without channels downloads nothing. One that was asked to stop does not
# become Completed any more, because its primary status would then have gone from Stopping to one that denies it.
# Restarting is the only way back: to Starting, with another attempt, after one whose instances were lost or, by way of
# Interrupted, one that gave its place away.
LEGAL: Mapping[SecondaryStatus, frozenset[SecondaryStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.STARTING: frozenset({_S.DOWNLOADING, _S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _AWAY | _ENDS,
    _S.DOWNLOADING: frozenset({_S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _AWAY | _ENDS,
    _S.TRAINING: frozenset({_S.UPLOADING, _S.STOPPING}) | _AWAY | _ENDS,
    _S.UPLOADING: frozenset({_S.STOPPING}) | _AWAY | _ENDS,
    _S.INTERRUPTED: frozenset({_S.RESTARTING, _S.STOPPING, _S.FAILED}),
    _S.RESTARTING: frozenset({_S.STARTING, _S.INTERRUPTED, _S.STOPPING, _S.FAILED}),
    _S.STOPPING: _ENDS - {_S.COMPLETED},
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.MAX_RUNTIME_EXCEEDED: frozenset(),
    _S.MAX_WAIT_TIME_EXCEEDED: frozenset(),
}

# What AWS says of each, which users of its SDK know.
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
    """What the history of every job begins with."""
    return Transition(_S.PENDING, at, MESSAGES[_S.PENDING])


def may_become(job: TrainingJob, to: SecondaryStatus) -> bool:
    return to in LEGAL[job.secondary]


def advance(job: TrainingJob, to: SecondaryStatus, *, at: datetime, message: str = "") -> TrainingJob:
    """The job in its next status; Conflict when the table does not know that way.

    A moment before the last transition, as a clock that was set back gives it, counts as that transition's.
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
    """The job on its way to its end, or at it when nothing of it was started; unchanged when it is on that way."""
    if job.secondary is _S.STOPPING:
        return job
    stopping = replace(advance(job, _S.STOPPING, at=at, message=message), stop_reason=reason)
    return stopping if stopping.attempt else advance(stopping, stopped_status(stopping), at=at, message=message)


def stopped_status(job: TrainingJob) -> SecondaryStatus:
    """What a job becomes that was asked to stop and has."""
    return _S.MAX_WAIT_TIME_EXCEEDED if job.stop_reason == MAX_WAIT else _S.STOPPED


def give_up(job: TrainingJob, *, at: datetime) -> TrainingJob:
    """The job stopped, or on its way there, if it has taken longer than it may; unchanged otherwise.

    Its waiting for room may have a limit, and the waiting and running of a spot job together has one.
    """
    if job.ends_until is not None and at >= job.ends_until:
        return ask_to_stop(job, MAX_WAIT, at=at)
    if job.waits_until is None or at < job.waits_until:
        return job
    message = "Training job pending time exceeded MaxPendingTimeInSeconds provided"
    return ask_to_stop(job, MAX_PENDING, at=at, message=message)


def interrupt(job: TrainingJob, why: str) -> TrainingJob:
    """The job with its place to give away; unchanged when it has none, or is leaving it anyway."""
    if job.attempt is None or job.attempt.interruption or job.status is not Status.IN_PROGRESS:
        return job
    return job.with_attempt(replace(job.attempt, interruption=why))
