import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.following.stories import Stage, ended, lines_of, texts, training
from trainyard.foundation.jobs import TrainingJob
from trainyard.foundation.plain import to_plain
from trainyard.server.following import Followers, Place, followers
from trainyard.server.following.reading import Batch, Story, read_on
from trainyard.server.jobs import KIND
from trainyard.server.records.contract import Change, Draft, Resource, ResourceKey
from trainyard.server.records.sql import SqlRecords, open_records

KEY = ResourceKey("111111111111", KIND, "mnist")


class Scene:
    """A job in records, and those who follow it."""

    def __init__(self, records: SqlRecords, folder: Path) -> None:
        self.records = records
        self.followers = Followers(records, folder)
        self.stage = training(folder)
        self.resource: Resource = records.create(Draft(KEY, "us-east-1", body_of(self.stage.job)), now=seconds(0))
        self.stage = Stage(folder, self.stage.job, self.resource.id)

    def follow(self, place: Place | None = None, *, with_logs: bool = True) -> AsyncGenerator[bytes, None]:
        return self.followers.follow(self.resource, place or Place.before(self.resource.id), with_logs=with_logs)

    def become(self, job: TrainingJob) -> None:
        self.stage.job = job
        applied = self.records.apply(self.resource, Change(body=body_of(job)), now=seconds(5))
        assert applied is not None
        self.resource = applied


def body_of(job: TrainingJob) -> dict[str, Any]:
    return {"request": {}, "job": to_plain(job)}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with closing(open_records(f"sqlite:///{tmp_path}/records.db")) as records:
        yield Scene(records, tmp_path / "jobs")


async def told(lines: AsyncGenerator[bytes, None], *, until: str = "") -> list[dict[str, Any]]:
    """What comes until a line has that text or kind; without one, until nothing comes any more."""
    found: list[dict[str, Any]] = []
    async for piece in lines:
        found += lines_of(piece)
        if until and any(until in (each["kind"], each.get("text")) for each in found):
            break
    return found


def test_a_follower_hears_of_lines_and_of_the_end(scene: Scene) -> None:
    async def follow() -> list[dict[str, Any]]:
        async with aclosing(scene.follow()) as lines:
            before = await told(lines, until="status")
            assert texts(before) == []
            scene.stage.write("one\n")
            between = await told(lines, until="one")
            scene.stage.write("two\n")
            scene.become(ended(scene.stage.job))
            return before + between + await told(lines)

    found = asyncio.run(follow())
    assert texts(found) == ["one", "two"]
    assert found[-1]["kind"] == "ended"


def test_followers_at_the_same_place_share_a_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def counted(story: Story, place: Place, *, with_logs: bool) -> Batch:
        reads.append(place)
        return read_on(story, place, with_logs=with_logs)

    monkeypatch.setattr(followers, "read_on", counted)
    scene.stage.write("one\n")
    scene.become(ended(scene.stage.job))

    async def follow() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(told(scene.follow()) for _ in range(50)))

    found = asyncio.run(follow())
    assert found == [found[0]] * 50
    assert texts(found[0]) == ["one"]
    assert len(reads) <= 5


def test_a_quiet_job_gives_a_sign_of_life(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "BEAT_S", 0.01)

    async def follow() -> list[dict[str, Any]]:
        async with aclosing(scene.follow()) as lines:
            return await told(lines, until="beat")

    last = asyncio.run(follow())[-1]
    assert last["kind"] == "beat"
    assert Place.parse(last["cursor"], scene.resource.id).steps == 3


def test_a_job_that_only_writes_gives_one_to_who_follows_without_its_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "BEAT_S", 0.2)

    async def write() -> None:
        while True:
            scene.stage.write("on\n")
            await asyncio.sleep(0.02)

    async def follow() -> list[dict[str, Any]]:
        writing = asyncio.create_task(write())
        try:
            async with aclosing(scene.follow(with_logs=False)) as lines:
                return await asyncio.wait_for(told(lines, until="beat"), 10)
        finally:
            writing.cancel()

    assert asyncio.run(follow())[-1]["kind"] == "beat"


def test_closing_ends_every_stream_though_the_job_goes_on(scene: Scene) -> None:
    async def follow() -> list[dict[str, Any]]:
        async with aclosing(scene.follow()) as lines:
            found = await told(lines, until="status")
            scene.followers.close()
            return found + await told(lines)

    assert "ended" not in [each["kind"] for each in asyncio.run(follow())]


def test_a_job_that_is_deleted_is_not_followed_any_more(scene: Scene) -> None:
    async def follow() -> None:
        async with aclosing(scene.follow()) as lines:
            await told(lines, until="status")
            assert scene.records.delete(scene.resource, now=seconds(9))
            await told(lines)

    asyncio.run(asyncio.wait_for(follow(), 30))


def test_nothing_watches_a_job_that_nobody_follows(scene: Scene) -> None:
    async def follow() -> set[str]:
        before = asyncio.all_tasks()
        streams = [scene.follow() for _ in range(3)]
        for lines in streams:
            await told(lines, until="status")
        for lines in streams:
            await lines.aclose()
        await asyncio.sleep(0)
        return {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}

    assert asyncio.run(follow()) == set()


def test_a_change_that_came_before_the_first_look_is_told(scene: Scene) -> None:
    stale = scene.resource
    scene.become(ended(scene.stage.job))

    async def follow() -> list[dict[str, Any]]:
        return await told(scene.followers.follow(stale, Place.before(stale.id), with_logs=False))

    assert asyncio.run(follow())[-1]["kind"] == "ended"
