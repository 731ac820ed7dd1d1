"""How a job ends, is retried or is queued again, depending on how its instances ended. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.foundation.failures import LOST_INSTANCE, is_platform_failure
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, OutcomeKind
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.transitions import J, advance, interrupt, may_become, stopped_status
from trainyard.link.contract import INTERRUPTED, CommandKind
from trainyard.server.control.instances.reports import MAX_NOTES, live_attempt

# How long to wait for the instance that caused a failure to report it.
CAUSE_TIMEOUT = timedelta(seconds=3)
_FAILURES = (OutcomeKind.FAILED, OutcomeKind.LOST)
MAX_RUNTIME = "max_runtime"  # reason of an instance whose time was over


def has_failed(attempt: Attempt) -> bool:
    return any(instance.outcome in _FAILURES for instance in attempt.instances)


def first_failure_at(attempt: Attempt) -> datetime:
    """Return when the first failed instance ended."""
    return min(each.ended_at for each in attempt.instances if each.outcome in _FAILURES and each.ended_at)


def awaits_cause(job: InstanceJob, *, now: datetime) -> bool:
    """Whether the failed instances only lost connections, and the instance that caused it may still report why."""
    attempt = live_attempt(job)
    is_consequence = has_failed(attempt) and bool(job.card.get("is_consequence"))
    return is_consequence and now - first_failure_at(attempt) < CAUSE_TIMEOUT


def has_ended(attempt: Attempt) -> bool:
    return all(instance.has_ended for instance in attempt.instances)


def mark_lost(job: J, name: str, *, at: datetime) -> J:
    """Mark an instance as lost whose agent died without its last report.

    Others that failed with it failed because it was gone. If others had failed before, that is why it was killed, and
    their failure stays the reason.
    """
    attempt = live_attempt(job)
    summary = (
        f"The agent of {name} died before the instance had ended. The machine may have run out of memory, or somebody "
        "killed the agent. What the program printed until then is in its log."
    )
    reason = f"InternalServerError: {summary}"
    instance = replace(attempt.instance(name), outcome=OutcomeKind.LOST, reason=reason, ended_at=at)
    after = job.with_attempt(attempt.with_instance(instance))
    if job.failure and (attempt.told == CommandKind.KILL or job.card.get("kind") == LOST_INSTANCE):
        return after
    advice = f"{job.lifecycle.lost_advice} when this happens."
    card = {"kind": LOST_INSTANCE, "instance": name, "summary": summary, "advice": advice}
    return replace(after, failure=reason, card=card)


def mark_node_lost(job: J, name: str, *, at: datetime) -> J:
    """Mark an instance as lost because its node went away. A spot job is interrupted by that, any other job fails.

    Others that failed with it failed because it was gone, unless one of them has a reason of its own.
    """
    attempt = live_attempt(job)
    summary = f'The node "{attempt.instance(name).share.node}" of {name} went away.'
    instance = replace(attempt.instance(name), outcome=OutcomeKind.LOST, reason=summary, ended_at=at)
    after = job.with_attempt(attempt.with_instance(instance))
    if job.plan.is_spot and (not job.failure or job.card.get("is_consequence")):
        return interrupt(replace(after, failure="", card={}), summary)
    if job.failure and not job.card.get("is_consequence"):
        return after
    advice = f"{job.lifecycle.lost_advice} on another node when this happens."
    card = {"kind": LOST_INSTANCE, "instance": name, "summary": summary, "advice": advice}
    return replace(after, failure=f"InternalServerError: {summary}", card=card)


def can_retry(job: InstanceJob, *, now: datetime) -> bool:
    """Whether to retry a job whose attempt failed: nobody stopped it, and the failure was not its own."""
    if job.stop_reason or not is_platform_failure(job.card) or job.retries_used >= job.plan.retries:
        return False
    may_restart = job.secondary is SecondaryStatus.RESTARTING or may_become(job, SecondaryStatus.RESTARTING)
    return _has_time_left(_close_attempt(job, now=now)) and may_restart


def retry_job(job: J, again: Attempt) -> J:
    """Give a job another attempt after one that was lost. Only the history keeps the lost one's failure."""
    attempt = _close_attempt(job, now=again.placed_at).attempts[-1]
    message = (
        f"Attempt {attempt.number} was lost. Retry {job.retries_used + 1} of {job.plan.retries} starts the job again."
    )
    failed = replace(attempt, failure=job.failure, card=job.card)
    after = replace(job, attempts=(*job.attempts[:-1], failed, again), failure="", card={})
    if job.secondary is not SecondaryStatus.RESTARTING:
        # It is Restarting already if the attempt before could not be started.
        after = advance(after, SecondaryStatus.RESTARTING, at=again.placed_at, message=message)
    return after.with_notes(f"{message} {failed.failure}")


def requeue_without_nodes(job: J, *, now: datetime) -> J:
    """Put a job back in the queue after an attempt whose nodes are gone.

    A job that failed by that has used one of its retries; one that had not started has not.
    """
    closed = _close_attempt(job, now=now)
    attempt = replace(closed.attempts[-1], failure=job.failure, card=job.card)
    after = replace(closed.with_attempt(attempt), failure="", card={})
    if job.secondary is SecondaryStatus.RESTARTING:
        return after
    message = f"Attempt {attempt.number} lost its nodes. The job starts again when there is capacity."
    return advance(after, SecondaryStatus.RESTARTING, at=attempt.ended_at or now, message=message).with_notes(
        f"{message} {attempt.failure}".strip()
    )


def was_interrupted(job: InstanceJob) -> bool:
    """Whether the attempt ended because it was interrupted, and not by itself just before that."""
    instances = live_attempt(job).instances
    if not live_attempt(job).interruption or job.stop_reason:
        return False
    if any(each.outcome is OutcomeKind.LOST and each.reason == live_attempt(job).interruption for each in instances):
        return True
    if any(map(_ran_out_of_time, instances)) or all(each.outcome is OutcomeKind.COMPLETED for each in instances):
        return False
    if any(each.outcome is OutcomeKind.FAILED for each in instances):
        # An instance fails when the others that it talks to are gone.
        return any(each.outcome is OutcomeKind.STOPPED and each.reason == INTERRUPTED for each in instances)
    return True


def requeue_interrupted(job: J, *, now: datetime) -> J:
    """Put an interrupted job back in the queue, or end it if its running time is used up."""
    ended = replace(_close_attempt(job, now=now), failure="", card={})
    attempt = ended.attempts[-1]
    at = attempt.ended_at or now
    if not _has_time_left(ended):
        return advance(ended, SecondaryStatus.MAX_RUNTIME_EXCEEDED, at=at)
    after = advance(ended, SecondaryStatus.INTERRUPTED, at=at)
    note = f"Attempt {attempt.number} was interrupted: {attempt.interruption}"
    return after.with_notes(note) if len(after.notes) < MAX_NOTES else after


def finish_job(job: J, *, now: datetime) -> J:
    """Return the job in its final status, once all its instances have ended and nothing of them is left.

    Its time ends with its last instance, which may be long before the yard noticed.
    """
    ended = _close_attempt(job, now=now)
    attempt = ended.attempts[-1]
    if _failed_because_others_stopped(job, attempt):
        ended = replace(ended, failure="", card={})
    return advance(ended, _final_status(job, attempt), at=attempt.ended_at or now)


def _has_time_left(job: InstanceJob) -> bool:
    """Whether the ended attempts of a job, together, have not used up its running time."""
    return job.time_used < timedelta(seconds=job.plan.max_runtime_s)


def _close_attempt(job: J, *, now: datetime) -> J:
    """End the live attempt of a job when its last instance ended, but not before the job's last transition."""
    attempt = live_attempt(job)
    at = max((instance.ended_at for instance in attempt.instances if instance.ended_at), default=now)
    return job.with_attempt(replace(attempt, ended_at=max(at, job.transitions[-1].started_at)))


def _failed_because_others_stopped(job: InstanceJob, attempt: Attempt) -> bool:
    """Whether the failed instances only lost contact with others that had been stopped before them."""
    badly_ended = [each for each in attempt.instances if each.outcome in _FAILURES]
    if not badly_ended or any(each.outcome is OutcomeKind.LOST for each in badly_ended):
        return False
    if any(map(_ran_out_of_time, attempt.instances)):
        return bool(job.card.get("is_consequence"))
    asked_at = job.transitions[-1].started_at if job.secondary is SecondaryStatus.STOPPING else None
    has_stopped = any(each.outcome is OutcomeKind.STOPPED for each in attempt.instances)
    return has_stopped and all(asked_at and each.ended_at and each.ended_at >= asked_at for each in badly_ended)


def _final_status(job: InstanceJob, attempt: Attempt) -> SecondaryStatus:
    if has_failed(attempt) and not _failed_because_others_stopped(job, attempt):
        return SecondaryStatus.FAILED
    if any(map(_ran_out_of_time, attempt.instances)):
        return SecondaryStatus.MAX_RUNTIME_EXCEEDED
    is_stopped = any(instance.outcome is not OutcomeKind.COMPLETED for instance in attempt.instances)
    if is_stopped or job.secondary is SecondaryStatus.STOPPING:
        return stopped_status(job)
    return SecondaryStatus.COMPLETED


def _ran_out_of_time(instance: InstanceState) -> bool:
    return instance.outcome is OutcomeKind.STOPPED and instance.reason == MAX_RUNTIME
