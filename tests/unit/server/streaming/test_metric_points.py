import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.streaming.sample_streams import Stage, ended, lines_of, training, tried_again
from tests.unit.server.streaming.test_followers import KEY, body_of
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.plan import MetricDefinition
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.records.contract import Change, Draft
from trainyard.server.records.sql import open_records
from trainyard.server.streaming import Followers, MetricCursor
from trainyard.server.streaming.metric_points import read_points


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = training(tmp_path, instances=2)
    metrics = tuple(MetricDefinition(name, f"{name}=(.*)") for name in ("loss", "acc/top 1"))
    return replace(made, job=replace(made.job, plan=replace(made.job.plan, metrics=metrics)))


def record(stage: Stage, values: list[float], *, metric: str = "loss", host: str = "algo-1", attempt: int = 1) -> None:
    folder = InstanceRef(AttemptRef(stage.id, attempt), host).folder(stage.jobs)
    points = [Point.of(value, second * 1_000_000) for second, value in enumerate(values)]
    PointsFile(series_file(folder.metrics, metric)).append(points)


def read(stage: Stage, cursor: str = "", *, max_points: int | None = None) -> list[dict[str, Any]]:
    start = MetricCursor.parse(cursor, stage.id) if cursor else MetricCursor.start(stage.id)
    return [json.loads(each.line) for each in read_points(stage.snapshot, start, max_points=max_points)]


def test_points_of_all_metrics_instances_and_attempts_come_once(stage: Stage) -> None:
    record(stage, [1.0, 2.0])
    record(stage, [3.0], metric="acc/top 1", host="algo-2")
    first = read(stage)
    assert [(each["metric"], each["instance"], each["values"]) for each in first] == [
        ("loss", "algo-1", [1.0, 2.0]),
        ("acc/top 1", "algo-2", [3.0]),
    ]
    assert read(stage, first[-1]["cursor"]) == []
    record(stage, [4.0])
    later = replace(stage, job=tried_again(stage.job))
    record(later, [5.0], attempt=2)
    second = read(later, first[-1]["cursor"])
    assert [(each["attempt"], each["numbers"], each["values"]) for each in second] == [(1, [2], [4.0]), (2, [0], [5.0])]
    # Also from a cursor within the lines.
    assert read(later, second[0]["cursor"]) == second[1:]
    assert read(later, second[1]["cursor"]) == []


def test_extremes_stand_for_many_points_and_keep_their_numbers(stage: Stage) -> None:
    values = [float(number % 7) for number in range(9_000)]
    values[5_001] = 99.0
    record(stage, values)
    found = read(stage, max_points=100)
    numbers = [number for line in found for number in line["numbers"]]
    assert len(numbers) <= 100
    assert numbers == sorted(numbers)
    assert [values[number] for number in numbers] == [value for line in found for value in line["values"]]
    assert 5_001 in numbers
    record(stage, [1.0, 2.0])
    assert [line["numbers"] for line in read(stage, found[-1]["cursor"], max_points=100)] == [[9_000, 9_001]]


@pytest.mark.parametrize("cursor", ["nonsense", "000000000000.1.2"])
def test_a_cursor_of_something_else_is_refused(stage: Stage, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        read(stage, cursor)


def test_a_follower_gets_new_points_and_the_end(stage: Stage) -> None:
    async def take(lines: AsyncGenerator[bytes, None]) -> dict[str, Any]:
        return lines_of(await anext(lines))[0]

    async def follow(followers: Followers) -> list[dict[str, Any]]:
        resource = records.create(Draft(KEY, "us-east-1", body_of(stage.job)), now=seconds(0))
        own = replace(stage, id=resource.id)
        record(own, [1.0])
        lines = followers.follow_metrics(resource, MetricCursor.start(resource.id), max_points=None)
        async with aclosing(lines):
            found = [await take(lines)]
            record(own, [2.0, 3.0])
            found.append(await take(lines))
            records.apply(resource, Change(body=body_of(ended(stage.job))), now=seconds(5))
            return [*found, *[line async for piece in lines for line in lines_of(piece)]]

    with closing(open_records(f"sqlite:///{stage.jobs}/records.db")) as records:
        found = asyncio.run(follow(Followers(records, stage.jobs)))
    assert [each.get("values") for each in found] == [[1.0], [2.0, 3.0], None]
    assert (found[-1]["kind"], found[-1]["status"]) == ("ended", "Completed")
