"""Processing jobs in the form of the wire."""

from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.processing import job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Shape

# The longest reason on the wire; the records have the whole text.
REASON_LENGTH = 1024

_ECHOED = (
    "ProcessingInputs",
    "ProcessingOutputConfig",
    "ProcessingResources",
    "AppSpecification",
    "Environment",
    "NetworkConfig",
    "RoleArn",
    "ExperimentConfig",
)


def processing_job_description(resource: Resource) -> Shape:
    """Return the answer of DescribeProcessingJob."""
    job, request = job_of(resource), request_of(resource)
    shape: Shape = {
        "ProcessingJobName": job.name,
        "ProcessingJobArn": job.arn,
        "ProcessingJobStatus": job.status,
        "StoppingCondition": {"MaxRuntimeInSeconds": job.plan.max_runtime_s},
        "CreationTime": job.created_at,
        "LastModifiedTime": resource.modified_at,
        **{member: request[member] for member in _ECHOED if member in request},
    }
    if job.started_at is not None:
        shape["ProcessingStartTime"] = job.started_at
    return shape | _end(job)


def processing_job_summary(resource: Resource) -> Shape:
    """Return the entry of a job in ListProcessingJobs."""
    job = job_of(resource)
    return {
        "ProcessingJobName": job.name,
        "ProcessingJobArn": job.arn,
        "CreationTime": job.created_at,
        "LastModifiedTime": resource.modified_at,
        "ProcessingJobStatus": job.status,
        **_end(job),
    }


def _end(job: ProcessingJob) -> Shape:
    shape: Shape = {}
    if job.ended_at is not None:
        shape["ProcessingEndTime"] = job.ended_at
    if job.failure:
        shape["FailureReason"] = job.failure[:REASON_LENGTH]
    if job.is_final and job.exit_message:
        shape["ExitMessage"] = job.exit_message
    return shape
