"""Summaries of how fast the steps of ended jobs were, which later runs of the same job are compared with.

A summary is a child of its job and named after what runs are alike in, so that one range of an index has the last runs.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.records.contract import Draft, Query, Records, ResourceId, ResourceKey, SortBy

KIND = "profiled-run"
MAX_RUNS = 10  # that a run is compared with
# A job with less time on its instances leaves no summary by itself. A summary takes 0.15 s of processor time if the
# evaluation process has to be started for it (measured 2026-11-19), which shall be less than 1 % of what the job took.
MIN_TIME = timedelta(seconds=20)

# What SDKs, tuning jobs and people append to the name of a job to make it unique.
_SUFFIXES = re.compile(r"(-\d{4}(-\d{2}){5}-\d{3}|-\d{6}-\d{4}|-\d{3}-[0-9a-f]{8}|-\d+)+$")
_DIGEST_LENGTH = 24


def base_name(job_name: str) -> str:
    """Return the name of a job without what makes it unique."""
    return _SUFFIXES.sub("", job_name) or job_name


def find_earlier_runs(records: Records, job: TrainingJob, job_id: ResourceId) -> Sequence[Mapping[str, Any]]:
    """Return the summaries of the last runs of the same job before this one, the newest first."""
    query = Query(
        KIND,
        account=job.account,
        name_prefix=f"{_series(job)}/",
        sort_by=SortBy.NAME,
        descending=True,
        # Those that ended before this one was created come after later ones, so there may be a few too many.
        limit=2 * MAX_RUNS,
    )
    found = [each for each in records.find(query).resources if each.parent != job_id]
    return [each.body["run"] for each in found if _ended_at(each.key.name) <= _digits(job.created_at)][:MAX_RUNS]


def leaves_run(job: TrainingJob) -> bool:
    """Whether a job that has ended leaves a summary by itself, if its steps were timed."""
    return job.time_used >= MIN_TIME and not _is_trial(job)


def store_run(records: Records, job: TrainingJob, job_id: ResourceId, run: Mapping[str, Any], *, now: datetime) -> None:
    """Store the summary of a run that has ended; once is enough. A trial is not a run like others, so it has none."""
    if _is_trial(job):
        return
    name = f"{_series(job)}/{_digits(job.ended_at or now)}-{job_id}"
    draft = Draft(ResourceKey(job.account, KIND, name), job.region, {"run": dict(run)}, parent=job_id)
    try:
        records.create(draft, now=now)
    except (AlreadyExists, NotFound):
        # It was stored before, or the job was deleted meanwhile.
        return


def _is_trial(job: TrainingJob) -> bool:
    return not job.plan.environment.keys().isdisjoint({CHANGES_VARIABLE, STEPS_VARIABLE})


def _series(job: TrainingJob) -> str:
    plan = job.plan
    script = [plan.entry_point or plan.image, *plan.command]
    alike = [base_name(job.name), script, list(plan.instance_types), plan.launch.kind, plan.launch.processes]
    return hashlib.sha256(json.dumps(alike).encode()).hexdigest()[:_DIGEST_LENGTH]


def _digits(at: datetime) -> str:
    """Return a time as text that sorts like it."""
    return f"{int(at.timestamp() * 1e6):020d}"


def _ended_at(name: str) -> str:
    return name.partition("/")[2].partition("-")[0]
