"""Fills the records of a stopped yard with many jobs, each a copy of one that ran."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from trainyard.foundation.home import Home
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.training import KIND, draft_of, job_of, training_job_arn
from trainyard.server.records.contract import Query, SortBy
from trainyard.server.records.sql import open_records

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_PROJECTS = ("mnist", "bert", "resnet", "churn", "demand")


def fill_yard(home: Home, count: int, *, seed: str) -> None:
    """Add copies of the job with this name until there are `count`, created one second apart from the start of 2026."""
    print(f"filling the records with {count:,} jobs", flush=True)
    with closing(open_records(f"sqlite:///{home.records_file}")) as records:
        (found,) = records.find(Query(KIND, sort_by=SortBy.NAME, descending=True, name_prefix=seed)).resources
        for number in range(records.count(Query(KIND)) - 1, count - 1):
            job = _copy(job_of(found), number)
            # No yard may work on it.
            tags = {"project": _PROJECTS[number % len(_PROJECTS)]}
            draft = replace(draft_of(job, request_of(found), tags=tags), due_at=None)
            records.create(draft, now=job.created_at)


def _copy(job: TrainingJob, number: int) -> TrainingJob:
    """Copy a job. Every tenth copy has failed, all others have completed."""
    name = f"{_PROJECTS[number % len(_PROJECTS)]}-{number:06}"
    *steps, last = job.transitions
    if number % 10 == 0:
        last = replace(last, status=SecondaryStatus.FAILED)
    return replace(
        job,
        name=name,
        arn=training_job_arn(job.region, job.account, name),
        created_at=BEGINNING + timedelta(seconds=number),
        transitions=(*steps, last),
    )
