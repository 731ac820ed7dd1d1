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
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.rules import profiler_rule_states, rule_states
from trainyard.foundation.plain import from_plain
from trainyard.server.jobs.instance_jobs import change_for, draft_for
from trainyard.server.jobs.spot import spot_counts
from trainyard.server.records.contract import (
    Change,
    Draft,
    NewEvent,
    Resource,
    ResourceKey,
)

KIND = "training-job"
# The kind of resource that becomes due when a job has reached its limit of waiting or total time.
PENDING_LIMIT = "pending-limit"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
METRIC_DIMENSION = "TrainingJobName"

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
    return draft_for(KIND, job, request, tags=tags)


def reminders_of(job: TrainingJob) -> list[Draft]:
    """Return the drafts that become due at a job's time limits. They precede the job and do no harm without it."""
    return [_reminder(job, due_at=limit) for limit in (job.waits_until, job.ends_until) if limit is not None]


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


def change_to(resource: Resource, job: TrainingJob) -> Change:
    """Return the change that stores the job as it is now. A spot job that has ended adds to the spot totals."""
    return change_for(resource, job, counts_at_end=spot_counts(job) if job.is_final else None)


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


def _reminder(job: TrainingJob, *, due_at: datetime) -> Draft:
    name = f"{job.name}/{to_micros(job.created_at)}-{secrets.token_hex(8)}"
    return Draft(ResourceKey(job.account, PENDING_LIMIT, name), job.region, {"job": job.name}, due_at=due_at)
