import asyncio
import json
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.trainyard.test_jobs import start
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.clock import from_micros
from trainyard.foundation.errors import NotFound
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.metrics import read_metric
from trainyard.wire.http import Headers, HttpRequest


def record(user: As, values: list[float]) -> None:
    """Record points of the metric loss, one per second, for the job mnist."""
    resource = user.yard.records.load(ResourceKey(user.account, KIND, "mnist"))
    folder = InstanceRef(AttemptRef(resource.id, 1), "algo-1").folder(user.yard.compute.jobs)
    points = [Point.of(value, second * 1_000_000) for second, value in enumerate(values)]
    PointsFile(series_file(folder.metrics, "loss")).append(points)


def read(user: As, **asked: Any) -> list[dict[str, Any]]:
    async def stream() -> bytes:
        call = Call(user.yard, user.caller, "eu-west-3", "REQUEST", NOON, HttpRequest("POST", "/", "", Headers()))
        answer = await read_metric(call, {"TrainingJobName": "mnist", "MetricName": "loss", **asked})
        return b"".join([line async for line in answer["Points"]])

    return [json.loads(line) for line in asyncio.run(stream()).splitlines()]


@pytest.fixture
def job(anna: As) -> As:
    create(anna)
    start(anna)
    return anna


def test_all_points_of_a_metric_are_streamed_and_then_the_end(job: As) -> None:
    record(job, [float(number) for number in range(5000)])

    *batches, end = read(job)

    assert end == {}
    assert [value for batch in batches for value in batch["values"]] == list(range(5000))
    assert (batches[0]["instance"], batches[0]["attempt"], batches[0]["at_us"][:2]) == ("algo-1", 1, [0, 1_000_000])


@pytest.mark.parametrize("count", [1, 7, 100, 9_999])
def test_fewer_points_keep_the_extremes_in_order(job: As, count: int) -> None:
    values = [float(number % 10) for number in range(count)]
    values[count // 2] = 99.0
    record(job, values)

    *batches, _ = read(job, MaxPoints=20)

    found = [(at, value) for batch in batches for at, value in zip(batch["at_us"], batch["values"], strict=True)]
    assert len(found) <= 20
    assert found == sorted(found)
    assert max(value for _, value in found) == 99.0
    assert min(value for _, value in found) == min(values)


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(2, 5, [2, 3, 4]), (None, 2, [0, 1]), (8, None, [8, 9]), (20, 30, [])]
)
def test_a_time_range_has_its_points_and_their_numbers(
    job: As, start: int | None, end: int | None, expected: list[int]
) -> None:
    record(job, [float(number) for number in range(10)])
    given = {"StartTime": start, "EndTime": end}
    *batches, _ = read(job, **{name: from_micros(at * 1_000_000) for name, at in given.items() if at is not None})
    assert [number for batch in batches for number in batch["numbers"]] == expected
    assert [value for batch in batches for value in batch["values"]] == expected


def test_a_metric_that_was_never_recorded_has_no_points(job: As) -> None:
    assert read(job) == read(job, MaxPoints=20) == [{}]


def test_the_metrics_of_others_cannot_be_read(accounts: Accounts, job: As) -> None:
    record(job, [1.0])
    with pytest.raises(NotFound):
        read(accounts.ben)
    assert read(accounts.admin)[0]["values"] == [1.0]
