"""How a training job ends, or is tried again, as its instances ended. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.foundation.failures import LOST_INSTANCE, is_of_the_platform
from trainyard.foundation.jobs import Attempt, InstanceState, Outcome, SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance, interrupt, may_become, stopped_status
from trainyard.link.contract import INTERRUPTED, CommandKind
from trainyard.server.control.reports import MAX_NOTES, live_attempt

CAUSE_PATIENCE = timedelta(seconds=3)  # with a program that may be busy writing why it fails
_BADLY = (Outcome.FAILED, Outcome.LOST)
MAX_RUNTIME = "max_runtime"  # the reason of an instance that stopped because its time was over


def has_failed(attempt: Attempt) -> bool:
    return any(instance.outcome in _BADLY for instance in attempt.instances)


def first_failure_at(attempt: Attempt) -> datetime:
    """When the first of its instances that failed had ended."""
    return min(each.ended_at for each in attempt.instances if each.outcome in _BADLY and each.ended_at)


def awaits_cause(job: TrainingJob, *, now: datetime) -> bool:
    """Whether those that failed only lost their connections, and the one that broke them may be about to tell why."""
    attempt = live_attempt(job)
    is_consequence = has_failed(attempt) and bool(job.card.get("is_consequence"))
    return is_consequence and now - first_failure_at(attempt) < CAUSE_PATIENCE


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


def taken(job: TrainingJob, name: str, *, at: datetime) -> TrainingJob:
    """The job after an instance was lost because its node went away: interrupted if it is on spot, else failed by that.

    Those that failed with it did so because it was gone, unless one of them has a reason of its own.
    """
    attempt = live_attempt(job)
    summary = f'The node "{attempt.instance(name).share.node}" went away, on which {name} ran.'
    instance = replace(attempt.instance(name), outcome=Outcome.LOST, reason=summary, ended_at=at)
    after = job.with_attempt(attempt.with_instance(instance))
    if job.plan.is_spot and (not job.failure or job.card.get("is_consequence")):
        return interrupt(replace(after, failure="", card={}), summary)
    if job.failure and not job.card.get("is_consequence"):
        return after
    advice = "Give the job a RetryStrategy, by which it is started again on another node when this happens."
    card = {"kind": LOST_INSTANCE, "instance": name, "summary": summary, "advice": advice}
    return replace(after, failure=f"InternalServerError: {summary}", card=card)


def may_be_retried(job: TrainingJob, *, now: datetime) -> bool:
    """Whether a job whose attempt failed is to be tried again: nobody has stopped it, and it was not its own fault."""
    if job.stop_reason or not is_of_the_platform(job.card) or job.retries_used >= job.plan.retries:
        return False
    may_restart = job.secondary is SecondaryStatus.RESTARTING or may_become(job, SecondaryStatus.RESTARTING)
    return _has_time(_closed(job, now=now)) and may_restart


def retried(job: TrainingJob, again: Attempt) -> TrainingJob:
    """The job with another attempt after one that was lost, and nothing left of that one but its place in history."""
    attempt = _closed(job, now=again.placed_at).attempts[-1]
    message = (
        f"Attempt {attempt.number} was lost. Retry {job.retries_used + 1} of {job.plan.retries} starts the job again."
    )
    failed = replace(attempt, failure=job.failure, card=job.card)
    after = replace(job, attempts=(*job.attempts[:-1], failed, again), failure="", card={})
    if job.secondary is not SecondaryStatus.RESTARTING:  # as it is where the attempt before could not be started
        after = advance(after, SecondaryStatus.RESTARTING, at=again.placed_at, message=message)
    return after.noted(f"{message} {failed.failure}")


def waits_again(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job without a place, in line for another one, after an attempt whose nodes are gone.

    One that failed by that has used one of its retries; one that had not started has not.
    """
    closed = _closed(job, now=now)
    attempt = replace(closed.attempts[-1], failure=job.failure, card=job.card)
    after = replace(closed.with_attempt(attempt), failure="", card={})
    if job.secondary is SecondaryStatus.RESTARTING:
        return after
    message = f"Attempt {attempt.number} lost its nodes. The job starts again when there is room."
    return advance(after, SecondaryStatus.RESTARTING, at=attempt.ended_at or now, message=message).noted(
        f"{message} {attempt.failure}".strip()
    )


def gave_way(job: TrainingJob) -> bool:
    """Whether the attempt ended because its place was given away, and not of itself just before that could be."""
    instances = live_attempt(job).instances
    if not live_attempt(job).interruption or job.stop_reason:
        return False
    if any(each.outcome is Outcome.LOST and each.reason == live_attempt(job).interruption for each in instances):
        return True
    if any(map(_ran_out_of_time, instances)) or all(each.outcome is Outcome.COMPLETED for each in instances):
        return False
    if any(each.outcome is Outcome.FAILED for each in instances):
        # One of several fails when those that it talks to are gone.
        return any(each.outcome is Outcome.STOPPED and each.reason == INTERRUPTED for each in instances)
    return True


def interrupted(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job without its place, waiting for another one; at its end if its running time is used up."""
    ended = replace(_closed(job, now=now), failure="", card={})
    attempt = ended.attempts[-1]
    at = attempt.ended_at or now
    if not _has_time(ended):
        return advance(ended, SecondaryStatus.MAX_RUNTIME_EXCEEDED, at=at)
    after = advance(ended, SecondaryStatus.INTERRUPTED, at=at)
    note = f"Attempt {attempt.number} was interrupted: {attempt.interruption}"
    return after.noted(note) if len(after.notes) < MAX_NOTES else after


def conclude(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job in its final status, once all its instances have ended and nothing of them is left.

    Its time ends with its last instance, which may have been long before the yard came to know.
    """
    ended = _closed(job, now=now)
    attempt = ended.attempts[-1]
    if _failed_because_others_stopped(job, attempt):
        ended = replace(ended, failure="", card={})
    return advance(ended, _final_status(job, attempt), at=attempt.ended_at or now)


def _has_time(job: TrainingJob) -> bool:
    """Whether the ended attempts of a job have not used up its time, which is for all attempts together."""
    return job.time_used < timedelta(seconds=job.plan.max_runtime_s)


def _closed(job: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job with its attempt ended: when its last instance did, but never before the job came to where it is."""
    attempt = live_attempt(job)
    at = max((instance.ended_at for instance in attempt.instances if instance.ended_at), default=now)
    return job.with_attempt(replace(attempt, ended_at=max(at, job.transitions[-1].started_at)))


def _failed_because_others_stopped(job: TrainingJob, attempt: Attempt) -> bool:
    """Whether all instances that failed only lost the ones they talked to, which had been stopped before them."""
    badly_ended = [each for each in attempt.instances if each.outcome in _BADLY]
    if not badly_ended or any(each.outcome is Outcome.LOST for each in badly_ended):
        return False
    if any(map(_ran_out_of_time, attempt.instances)):
        return bool(job.card.get("is_consequence"))
    asked_at = job.transitions[-1].started_at if job.secondary is SecondaryStatus.STOPPING else None
    has_stopped = any(each.outcome is Outcome.STOPPED for each in attempt.instances)
    return has_stopped and all(asked_at and each.ended_at and each.ended_at >= asked_at for each in badly_ended)


def _final_status(job: TrainingJob, attempt: Attempt) -> SecondaryStatus:
    if has_failed(attempt) and not _failed_because_others_stopped(job, attempt):
        return SecondaryStatus.FAILED
    if any(map(_ran_out_of_time, attempt.instances)):
        return SecondaryStatus.MAX_RUNTIME_EXCEEDED
    is_stopped = any(instance.outcome is not Outcome.COMPLETED for instance in attempt.instances)
    if is_stopped or job.secondary is SecondaryStatus.STOPPING:
        return stopped_status(job)
    return SecondaryStatus.COMPLETED


def _ran_out_of_time(instance: InstanceState) -> bool:
    return instance.outcome is Outcome.STOPPED and instance.reason == MAX_RUNTIME
