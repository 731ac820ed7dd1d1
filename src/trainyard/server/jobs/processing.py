"""Processing jobs as the records store them: the request as it was sent, and the job in our own terms."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.plain import from_plain
from trainyard.server.jobs.instance_jobs import change_for, draft_for
from trainyard.server.records.contract import Change, Draft, NewEvent, Resource

KIND = "processing-job"
LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
METRIC_DIMENSION = "ProcessingJobName"


def processing_job_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"processing-job/{name}")


def draft_of(job: ProcessingJob, request: Mapping[str, Any], *, tags: Mapping[str, str]) -> Draft:
    """Return the draft of a job that is due at once."""
    return draft_for(KIND, job, request, tags=tags)


def job_of(resource: Resource) -> ProcessingJob:
    return from_plain(ProcessingJob, resource.body["job"])


def change_to(resource: Resource, job: ProcessingJob) -> Change:
    """Return the change that stores the job as it is now."""
    return change_for(resource, job)


def events_of(before: ProcessingJob, after: ProcessingJob) -> list[NewEvent]:
    """Return what happened between two states of a job, for clients that follow it."""
    steps = [
        NewEvent("processing-job.status", {"status": step.status, "message": step.message})
        for step in after.transitions[len(before.transitions) :]
    ]
    notes = [NewEvent("processing-job.note", {"text": note}) for note in after.notes[len(before.notes) :]]
    return steps + notes
