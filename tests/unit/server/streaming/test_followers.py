import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.streaming.sample_streams import Stage, ended, lines_of, texts, training
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.plain import to_plain
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import Change, Draft, Resource, ResourceKey
from trainyard.server.records.sql import SqlRecords, open_records
from trainyard.server.streaming import FollowCursor, Followers, followers
from trainyard.server.streaming.batches import Batch, JobSnapshot, read_batch

KEY = ResourceKey("111111111111", KIND, "mnist")


class Scene:
    """A job in records, and its followers."""

    def __init__(self, records: SqlRecords, folder: Path) -> None:
        self.records = records
        self.followers = Followers(records, folder)
        self.stage = training(folder)
        self.resource: Resource = records.create(Draft(KEY, "us-east-1", body_of(self.stage.job)), now=seconds(0))
        self.stage = Stage(folder, self.stage.job, self.resource.id)

    def follow(self, cursor: FollowCursor | None = None, *, with_logs: bool = True) -> AsyncGenerator[bytes, None]:
        return self.followers.follow(self.resource, cursor or FollowCursor.start(self.resource.id), with_logs=with_logs)

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
    """Return the lines until one has that text or kind, or else until the stream ends."""
    found: list[dict[str, Any]] = []
    async for piece in lines:
        found += lines_of(piece)
        if until and any(until in (each["kind"], each.get("text")) for each in found):
            break
    return found


def test_a_follower_gets_the_lines_and_the_end(scene: Scene) -> None:
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


def test_followers_at_the_same_cursor_share_a_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def counted(snapshot: JobSnapshot, cursor: FollowCursor, *, with_logs: bool) -> Batch:
        reads.append(cursor)
        return read_batch(snapshot, cursor, with_logs=with_logs)

    monkeypatch.setattr(followers, "read_batch", counted)
    scene.stage.write("one\n")
    scene.become(ended(scene.stage.job))

    async def follow() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(told(scene.follow()) for _ in range(50)))

    found = asyncio.run(follow())
    assert found == [found[0]] * 50
    assert texts(found[0]) == ["one"]
    assert len(reads) <= 5


def test_nobody_looks_at_the_logs_unless_a_follower_wants_them(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = list[JobSnapshot](), followers._log_ends

    def counted(snapshot: JobSnapshot) -> list[int | None]:
        looks.append(snapshot)
        return look(snapshot)

    monkeypatch.setattr(followers, "_log_ends", counted)

    async def follow() -> None:
        async with aclosing(scene.follow(with_logs=False)) as statuses:
            await told(statuses, until="status")
            scene.become(scene.stage.job.with_notes("changed"))
            await told(statuses, until="changed")
            assert looks == []
            # The same watch looks at them from now on.
            scene.stage.write("one\n")
            async with aclosing(scene.follow()) as lines:
                await told(lines, until="one")
                waiting = asyncio.ensure_future(told(lines, until="two"))
                async with asyncio.timeout(30):
                    while not looks:
                        await asyncio.sleep(0.01)
                scene.stage.write("two\n")
                await waiting

    asyncio.run(follow())


def test_a_quiet_job_sends_heartbeats(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "HEARTBEAT_S", 0.01)

    async def follow() -> list[dict[str, Any]]:
        async with aclosing(scene.follow()) as lines:
            return await told(lines, until="beat")

    last = asyncio.run(follow())[-1]
    assert last["kind"] == "beat"
    assert FollowCursor.parse(last["cursor"], scene.resource.id).steps == 3


def test_a_job_that_only_writes_logs_sends_heartbeats_to_followers_without_logs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "HEARTBEAT_S", 0.2)

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


def test_closing_ends_every_stream_although_the_job_continues(scene: Scene) -> None:
    async def follow() -> list[dict[str, Any]]:
        async with aclosing(scene.follow()) as lines:
            found = await told(lines, until="status")
            scene.followers.close()
            return found + await told(lines)

    assert "ended" not in [each["kind"] for each in asyncio.run(follow())]


def test_the_stream_of_a_deleted_job_ends(scene: Scene) -> None:
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
        # Those that are ending need a moment; a task that still watches would not end by itself.
        left = asyncio.all_tasks() - before
        _, watching = await asyncio.wait(left, timeout=10) if left else ((), left)
        return {task.get_name() for task in watching}

    assert asyncio.run(follow()) == set()


def test_a_change_before_the_first_poll_is_sent(scene: Scene) -> None:
    stale = scene.resource
    scene.become(ended(scene.stage.job))

    async def follow() -> list[dict[str, Any]]:
        return await told(scene.followers.follow(stale, FollowCursor.start(stale.id), with_logs=False))

    assert asyncio.run(follow())[-1]["kind"] == "ended"
