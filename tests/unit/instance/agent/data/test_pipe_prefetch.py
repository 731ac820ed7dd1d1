"""Prefetching for Pipe channels, from a remote in memory."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.pipe_objects import FeedClosing, ObjectRef
from trainyard.instance.agent.data.pipe_prefetch import BUFFER_BYTES, CHUNK_BYTES, RemoteBodySource
from trainyard.objects.remote.bucket import RemoteBucket
from trainyard.objects.remote.failures import RetryPolicy
from trainyard.objects.remote.versions import RemoteVersion, RemoteVersions

BUCKET = BucketRef("111122223333", "data")
CHANCE = random.Random(4)
BODIES = {f"{number:03}": CHANCE.randbytes(number * 1000) for number in range(200)}
BODIES |= {"large": CHANCE.randbytes(3 * CHUNK_BYTES + 5)}


class Memory:
    """Stands for a bucket with range reads, which can be blocked; system tests use a real one."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        self.bodies = bodies
        self.gate = threading.Event()
        self.gate.set()
        self.fetched = 0

    def read_range(self, path: str, offset: int, size: int, *, etag: str, version: str | None = None) -> bytes:
        self.gate.wait()
        self.fetched += size
        return self.bodies[path][offset : offset + size]


class Versions:
    """Stands for the versions of that bucket."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def from_listing(self, where: Location, *, etag: str, size: int) -> RemoteVersion:
        return RemoteVersion(where, size, etag, cast(RemoteBucket, self.memory), where.key, RetryPolicy())

    def newest(self, where: Location, *, pause: object) -> RemoteVersion:
        if where.key not in self.memory.bodies:
            raise NotFound("key", where.key)
        return self.from_listing(where, etag="e", size=len(self.memory.bodies[where.key]))


class Kept:
    """Collects what is sent."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


def bodies_of(memory: Memory, check: object = lambda: None) -> RemoteBodySource:
    return RemoteBodySource(cast(RemoteVersions, Versions(memory)), check=check)  # type: ignore[arg-type]


def refs(bodies: dict[str, bytes], *, listed: bool = True) -> Iterator[bytes | ObjectRef]:
    for position, (key, body) in enumerate(bodies.items()):
        yield f"<{key}>".encode()
        known = ("e", len(body)) if listed else ("", 0)
        yield ObjectRef(Location(BUCKET, key), position, *known)


def sent(bodies: RemoteBodySource, items: Iterator[bytes | ObjectRef]) -> bytearray:
    sink = Kept()
    for item in bodies.prefetch(items):
        if isinstance(item, bytes):
            sink.write(item)
        else:
            with item.open() as body:
                body.send(sink, body.size)  # type: ignore[arg-type]
    return sink.data


@pytest.mark.parametrize("listed", [True, False])
def test_everything_comes_in_its_order(listed: bool) -> None:
    with closing(bodies_of(Memory(BODIES))) as bodies:
        expected = b"".join(f"<{key}>".encode() + body for key, body in BODIES.items())
        assert sent(bodies, refs(BODIES, listed=listed)) == expected


@pytest.mark.parametrize("listed", [True, False])
def test_prefetching_stays_within_its_limit(listed: bool) -> None:
    memory = Memory({f"{number:02}": bytes(CHUNK_BYTES) for number in range(40)})
    with closing(bodies_of(memory)) as bodies:
        taken = 0
        for item in bodies.prefetch(refs(memory.bodies, listed=listed)):
            if not isinstance(item, bytes):
                with item.open() as body:
                    body.send(Kept(), body.size)  # type: ignore[arg-type]
                    taken += body.size
            assert memory.fetched - taken <= BUFFER_BYTES + CHUNK_BYTES
    assert taken == 40 * CHUNK_BYTES


def test_a_file_can_be_read_again_from_its_beginning() -> None:
    with closing(bodies_of(Memory(BODIES))) as bodies:
        candidate = next(bodies.prefetch(iter([ObjectRef(Location(BUCKET, "large"), 0, "e", len(BODIES["large"]))])))
        assert not isinstance(candidate, bytes)
        with candidate.open() as body, body.raw() as file:
            assert file.read(10) == BODIES["large"][:10]
            file.seek(0)
            assert file.read() == BODIES["large"]


def test_an_error_is_raised_when_its_object_is_next() -> None:
    def items() -> Iterator[bytes | ObjectRef]:
        yield b"first"
        raise NotFound("key", "gone")

    with closing(bodies_of(Memory({}))) as bodies:
        ahead = bodies.prefetch(items())
        assert next(ahead) == b"first"
        with pytest.raises(NotFound):
            next(ahead)


def test_a_missing_object_is_an_error_when_it_is_opened() -> None:
    with closing(bodies_of(Memory({}))) as bodies:
        candidate = next(bodies.prefetch(iter([ObjectRef(Location(BUCKET, "gone"), 0)])))
        assert not isinstance(candidate, bytes)
        with pytest.raises(NotFound):
            candidate.open()


def test_waiting_for_a_remote_that_does_not_answer_can_be_cancelled() -> None:
    def end() -> None:
        raise FeedClosing

    memory = Memory(BODIES)
    memory.gate.clear()
    with closing(bodies_of(memory, end)) as bodies, pytest.raises(FeedClosing):
        sent(bodies, refs(BODIES))
    memory.gate.set()
