from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.training import cloudwatch
from trainyard._sdk.training.cloudwatch import instance_of, metric_period, read_log, read_log_tail
from trainyard.server.services.cloudwatch.series import require_period
from trainyard.server.services.cloudwatch.statistics import MAX_DATAPOINTS
from trainyard.wire.client import CallFailed


class Streams:
    """Log streams with pages of two lines. A token is the number of lines that were read."""

    def __init__(self, **lines: list[str]) -> None:
        self.lines = {f"job/{name.replace('_', '-')}-17": texts for name, texts in lines.items()}
        self.api = RecordingApi(DescribeLogStreams=self.describe, GetLogEvents=self.read)

    def describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        names, number = list(self.lines), int(asked.get("nextToken", 0))
        page: dict[str, Any] = {"logStreams": [{"logStreamName": name} for name in names[number : number + 1]]}
        return page | ({"nextToken": str(number + 1)} if number + 1 < len(names) else {})

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = self.lines[asked["logStreamName"]]
        start = int(asked.get("nextToken", 0)) if asked["startFromHead"] else max(len(lines) - asked["limit"], 0)
        page = lines[start : start + 2]
        events = [{"timestamp": 1000, "message": text} for text in page]
        return {"events": events, "nextForwardToken": str(start + len(page))}


def test_all_lines_are_read_page_by_page_and_instance_by_instance() -> None:
    streams = Streams(algo_1=["a", "b", "c"], algo_2=["d"])
    read = [(line.instance, line.text) for line in read_log(streams.api, "job")]
    assert read == [("algo-1", "a"), ("algo-1", "b"), ("algo-1", "c"), ("algo-2", "d")]


def test_the_last_lines_are_those_of_each_instance() -> None:
    streams = Streams(algo_1=["a", "b", "c"], algo_2=["d"])
    assert [line.text for line in read_log_tail(streams.api, "job", 2)] == ["b", "c", "d"]
    assert list(read_log_tail(streams.api, "job", 0)) == []


def test_the_last_lines_of_an_instance_may_be_of_two_attempts() -> None:
    streams = Streams(algo_1=["a", "b", "c"])
    streams.lines["job/algo-1-18"] = ["d"]
    assert [line.text for line in read_log_tail(streams.api, "job", 2)] == ["c", "d"]
    assert [line.text for line in read_log_tail(streams.api, "job", 1)] == ["d"]


def test_a_job_without_logs_yet_has_no_lines() -> None:
    def missing(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("ResourceNotFoundException", "no group", status=400)

    assert list(read_log(RecordingApi(DescribeLogStreams=missing), "job")) == []


def test_an_instance_is_named_in_its_stream() -> None:
    assert instance_of("my-job/algo-12-1700000000") == "algo-12"


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "minutes"), [(0, 1), (1, 1), (24, 1), (24.01, 2), (48, 2), (48.01, 3), (24 * 28, 28)]
)
def test_a_period_is_as_short_as_one_answer_has_room_for(hours: float, minutes: int) -> None:
    lasted = timedelta(hours=hours)
    period = metric_period(NOON, NOON + lasted)
    assert period == timedelta(minutes=minutes)
    assert lasted / period <= cloudwatch.MAX_DATAPOINTS == MAX_DATAPOINTS
    require_period(int(period.total_seconds()))
