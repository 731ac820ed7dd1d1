"""Training jobs as the records store them: the request as it was sent, and the job in our own terms."""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import FINAL
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.rules import profiler_rule_states, rule_states
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.jobs.queues import queue_name
from trainyard.server.jobs.quotas import CapacityKind, quota_counts
from trainyard.server.jobs.spot import spot_counts
from trainyard.server.records.contract import (
    Change,
    Draft,
    NewEvent,
    Priority,
    QueueState,
    Records,
    Resource,
    ResourceId,
    ResourceKey,
)

KIND = "training-job"
# The kind of resource that becomes due when a job has reached its limit of waiting or total time.
PENDING_LIMIT = "pending-limit"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"

_NOT_OUTLINED = frozenset({"attempts", "artifacts", "notes", "card", "failure", "profiler_rules"})


def training_job_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"training-job/{name}")


def rule_job_arn(job: TrainingJob, rule: str) -> str:
    """Return the ARN that identifies a rule evaluation to clients. There is no processing job behind it."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{job.name[:26]}-{rule[:26]}").strip("-").lower()
    digest = hashlib.sha256(f"{job.arn}/{rule}".encode()).hexdigest()[:8]
    return arn("sagemaker", job.region, job.account, f"processing-job/{words}-{digest}")


def draft_of(job: TrainingJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """Return the draft of a job that is due at once."""
    return Draft(
        ResourceKey(job.account, KIND, job.name),
        job.region,
        {"request": request, "job": to_plain(job)},
        status=job.status,
        tags=tags,
        arn=job.arn,
        due_at=job.created_at,
        state=queue_state(job),
        queue=queue_name(job.plan.engine, site=job.site),
        priority=priority_of(job),
        counts=quota_counts_of(job),
    )


def reminders_of(job: TrainingJob) -> list[Draft]:
    """Return the drafts that become due at a job's time limits. They precede the job and do no harm without it."""
    return [_reminder(job, due_at=limit) for limit in (job.waits_until, job.ends_until) if limit is not None]


def quota_counts_of(job: TrainingJob) -> Mapping[str, int]:
    """Return what a job uses of its user's quotas until it has ended."""
    return quota_counts(job.plan.instance_types, kind=capacity_kind_of(job))


def capacity_kind_of(job: TrainingJob) -> CapacityKind:
    return CapacityKind.SPOT if job.plan.is_spot else CapacityKind.ON_DEMAND


def job_of(resource: Resource) -> TrainingJob:
    return from_plain(TrainingJob, resource.body["job"])


def outline_of(resource: Resource) -> TrainingJob:
    """Return the job with only its latest transition and without its attempts, for lists: five times faster to read.

    A job that keeps a warm pool is returned whole, because the state of the pool depends on its attempts.
    """
    plain = resource.body["job"]
    if plain["plan"].get("keep_alive_s"):
        return job_of(resource)
    outline = {name: value for name, value in plain.items() if name not in _NOT_OUTLINED}
    return from_plain(TrainingJob, outline | {"transitions": plain["transitions"][-1:]})


def request_of(resource: Resource) -> Mapping[str, Any]:
    """Return the request of the create call, in wire terms."""
    request: Mapping[str, Any] = resource.body["request"]
    return request


def tagged_request(records: Records, job_id: ResourceId) -> Mapping[str, Any]:
    """Return the request of the create call with the tags that the job has now, in wire terms."""
    resource = records.load_by_id(job_id)
    tags = records.tags(resource.key.account, resource.body["job"]["arn"])
    return {**request_of(resource), "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def change_to(resource: Resource, job: TrainingJob) -> Change:
    """Return the change that stores the job as it is now.

    As on AWS, only a new status counts as a modification: metrics and cursors change every second. A job that has ended
    returns what it used of its user's quotas, and a spot job adds to the spot totals.
    """
    has_ended = job.is_final and resource.status not in FINAL
    return Change(
        status=job.status,
        body={**resource.body, "job": to_plain(job)},
        due_at=job.created_at,
        state=queue_state(job),
        counts=_counts_at_end(job) if has_ended else {},
        is_quiet=len(job.transitions) == len(resource.body["job"]["transitions"]),
        is_settling=job.is_final,
    )


def release_of(job: TrainingJob) -> Change:
    """Return the change that gives a claimed job back as it is."""
    return Change(due_at=job.created_at, state=queue_state(job), is_quiet=True, is_settling=job.is_final)


def queue_state(job: TrainingJob) -> QueueState:
    if job.is_final:
        return QueueState.UNQUEUED
    return QueueState.WAITING if job.attempt is None else QueueState.PLACED


def priority_of(job: TrainingJob) -> Priority:
    return Priority.SPOT if job.plan.is_spot else Priority.ON_DEMAND


def events_of(before: TrainingJob, after: TrainingJob) -> list[NewEvent]:
    """Return what happened between two states of a job, for clients that follow it."""
    known = len(before.transitions)
    steps = [
        NewEvent("training-job.status", {"status": step.status, "message": step.message})
        for step in after.transitions[known:]
    ]
    notes = [NewEvent("training-job.note", {"text": note}) for note in after.notes[len(before.notes) :]]
    return steps + notes + _rule_events(before, after)


def _rule_events(before: TrainingJob, after: TrainingJob) -> list[NewEvent]:
    # A rule of the debugger and one of the profiler may have the same name.
    return [
        event
        for states in (rule_states, profiler_rule_states)
        for event in _events_of_states(states(before), states(after))
    ]


def _events_of_states(before: Sequence[RuleState], after: Sequence[RuleState]) -> list[NewEvent]:
    known = {state.name: state for state in before}
    return [
        NewEvent(
            "training-job.rule",
            {
                "rule": state.name,
                "status": state.status,
                "details": state.details,
                "judged": state.judged,
                "dropped": state.dropped,
                "findings": list(state.findings[len(known[state.name].findings) :]),
            },
        )
        for state in after
        if state.name in known and _is_news(known[state.name], state)
    ]


def _is_news(was: RuleState, state: RuleState) -> bool:
    """Whether users would want to know. A change in the number of evaluated steps alone is not news."""
    return (was.status, was.details, was.findings) != (state.status, state.details, state.findings)


def _counts_at_end(job: TrainingJob) -> Mapping[str, int]:
    return {**{name: -count for name, count in quota_counts_of(job).items()}, **spot_counts(job)}


def _reminder(job: TrainingJob, *, due_at: datetime) -> Draft:
    name = f"{job.name}/{to_micros(job.created_at)}-{secrets.token_hex(8)}"
    return Draft(ResourceKey(job.account, PENDING_LIMIT, name), job.region, {"job": job.name}, due_at=due_at)
