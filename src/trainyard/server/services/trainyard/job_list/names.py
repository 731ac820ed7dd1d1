"""ListJobColumns: the columns that a list of jobs can have, and values to filter by, for pages and completion."""

from collections import Counter
from collections.abc import Iterable

from trainyard.server.jobs.summaries import RECORD_KINDS, JobSummary, SummaryKind
from trainyard.server.records.contract import Query
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.job_list.columns import FIELDS, ListedJobs

# The newest jobs of each kind, whose names and values are told.
MAX_JOBS = 500
MAX_NAMES = 500
MAX_VALUES = 50


def list_job_columns(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """Return all columns, with those that the newest jobs of the caller add."""
    jobs, listed = _newest(call), ListedJobs(call)
    listed.load_tags(jobs)
    tags: dict[str, list[str]] = {}
    for job in jobs:
        for key, value in listed.tags(job).items():
            tags.setdefault(key, []).append(value)
    used_keys = (key for key, values in tags.items() for _ in values)
    return {
        "Fields": [{"Name": name, "Type": str(field.type), "About": field.about} for name, field in FIELDS.items()],
        "Metrics": _common((name for job in jobs for name in job.metrics), MAX_NAMES),
        "HyperParameters": _common((name for job in jobs for name in job.hyperparameters), MAX_NAMES),
        "TagKeys": [{"Key": key, "Values": _common(tags[key], MAX_VALUES)} for key in _common(used_keys, MAX_NAMES)],
        "UserNames": _common((listed.user(job) for job in jobs), MAX_VALUES),
        "Images": _common((job.image for job in jobs if job.image), MAX_VALUES),
        "InstanceTypes": _common((name for job in jobs for name in job.instance_types), MAX_VALUES),
    }


OPERATIONS: Operations = {"ListJobColumns": list_job_columns}


def _newest(call: Call) -> list[JobSummary]:
    found: list[JobSummary] = []
    for kind in SummaryKind:
        query = Query(RECORD_KINDS[kind], account=call.caller.scope, descending=True, limit=MAX_JOBS)
        page = call.yard.records.find_revisions(query)
        found += call.yard.summaries.load(call.yard.records, page.revisions)
    return found


def _common(names: Iterable[str], most: int) -> list[str]:
    """Return the names, the most frequent first, and those that are equally frequent in their own order."""
    counts = Counter(names)
    return sorted(counts, key=lambda name: (-counts[name], name))[:most]
