"""Training jobs as the records keep them: the request as it was sent, and the job in our own words."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.clock import EPOCH, to_micros
from trainyard.foundation.jobs import FINAL, RuleState, TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.foundation.rules import rule_states
from trainyard.server.quotas import CapacityKind, taken
from trainyard.server.records.contract import Change, Draft, NewEvent, Resource, ResourceKey
from trainyard.server.spot import spot_counts

KIND = "training-job"
PENDING_LIMIT = "pending-limit"  # a resource that is due when a job may not wait, or take, any longer
LOG_GROUP = "/aws/sagemaker/TrainingJobs"

_BEFORE_SPOT = timedelta(days=10_000)  # more than any two jobs that wait are apart
_SPOT_FROM = datetime(2012, 1, 1, tzinfo=UTC)  # jobs on spot are due after it, others until the year 2039 before it
_NOT_OUTLINED = frozenset({"attempts", "artifacts", "notes", "card", "failure"})


def training_job_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"training-job/{name}")


def rule_job_arn(job: TrainingJob, rule: str) -> str:
    """The ARN by which clients tell the evaluation of a rule from others; there is no processing job behind it."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{job.name[:26]}-{rule[:26]}").strip("-").lower()
    digest = hashlib.sha256(f"{job.arn}/{rule}".encode()).hexdigest()[:8]
    return arn("sagemaker", job.region, job.account, f"processing-job/{words}-{digest}")


def draft_of(job: TrainingJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """A job that is due at once."""
    return Draft(
        ResourceKey(job.account, KIND, job.name),
        job.region,
        {"request": request, "job": to_plain(job)},
        status=job.status,
        tags=tags,
        arn=job.arn,
        due_at=due_at(job),
        line=line_name(job.plan.engine, site=job.site),
        counts=instances_of(job),
    )


def line_name(engine: str, *, site: str) -> str:
    """The line in which the jobs wait that are for an engine of a yard."""
    return f"{site}/{engine}"


def reminders_of(job: TrainingJob) -> list[Draft]:
    """What reminds the yard of the limits of a job's time; they are made before it, and harmless without it."""
    return [_reminder(job, due_at=limit) for limit in (job.waits_until, job.ends_until) if limit is not None]


def instances_of(job: TrainingJob) -> Mapping[str, int]:
    """What a job takes of its user's quotas until it has ended."""
    return taken(job.plan.instance_types, kind=capacity_kind_of(job))


def capacity_kind_of(job: TrainingJob) -> CapacityKind:
    return CapacityKind.SPOT if job.plan.is_spot else CapacityKind.ON_DEMAND


def job_of(resource: Resource) -> TrainingJob:
    return from_plain(TrainingJob, resource.body["job"])


def outline_of(resource: Resource) -> TrainingJob:
    """The job with its latest transition alone and without its attempts, read in a fifth of the time, for lists.

    One that keeps a warm pool is whole, because what became of that depends on its attempts.
    """
    plain = resource.body["job"]
    if plain["plan"].get("keep_alive_s"):
        return job_of(resource)
    kept = {name: value for name, value in plain.items() if name not in _NOT_OUTLINED}
    return from_plain(TrainingJob, kept | {"transitions": plain["transitions"][-1:]})


def request_of(resource: Resource) -> Mapping[str, Any]:
    """What the create call asked for, in the words of the wire."""
    request: Mapping[str, Any] = resource.body["request"]
    return request


def change_to(resource: Resource, job: TrainingJob) -> Change:
    """What to write so that the job is remembered as it is now.

    Only a new status counts as a modification, as on AWS: metrics and cursors come by the second. A job that has ended
    gives back what it took of its user's quotas, and one on spot adds to the sums of those.
    """
    has_ended = job.is_final and resource.status not in FINAL
    return Change(
        status=job.status,
        body={**resource.body, "job": to_plain(job)},
        due_at=due_at(job),
        counts=_counts_at_end(job) if has_ended else {},
        is_quiet=len(job.transitions) == len(resource.body["job"]["transitions"]),
        is_settling=job.is_final,
    )


def due_at(job: TrainingJob) -> datetime | None:
    """Jobs that have a place are due before any that wait, and those as they came, those on spot behind all others."""
    if job.is_final:
        return None
    if job.attempt is not None:
        return EPOCH
    return job.created_at if job.plan.is_spot else job.created_at - _BEFORE_SPOT


def is_of_spot(due: datetime) -> bool:
    """Whether a job that waits is on spot, by when it is due."""
    return due > _SPOT_FROM


def waits_since(due: datetime) -> datetime:
    """When a job that waits was created, by when it is due."""
    return due if is_of_spot(due) else due + _BEFORE_SPOT


def events_of(before: TrainingJob, after: TrainingJob) -> list[NewEvent]:
    """What happened between two states of a job, for those who watch."""
    known = len(before.transitions)
    steps = [
        NewEvent("training-job.status", {"status": step.status, "message": step.message})
        for step in after.transitions[known:]
    ]
    notes = [NewEvent("training-job.note", {"text": note}) for note in after.notes[len(before.notes) :]]
    return steps + notes + _rule_events(before, after)


def _rule_events(before: TrainingJob, after: TrainingJob) -> list[NewEvent]:
    known = rule_states(before)
    return [
        NewEvent(
            "training-job.rule",
            {
                "rule": state.name,
                "status": state.status,
                "details": state.details,
                "judged": state.judged,
                "dropped": state.dropped,
                "findings": list(state.findings[len(was.findings) :]),
            },
        )
        for was, state in zip(known, rule_states(after), strict=True)
        if _is_news(was, state)
    ]


def _is_news(was: RuleState, state: RuleState) -> bool:
    """Whether users would want to know; that some more steps were judged is none."""
    return (was.status, was.details, was.findings) != (state.status, state.details, state.findings)


def _counts_at_end(job: TrainingJob) -> Mapping[str, int]:
    return {**{name: -count for name, count in instances_of(job).items()}, **spot_counts(job)}


def _reminder(job: TrainingJob, *, due_at: datetime) -> Draft:
    name = f"{job.name}/{to_micros(job.created_at)}-{secrets.token_hex(8)}"
    return Draft(ResourceKey(job.account, PENDING_LIMIT, name), job.region, {"job": job.name}, due_at=due_at)
