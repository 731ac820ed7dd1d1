"""How a training job ends, as its instances ended. Pure."""

from dataclasses import replace
from datetime import datetime

from trainyard.foundation.jobs import Attempt, InstanceState, Outcome, SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance
from trainyard.server.control.reports import live_attempt

MAX_RUNTIME = "max_runtime"  # the reason of an instance that stopped because its time was over


def has_failed(attempt: Attempt) -> bool:
    return any(instance.outcome in (Outcome.FAILED, Outcome.LOST) for instance in attempt.instances)


def has_ended(attempt: Attempt) -> bool:
    return all(instance.has_ended for instance in attempt.instances)


def lost(job: TrainingJob, name: str, *, at: datetime) -> TrainingJob:
    """The job after the agent of an instance was found dead without its last report."""
    attempt = live_attempt(job)
    reason = (
        f"InternalServerError: The agent of {name} died before the instance had ended; the machine may have been short "
        "of memory, or somebody killed it. What the program printed until then is in its log."
    )
    instance = replace(attempt.instance(name), outcome=Outcome.LOST, reason=reason, ended_at=at)
    return replace(job.with_attempt(attempt.with_instance(instance)), failure=job.failure or reason)


def conclude(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job in its final status, once all its instances have ended and nothing of them is left.

    Its time ends with its last instance, which may have been long before the yard came to know.
    """
    attempt = live_attempt(job)
    at = max((instance.ended_at for instance in attempt.instances if instance.ended_at), default=now)
    ended = job.with_attempt(replace(attempt, ended_at=at))
    return advance(ended, _final_status(job, attempt), at=at)


def _final_status(job: TrainingJob, attempt: Attempt) -> SecondaryStatus:
    if has_failed(attempt):
        return SecondaryStatus.FAILED
    if any(map(_ran_out_of_time, attempt.instances)):
        return SecondaryStatus.MAX_RUNTIME_EXCEEDED
    is_stopped = any(instance.outcome is not Outcome.COMPLETED for instance in attempt.instances)
    if is_stopped or job.secondary is SecondaryStatus.STOPPING:
        return SecondaryStatus.STOPPED
    return SecondaryStatus.COMPLETED


def _ran_out_of_time(instance: InstanceState) -> bool:
    return instance.outcome is Outcome.STOPPED and instance.reason == MAX_RUNTIME
