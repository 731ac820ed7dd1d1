"""How a training job gets from one status to the next, and when it has waited or run for too long."""

from datetime import datetime

from trainyard.foundation.jobs import transitions
from trainyard.foundation.jobs.status import Transition
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.statuses import LEGAL, MAX_PENDING, MAX_WAIT, MESSAGES
from trainyard.foundation.jobs.transitions import advance, ask_to_stop, interrupt, may_become, stopped_status

__all__ = [
    "LEGAL",
    "MAX_PENDING",
    "MAX_WAIT",
    "MESSAGES",
    "advance",
    "ask_to_stop",
    "first_transition",
    "give_up",
    "interrupt",
    "may_become",
    "stopped_status",
]


def first_transition(at: datetime) -> Transition:
    """Return the first entry of the history of every training job."""
    return transitions.first_transition(MESSAGES, at)


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
