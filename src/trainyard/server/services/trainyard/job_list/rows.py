"""The rows of a list of jobs in the form of the wire. Only the jobs of one page pay for tags, queues and points."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.attempts import MetricSummary
from trainyard.server.jobs.summaries import JobSummary, SummaryKind
from trainyard.server.jobs.training import job_of
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.tuning.description import tuning_job_description
from trainyard.server.services.trainyard.job_list.columns import (
    Aggregate,
    ListedJobs,
    duration_of,
    metric_value,
    state_of,
)
from trainyard.server.services.trainyard.job_list.sparklines import read_sparkline
from trainyard.server.services.trainyard.job_list.waiting import WaitingJobs

# Metrics of a row if the call names none.
SHOWN_METRICS = 20


def job_rows(jobs: Sequence[JobSummary], listed: ListedJobs, shape: Shape) -> list[Shape]:
    """Return the rows of a page. Of a job whose revision the caller knows, only what identifies it."""
    known = set(shape.get("KnownRevisions", ()))
    listed.load_tags([job for job in jobs if revision_of(job) not in known])
    waiting = WaitingJobs(listed.call.yard)
    return [
        _identity(job) | {"IsUnchanged": True}
        if revision_of(job) in known
        else _row(job, listed, shape, waiting=waiting)
        for job in jobs
    ]


def revision_of(job: JobSummary) -> str:
    return f"{job.id}.{job.revision}"


def _identity(job: JobSummary) -> Shape:
    return {"Kind": str(job.kind), "Name": job.name, "Arn": job.arn, "Revision": revision_of(job)}


def _row(job: JobSummary, listed: ListedJobs, shape: Shape, *, waiting: WaitingJobs) -> Shape:
    duration = duration_of(job, listed.now)
    row: Shape = _identity(job) | {
        "UserName": listed.user(job),
        "State": state_of(job),
        "Status": job.status,
        "SecondaryStatus": job.secondary,
        "StatusMessage": job.message or None,
        "FailureReason": job.failure or None,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
        "StartTime": job.started_at,
        "EndTime": job.ended_at,
        "DurationInSeconds": None if duration is None else duration / timedelta(seconds=1),
        "Tags": [{"Key": key, "Value": value} for key, value in listed.tags(job).items()],
    }
    match job.kind:
        case SummaryKind.TRAINING | SummaryKind.PROCESSING:
            return row | _training_members(job, listed, shape, waiting=waiting)
        case SummaryKind.TUNING:
            return row | _tuning_members(job, listed)


def metric_rows(metrics: Mapping[str, MetricSummary], names: Iterable[str]) -> list[Shape]:
    """Return these metrics of a job, except those that it does not have."""
    return [_metric(name, metrics[name]) for name in names if name in metrics]


def _training_members(job: JobSummary, listed: ListedJobs, shape: Shape, *, waiting: WaitingJobs) -> Shape:
    members: Shape = {
        "InstanceTypes": [{"InstanceType": name, "Count": count} for name, count in job.instance_types.items()],
        "InstanceCount": job.instance_count,
        "Spot": job.is_spot,
        "Interruptions": job.interruptions,
        "Engine": job.engine or listed.call.yard.compute.engines.default.name,
        "Image": job.image,
        "PricePerHour": listed.price_per_hour(job),
        "Cost": listed.cost(job),
        "TuningJobName": job.tuning_job or None,
        "Metrics": metric_rows(job.metrics, shape.get("Metrics", sorted(job.metrics)[:SHOWN_METRICS])),
        "HyperParameters": {
            name: job.hyperparameters[name] for name in shape.get("HyperParameters", ()) if name in job.hyperparameters
        },
    }
    if job.is_queued:
        members |= waiting.describe(job)
    metric = shape.get("SparklineMetric")
    if metric is not None and metric in job.metrics:
        members["Sparkline"] = _sparkline(job, metric, listed)
    return members


def _metric(name: str, metric: MetricSummary) -> Shape:
    values = {aggregate: metric_value(name, metric, aggregate) for aggregate in Aggregate}
    return {
        "Name": name,
        "Last": values[Aggregate.LAST],
        "Min": values[Aggregate.MIN],
        "Max": values[Aggregate.MAX],
        "Best": values[Aggregate.BEST],
        "Count": metric.count,
        "HasLapsed": metric.has_lapsed or None,
        "Timestamp": metric.at,
    }


def _sparkline(job: JobSummary, metric: str, listed: ListedJobs) -> list[float]:
    try:
        attempts = job_of(listed.call.yard.records.load_by_id(job.id)).attempts
    except NotFound:
        # It was deleted a moment ago.
        return []
    return read_sparkline(listed.call.yard.compute.jobs, job.id, attempts, metric)


def _tuning_members(job: JobSummary, listed: ListedJobs) -> Shape:
    try:
        resource = listed.call.yard.records.load_by_id(job.id)
    except NotFound:
        return {}
    described = tuning_job_description(listed.call.yard.records, resource, now=listed.now)
    counters: Mapping[str, int] = described["TrainingJobStatusCounters"]
    best: Mapping[str, Any] = described.get("BestTrainingJob", {})
    objective: Mapping[str, Any] = best.get("FinalHyperParameterTuningJobObjectiveMetric", {})
    return {
        "Objective": job.objective,
        "ObjectiveDirection": job.direction,
        "BestObjective": objective.get("Value"),
        "BestJobName": best.get("TrainingJobName"),
        "Trials": {
            "Completed": counters["Completed"],
            "InProgress": counters["InProgress"],
            "Failed": counters["NonRetryableError"],
            "Stopped": counters["Stopped"],
        },
    }
