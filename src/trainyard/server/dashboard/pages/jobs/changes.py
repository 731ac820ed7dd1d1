"""Stops, deletes and tags many jobs, and says of each what happened."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.visit import BadRequest, Visit

MAX_JOBS = 500
# Calls at the same time, so that many changes do not take all worker threads of the yard.
_AT_ONCE = 4

Job = dict[str, str]

# What SageMaker calls each kind, and the member that names a job of it.
_KINDS = {
    "training": ("TrainingJob", "TrainingJobName"),
    "processing": ("ProcessingJob", "ProcessingJobName"),
    "tuning": ("HyperParameterTuningJob", "HyperParameterTuningJobName"),
}


async def stop_job(visit: Visit, job: Job) -> None:
    noun, member = _KINDS[job["kind"]]
    await visit.api.call("sagemaker", f"Stop{noun}", {member: job["name"]})


async def delete_job(visit: Visit, job: Job) -> None:
    noun, member = _KINDS[job["kind"]]
    await visit.api.call("sagemaker", f"Delete{noun}", {member: job["name"]})


async def change_each(visit: Visit, jobs: list[Job], change: Callable[[Visit, Job], Awaitable[None]]) -> dict[str, Any]:
    """Change each job, and return how many were changed and why the others were not."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def problem_with(job: Job) -> str:
        async with limit:
            try:
                await change(visit, job)
            except ApiFault as fault:
                return fault.message
        return ""

    problems = await asyncio.gather(*(problem_with(job) for job in jobs))
    failed = [
        {"arn": job["arn"], "name": job["name"], "message": problem}
        for job, problem in zip(jobs, problems, strict=True)
        if problem
    ]
    return {"done": len(jobs) - len(failed), "failed": failed}


def jobs_in(body: dict[str, Any]) -> list[Job]:
    """Return the jobs that a script names. BadRequest if it names none or something else."""
    match body.get("jobs"):
        case [*jobs] if jobs and len(jobs) <= MAX_JOBS and all(map(_is_job, jobs)):
            return jobs
    raise BadRequest(f"Name 1 to {MAX_JOBS} jobs, each with its kind, name and arn.")


def tags_in(body: dict[str, Any]) -> tuple[list[dict[str, str]], list[str]]:
    """Return the tags to add and the keys to remove. BadRequest if they are something else."""
    match body:
        case {"add": dict(add), "remove": [*remove]} if all(isinstance(each, str) for each in (*add.values(), *remove)):
            return [{"Key": key, "Value": value} for key, value in add.items()], remove
    raise BadRequest("Name the tags to add and the keys to remove.")


def _is_job(value: object) -> bool:
    match value:
        case {"kind": str(kind), "name": str(), "arn": str()}:
            return kind in _KINDS
    return False
