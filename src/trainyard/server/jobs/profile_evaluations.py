"""Evaluations of profiles as the records store them: one for each job with profiler rules, due when the next one is.

It precedes its job, like a reminder of a time limit, does no harm without it, and is gone after the last evaluation.
A job without rules gets one right before its end is stored, so that it leaves a summary for later runs.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.jobs.profiled_runs import leaves_run
from trainyard.server.jobs.training import KIND as TRAINING_JOB
from trainyard.server.records.contract import Draft, Records, Resource, ResourceKey

KIND = "profile-evaluation"

# The job, or its change, is stored right after its evaluation.
_FIRST_LOOK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class ProfileEvaluation:
    """The evaluation of one job. `created_us` tells the job from an earlier or later one of the same name.

    `count` is how often it was evaluated, `failures` how many tries in a row failed.
    """

    job: str
    created_us: int
    count: int = 0
    failures: int = 0


def kind_at(site: str) -> str:
    """Return the kind of the evaluations of a yard. Only the yard with the files of a job can evaluate its profile."""
    return f"{KIND}@{site}" if site else KIND


def evaluation_of(resource: Resource) -> ProfileEvaluation:
    return from_plain(ProfileEvaluation, resource.body)


def body_of(evaluation: ProfileEvaluation) -> Mapping[str, Any]:
    body: Mapping[str, Any] = to_plain(evaluation)
    return body


def key_of_job(resource: Resource) -> ResourceKey:
    """Return the key of the job that an evaluation belongs to."""
    return ResourceKey(resource.key.account, TRAINING_JOB, resource.body["job"])


def is_evaluation_of(evaluation: ProfileEvaluation, job: TrainingJob) -> bool:
    return evaluation.created_us == to_micros(job.created_at)


def evaluations_of(job: TrainingJob) -> list[Draft]:
    """Return the draft of the evaluation of a job with profiler rules; none for any other job."""
    return [_draft(job, due_at=job.created_at + _FIRST_LOOK)] if has_rules(job) else []


def ensure_evaluation(records: Records, job: TrainingJob, *, now: datetime) -> None:
    """Create the evaluation of a job that is about to get profiler rules, unless it has one."""
    if has_rules(job):
        _create(records, job, now=now)


def leave_evaluation(records: Records, job: TrainingJob, *, now: datetime) -> None:
    """Create the evaluation of a job without rules that is about to end, if its run is long enough to be summarized.

    Called before the end is stored, so a yard that is killed in between forgets none.
    """
    is_profiled = job.plan.profiler is not None and job.plan.profiler.is_enabled
    if is_profiled and not has_rules(job) and leaves_run(job):
        _create(records, job, now=now)


def has_rules(job: TrainingJob) -> bool:
    return job.plan.profiler is not None and bool(job.plan.profiler.rules)


def _create(records: Records, job: TrainingJob, *, now: datetime) -> None:
    # It was created before.
    with contextlib.suppress(AlreadyExists):
        records.create(_draft(job, due_at=now + _FIRST_LOOK), now=now)


def _draft(job: TrainingJob, *, due_at: datetime) -> Draft:
    evaluation = ProfileEvaluation(job.name, to_micros(job.created_at))
    key = ResourceKey(job.account, kind_at(job.site), f"{job.name}/{evaluation.created_us}")
    return Draft(key, job.region, body_of(evaluation), due_at=due_at)
