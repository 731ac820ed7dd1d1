"""What the records keep of jobs with instances of every kind: their queue state, their quotas and their request."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import FINAL
from trainyard.foundation.plain import to_plain
from trainyard.server.jobs.queues import queue_name
from trainyard.server.jobs.quotas import CapacityKind, quota_counts
from trainyard.server.records.contract import (
    Change,
    Draft,
    Priority,
    QueueState,
    Records,
    Resource,
    ResourceId,
    ResourceKey,
)


def draft_for(kind: str, job: InstanceJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """Return the draft of a job that is due at once."""
    return Draft(
        ResourceKey(job.account, kind, job.name),
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


def change_for(resource: Resource, job: InstanceJob, *, counts_at_end: Mapping[str, int] | None = None) -> Change:
    """Return the change that stores the job as it is now.

    As on AWS, only a new status counts as a modification: metrics and cursors change every second. A job that has ended
    returns what it used of its user's quotas, and adds `counts_at_end` to the counters of its account.
    """
    has_ended = job.is_final and resource.status not in FINAL
    returned = {name: -count for name, count in quota_counts_of(job).items()}
    return Change(
        status=job.status,
        body={**resource.body, "job": to_plain(job)},
        due_at=job.created_at,
        state=queue_state(job),
        counts={**returned, **(counts_at_end or {})} if has_ended else {},
        is_quiet=len(job.transitions) == len(resource.body["job"]["transitions"]),
        is_settling=job.is_final,
    )


def quota_counts_of(job: InstanceJob) -> Mapping[str, int]:
    """Return what a job uses of its user's quotas until it has ended."""
    return quota_counts(job.plan.instance_types, kind=capacity_kind_of(job))


def capacity_kind_of(job: InstanceJob) -> CapacityKind:
    return CapacityKind.SPOT if job.plan.is_spot else CapacityKind.ON_DEMAND


def request_of(resource: Resource) -> Mapping[str, Any]:
    """Return the request of the create call, in wire terms."""
    request: Mapping[str, Any] = resource.body["request"]
    return request


def tagged_request(records: Records, job_id: ResourceId) -> Mapping[str, Any]:
    """Return the request of the create call with the tags that the job has now, in wire terms."""
    resource = records.load_by_id(job_id)
    tags = records.tags(resource.key.account, resource.body["job"]["arn"])
    return {**request_of(resource), "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def release_of(job: InstanceJob) -> Change:
    """Return the change that gives a claimed job back as it is."""
    return Change(due_at=job.created_at, state=queue_state(job), is_quiet=True, is_settling=job.is_final)


def queue_state(job: InstanceJob) -> QueueState:
    if job.is_final:
        return QueueState.UNQUEUED
    return QueueState.WAITING if job.attempt is None else QueueState.PLACED


def priority_of(job: InstanceJob) -> Priority:
    return Priority.SPOT if job.plan.is_spot else Priority.ON_DEMAND
