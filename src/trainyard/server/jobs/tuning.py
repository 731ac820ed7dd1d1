"""Tuning jobs and their trials as the records store them: the request as it was sent, and both in our own terms."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.jobs.tuning import TuningJob, TuningTrial
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import (
    Change,
    Draft,
    NewEvent,
    Query,
    Records,
    Resource,
    ResourceId,
    ResourceKey,
    SortBy,
)

KIND = "tuning-job"
TRIAL = "tuning-trial"

_PAGE = 1000


def tuning_job_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"hyper-parameter-tuning-job/{name}")


def tuning_key(account: str, name: str) -> ResourceKey:
    """Return the key of a tuning job. As on AWS, names that differ only in case are the same."""
    return ResourceKey(account, KIND, name.lower())


def trial_name(tuning_job: str, tuning_id: str, number: int) -> str:
    """Return the name of a trial's training job. It is the same at every start of the trial."""
    digest = hashlib.sha256(f"{tuning_id}/{number}".encode()).hexdigest()[:8]
    return f"{tuning_job}-{number:03}-{digest}"


def draft_of(job: TuningJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """Return the draft of a tuning job that is due at once."""
    return Draft(
        tuning_key(job.account, job.name),
        job.region,
        {"request": request, "job": to_plain(job)},
        status=job.status,
        tags=tags,
        arn=job.arn,
        due_at=job.created_at,
    )


def job_of(resource: Resource) -> TuningJob:
    return from_plain(TuningJob, resource.body["job"])


def site_of(resource: Resource) -> str:
    """Return the yard that a tuning job belongs to, without reading the rest of the job."""
    site: str = resource.body["job"].get("site", "")
    return site


def request_of(resource: Resource) -> Mapping[str, Any]:
    """Return the request of the create call, in wire terms."""
    request: Mapping[str, Any] = resource.body["request"]
    return request


def change_to(resource: Resource, job: TuningJob, *, due_at: datetime | None = None) -> Change:
    """Return the change that stores the tuning job as it is now. Only a new status counts as a modification."""
    return Change(
        status=job.status,
        body={**resource.body, "job": to_plain(job)},
        due_at=due_at,
        is_quiet=job.status == resource.status,
        is_settling=job.is_final,
    )


def events_of(before: TuningJob, after: TuningJob) -> list[NewEvent]:
    if before.status == after.status:
        return []
    return [NewEvent("tuning-job.status", {"status": after.status, "reason": after.failure or after.stop_reason})]


def trial_key(parent: Resource, number: int) -> ResourceKey:
    return ResourceKey(parent.key.account, TRIAL, f"{parent.id}/{number:06}")


def trial_draft(parent: Resource, trial: TuningTrial) -> Draft:
    """Return the draft of a trial. It is deleted with its tuning job."""
    key = trial_key(parent, trial.number)
    return Draft(key, parent.region, to_plain(trial), status=trial.status, parent=parent.id)


def trial_change(trial: TuningTrial) -> Change:
    """Return the change that stores a trial as it is now."""
    return Change(status=trial.status, body=to_plain(trial))


def trial_of(resource: Resource) -> TuningTrial:
    return from_plain(TuningTrial, resource.body)


def trials_of(records: Records, parent: ResourceId, *, status: str = "") -> Iterator[Resource]:
    """Yield the trials of a tuning job by number, page by page."""
    query = Query(TRIAL, parent=parent, status=status, sort_by=SortBy.NAME, limit=_PAGE)
    while True:
        page = records.find(query)
        yield from page.resources
        if page.next_after is None:
            return
        query = replace(query, after=page.next_after)
