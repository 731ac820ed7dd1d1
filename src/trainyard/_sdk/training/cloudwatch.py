"""Logs and metrics of a training job, read from CloudWatch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from trainyard._sdk.connection import Api
from trainyard.wire.client import CallFailed

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
PROCESSING_LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
NAMESPACE = "/aws/sagemaker/TrainingJobs"

# CloudWatch returns at most a day of minutes in one response.
MAX_DATAPOINTS = 1440

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log. `instance` is a name such as algo-1; `attempt` is 0 if it is unknown."""

    instance: str
    at_ms: int
    text: str
    attempt: int = 0


def read_log(api: Api, job_name: str, *, group: str = LOG_GROUP) -> Iterator[LogLine]:
    """Yield all lines so far, instance by instance. The group is that of training jobs unless another is given."""
    for stream in _stream_names(api, job_name, group):
        request: dict[str, Any] = {"logGroupName": group, "startFromHead": True}
        # The last page is empty.
        while (page := _page(api, stream, request))["events"]:
            yield from _lines(stream, page)
            request["nextToken"] = page["nextForwardToken"]


def read_log_tail(api: Api, job_name: str, count: int, *, group: str = LOG_GROUP) -> Iterator[LogLine]:
    """Yield the last `count` lines of each instance, at most 10,000."""
    # Each attempt of an instance has a stream of its own.
    for _, streams in groupby(_stream_names(api, job_name, group) if count else (), key=instance_of):
        last: list[LogLine] = []
        for stream in reversed(list(streams)):
            request = {"logGroupName": group, "startFromHead": False, "limit": count - len(last)}
            last = [*_lines(stream, _page(api, stream, request)), *last]
            if len(last) >= count:
                break
        yield from last


def instance_of(stream: str) -> str:
    """Return `algo-1` for the log stream `my-job/algo-1-1700000000`."""
    return "-".join(stream.rpartition("/")[2].split("-")[:2])


def metric_datapoints(
    api: Api,
    job_name: str,
    metric: str,
    *,
    start: datetime,
    end: datetime,
    statistics: Sequence[str],
    period_s: int | None = None,
) -> list[dict[str, Any]]:
    """Return the datapoints of a metric. By default the period is the shortest with which one response holds all."""
    response = api.call(
        "cloudwatch",
        "GetMetricStatistics",
        Namespace=NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": "TrainingJobName", "Value": job_name}],
        StartTime=start,
        EndTime=end,
        Period=period_s or int(metric_period(start, end).total_seconds()),
        Statistics=list(statistics),
    )
    points: list[dict[str, Any]] = response.get("Datapoints", [])
    return points


def metric_period(start: datetime, end: datetime) -> timedelta:
    """Return the shortest period, in whole minutes, with which one response covers the time range."""
    return _MINUTE * max(1, math.ceil((end - start) / _MINUTE / MAX_DATAPOINTS))


def _stream_names(api: Api, job_name: str, group: str) -> Iterator[str]:
    request = {"logGroupName": group, "logStreamNamePrefix": f"{job_name}/", "orderBy": "LogStreamName"}
    try:
        page = api.call("logs", "DescribeLogStreams", **request)
        yield from (stream["logStreamName"] for stream in page["logStreams"])
        while token := page.get("nextToken"):
            page = api.call("logs", "DescribeLogStreams", **request, nextToken=token)
            yield from (stream["logStreamName"] for stream in page["logStreams"])
    except CallFailed as error:
        # The first line of the first job creates the log group.
        if error.code != "ResourceNotFoundException":
            raise


def _page(api: Api, stream: str, request: dict[str, Any]) -> dict[str, Any]:
    return api.call("logs", "GetLogEvents", logStreamName=stream, **request)


def _lines(stream: str, page: dict[str, Any]) -> Iterator[LogLine]:
    instance = instance_of(stream)
    return (LogLine(instance, event["timestamp"], event["message"]) for event in page["events"])
