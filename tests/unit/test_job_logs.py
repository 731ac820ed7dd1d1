from typing import Any

from tests.unit.recording import RecordingApi
from trainyard.job_logs import instance_of, last_lines, written_lines
from trainyard.wire.client import CallFailed


class Streams:
    """Log streams whose lines come in pages; a token is how many lines were read."""

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
    read = [(line.instance, line.text) for line in written_lines(streams.api, "job")]
    assert read == [("algo-1", "a"), ("algo-1", "b"), ("algo-1", "c"), ("algo-2", "d")]


def test_the_last_lines_are_those_of_each_instance() -> None:
    streams = Streams(algo_1=["a", "b", "c"], algo_2=["d"])
    assert [line.text for line in last_lines(streams.api, "job", 2)] == ["b", "c", "d"]
    assert list(last_lines(streams.api, "job", 0)) == []


def test_a_job_without_logs_yet_has_no_lines() -> None:
    def missing(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("ResourceNotFoundException", "no group", status=400)

    assert list(written_lines(RecordingApi(DescribeLogStreams=missing), "job")) == []


def test_an_instance_is_named_in_its_stream() -> None:
    assert instance_of("my-job/algo-12-1700000000") == "algo-12"
