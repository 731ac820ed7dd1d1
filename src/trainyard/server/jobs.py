"""Training jobs as the records keep them: the request as it was sent, and the job in our own words."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.clock import EPOCH
from trainyard.foundation.jobs import TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Change, Draft, NewEvent, Resource, ResourceKey

KIND = "training-job"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


def training_job_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"training-job/{name}")


def draft_of(job: TrainingJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """A job that is due at once; the oldest is due first."""
    return Draft(
        ResourceKey(job.account, KIND, job.name),
        job.region,
        {"request": request, "job": to_plain(job)},
        status=job.status,
        tags=tags,
        arn=job.arn,
        due_at=job.created_at,
    )


def job_of(resource: Resource) -> TrainingJob:
    return from_plain(TrainingJob, resource.body["job"])


def request_of(resource: Resource) -> Mapping[str, Any]:
    """What the create call asked for, in the words of the wire."""
    request: Mapping[str, Any] = resource.body["request"]
    return request


def change_to(resource: Resource, job: TrainingJob) -> Change:
    """What to write so that the job is remembered as it is now."""
    return Change(status=job.status, body={**resource.body, "job": to_plain(job)}, due_at=due_at(job))


def due_at(job: TrainingJob) -> datetime | None:
    """Jobs that have been placed are due before any that wait, and those in the order they were created."""
    if job.is_final:
        return None
    return EPOCH if job.attempts else job.created_at


def events_of(before: TrainingJob, after: TrainingJob) -> list[NewEvent]:
    """What happened between two states of a job, for those who watch."""
    known = len(before.transitions)
    steps = [
        NewEvent("training-job.status", {"status": step.status, "message": step.message})
        for step in after.transitions[known:]
    ]
    notes = [NewEvent("training-job.note", {"text": note}) for note in after.notes[len(before.notes) :]]
    return steps + notes
