"""How a training job ends, or is tried again, as its instances ended. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.foundation.failures import LOST_INSTANCE, is_of_the_platform
from trainyard.foundation.jobs import Attempt, InstanceState, Outcome, SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance, may_become
from trainyard.link.contract import CommandKind
from trainyard.server.control.reports import live_attempt

MAX_RUNTIME = "max_runtime"  # the reason of an instance that stopped because its time was over


def has_failed(attempt: Attempt) -> bool:
    return any(instance.outcome in (Outcome.FAILED, Outcome.LOST) for instance in attempt.instances)


def has_ended(attempt: Attempt) -> bool:
    return all(instance.has_ended for instance in attempt.instances)


def lost(job: TrainingJob, name: str, *, at: datetime) -> TrainingJob:
    """The job after the agent of an instance was found dead without its last report.

    Others that failed with it did so because it was gone. Those that had failed before were why it was told to end.
    """
    attempt = live_attempt(job)
    summary = (
        f"The agent of {name} died before the instance had ended; the machine may have been short of memory, or "
        "somebody killed it. What the program printed until then is in its log."
    )
    reason = f"InternalServerError: {summary}"
    instance = replace(attempt.instance(name), outcome=Outcome.LOST, reason=reason, ended_at=at)
    after = job.with_attempt(attempt.with_instance(instance))
    if job.failure and (attempt.told == CommandKind.KILL or job.card.get("kind") == LOST_INSTANCE):
        return after
    advice = "Give the job a RetryStrategy, by which it is started again when this happens."
    card = {"kind": LOST_INSTANCE, "instance": name, "summary": summary, "advice": advice}
    return replace(after, failure=reason, card=card)


def may_be_retried(job: TrainingJob, *, now: datetime) -> bool:
    """Whether a job whose attempt failed is to be tried again: nobody has stopped it, and it was not its own fault."""
    if job.stop_reason or not is_of_the_platform(job.card) or job.retries_used >= job.plan.retries:
        return False
    # The time limit is for all attempts together.
    has_time = _closed(job, now=now).time_used < timedelta(seconds=job.plan.max_runtime_s)
    return has_time and may_become(job, SecondaryStatus.RESTARTING)


def retried(job: TrainingJob, again: Attempt) -> TrainingJob:
    """The job with another attempt after one that was lost, and nothing left of that one but its place in history."""
    attempt = _closed(job, now=again.placed_at).attempts[-1]
    message = (
        f"Attempt {attempt.number} was lost. Retry {job.retries_used + 1} of {job.plan.retries} starts the job again."
    )
    failed = replace(attempt, failure=job.failure, card=job.card)
    after = replace(job, attempts=(*job.attempts[:-1], failed, again), failure="", card={})
    after = advance(after, SecondaryStatus.RESTARTING, at=again.placed_at, message=message)
    return after.noted(f"{message} {failed.failure}")


def conclude(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job in its final status, once all its instances have ended and nothing of them is left.

    Its time ends with its last instance, which may have been long before the yard came to know.
    """
    ended = _closed(job, now=now)
    attempt = ended.attempts[-1]
    return advance(ended, _final_status(job, attempt), at=attempt.ended_at or now)


def _closed(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job with its attempt ended: when its last instance did, but never before the job came to where it is."""
    attempt = live_attempt(job)
    at = max((instance.ended_at for instance in attempt.instances if instance.ended_at), default=now)
    return job.with_attempt(replace(attempt, ended_at=max(at, job.transitions[-1].started_at)))


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
