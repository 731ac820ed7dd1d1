"""What a training job has written so far, read from its log streams."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.connection import Api
from trainyard.wire.client import CallFailed

LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True, slots=True)
class LogLine:
    instance: str  # algo-1 …
    at_ms: int
    text: str
    attempt: int = 0  # in which it was written; 0 where that is not told


def written_lines(api: Api, job_name: str) -> Iterator[LogLine]:
    """All lines so far, instance by instance."""
    for stream in _stream_names(api, job_name):
        asked: dict[str, Any] = {"startFromHead": True}
        while (page := _page(api, stream, asked))["events"]:  # a page with lines may be followed by another at once
            yield from _lines(stream, page)
            asked["nextToken"] = page["nextForwardToken"]


def last_lines(api: Api, job_name: str, count: int) -> Iterator[LogLine]:
    """The last lines of each instance so far, at most 10,000."""
    for stream in _stream_names(api, job_name) if count else ():
        yield from _lines(stream, _page(api, stream, {"startFromHead": False, "limit": count}))


def instance_of(stream: str) -> str:
    """`algo-1` of `my-job/algo-1-1700000000`."""
    return "-".join(stream.rpartition("/")[2].split("-")[:2])


def _stream_names(api: Api, job_name: str) -> Iterator[str]:
    asked = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": f"{job_name}/", "orderBy": "LogStreamName"}
    try:
        page = api.call("logs", "DescribeLogStreams", **asked)
        yield from (stream["logStreamName"] for stream in page["logStreams"])
        while token := page.get("nextToken"):
            page = api.call("logs", "DescribeLogStreams", **asked, nextToken=token)
            yield from (stream["logStreamName"] for stream in page["logStreams"])
    except CallFailed as error:
        if error.code != "ResourceNotFoundException":  # the group comes with the first line of the first job
            raise


def _page(api: Api, stream: str, asked: dict[str, Any]) -> dict[str, Any]:
    return api.call("logs", "GetLogEvents", logGroupName=LOG_GROUP, logStreamName=stream, **asked)


def _lines(stream: str, page: dict[str, Any]) -> Iterator[LogLine]:
    instance = instance_of(stream)
    return (LogLine(instance, event["timestamp"], event["message"]) for event in page["events"])
