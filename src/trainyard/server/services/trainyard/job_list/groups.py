"""Groups of jobs that have the same value in a column, and what jobs add up to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.jobs.summaries import JobSummary
from trainyard.server.services.contract import Shape
from trainyard.server.services.trainyard.job_list.columns import ColumnKind, JobColumn, ListedJobs, state_of

MAX_GROUPS = 500


def group_jobs(jobs: Sequence[JobSummary], column: JobColumn, listed: ListedJobs) -> list[Shape]:
    """Return the groups, the largest first; jobs without a value are in a group without one."""
    if column.kind is ColumnKind.TAG:
        listed.load_tags(list(jobs))
    members: dict[str | None, list[JobSummary]] = {}
    for job in jobs:
        value = column.value(job, listed)
        members.setdefault(None if value is None else _text(value), []).append(job)
    if len(members) > MAX_GROUPS:
        raise InvalidRequest(
            f"These jobs have {len(members)} different values of {column.name}; at most {MAX_GROUPS} groups are shown. "
            "Filter the jobs, or group them by something else."
        )
    ordered = sorted(members.items(), key=lambda item: (item[0] is None, -len(item[1]), item[0] or ""))
    return [{"Value": value, **sum_up(found, listed)} for value, found in ordered]


def sum_up(jobs: Sequence[JobSummary], listed: ListedJobs) -> Shape:
    """Return how many jobs there are in each state, what they have cost, and what the running ones cost per hour."""
    states: Mapping[str, int] = Counter(state_of(job) for job in jobs)
    return {
        "Jobs": len(jobs),
        "States": [{"State": state, "Jobs": count} for state, count in sorted(states.items())],
        "Cost": fsum(listed.cost(job) for job in jobs),
        "CostPerHour": fsum(listed.price_per_hour(job) for job in jobs if state_of(job) in ("running", "stopping")),
    }


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
