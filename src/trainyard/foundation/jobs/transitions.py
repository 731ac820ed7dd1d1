"""How a job with instances gets from one status to the next, by the table of its kind."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from trainyard.foundation.errors import Conflict
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import FINAL, PRIMARY, SecondaryStatus, Status, Transition

J = TypeVar("J", bound=InstanceJob)

_S = SecondaryStatus


def first_transition(messages: Mapping[SecondaryStatus, str], at: datetime) -> Transition:
    """Return the first entry of the history of every job."""
    return Transition(_S.PENDING, at, messages[_S.PENDING])


def may_become(job: InstanceJob, to: SecondaryStatus) -> bool:
    return to in job.lifecycle.legal[job.secondary]


def advance(job: J, to: SecondaryStatus, *, at: datetime, message: str = "") -> J:
    """Return the job in its next status. Conflict if the transition is not legal.

    If a clock was set back and `at` is before the last transition, the time of that transition counts.
    """
    if not may_become(job, to):
        raise Conflict(job.lifecycle.noun, job.name, f"is {job.secondary} and cannot become {to}")
    last = job.transitions[-1]
    at = max(at, last.started_at)
    closed = replace(last, ended_at=at)
    ends_too = at if PRIMARY[to] in FINAL else None
    entered = Transition(to, at, message or job.lifecycle.messages[to], ended_at=ends_too)
    return replace(job, transitions=(*job.transitions[:-1], closed, entered))


def ask_to_stop(job: J, reason: str, *, at: datetime, message: str = "") -> J:
    """Return the job as Stopping, or stopped if nothing of it runs; unchanged if it is Stopping already."""
    if job.secondary is _S.STOPPING:
        return job
    stopping = replace(advance(job, _S.STOPPING, at=at, message=message), stop_reason=reason)
    return stopping if stopping.attempt else advance(stopping, stopped_status(stopping), at=at, message=message)


def stopped_status(job: InstanceJob) -> SecondaryStatus:
    """Return the final status of a job that was asked to stop."""
    return job.lifecycle.stopped_for.get(job.stop_reason, _S.STOPPED)


def interrupt(job: J, why: str) -> J:
    """Return the job with its live attempt marked as interrupted; unchanged if it has none, or is ending anyway."""
    if job.attempt is None or job.attempt.interruption or job.status is not Status.IN_PROGRESS:
        return job
    return job.with_attempt(replace(job.attempt, interruption=why))
