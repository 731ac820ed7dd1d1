"""Fetching ahead for Pipe channels, of a remote that is in memory."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.bodies import Closing, ObjectRef
from trainyard.instance.agent.prefetching import HELD_BYTES, PIECE_BYTES, RemoteBodies
from trainyard.objects.remote.bucket import RemoteBucket
from trainyard.objects.remote.patience import Patience
from trainyard.objects.remote.versions import RemoteVersion, RemoteVersions

BUCKET = BucketRef("111122223333", "data")
CHANCE = random.Random(4)
BODIES = {f"{number:03}": CHANCE.randbytes(number * 1000) for number in range(200)}
BODIES |= {"large": CHANCE.randbytes(3 * PIECE_BYTES + 5)}


class Memory:
    """Stands for a bucket of which ranges are read, and can be made to wait; system tests try a real one."""

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

    def known(self, where: Location, *, etag: str, size: int) -> RemoteVersion:
        return RemoteVersion(where, size, etag, cast(RemoteBucket, self.memory), where.key, Patience())

    def newest(self, where: Location, *, pause: object) -> RemoteVersion:
        if where.key not in self.memory.bodies:
            raise NotFound("key", where.key)
        return self.known(where, etag="e", size=len(self.memory.bodies[where.key]))


class Kept:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


def bodies_of(memory: Memory, check: object = lambda: None) -> RemoteBodies:
    return RemoteBodies(cast(RemoteVersions, Versions(memory)), check=check)  # type: ignore[arg-type]


def refs(bodies: dict[str, bytes], *, listed: bool = True) -> Iterator[bytes | ObjectRef]:
    for position, (key, body) in enumerate(bodies.items()):
        yield f"<{key}>".encode()
        known = ("e", len(body)) if listed else ("", 0)
        yield ObjectRef(Location(BUCKET, key), position, *known)


def sent(bodies: RemoteBodies, items: Iterator[bytes | ObjectRef]) -> bytearray:
    sink = Kept()
    for item in bodies.ahead(items):
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
def test_no_more_is_fetched_ahead_than_may_be_held(listed: bool) -> None:
    memory = Memory({f"{number:02}": bytes(PIECE_BYTES) for number in range(40)})
    with closing(bodies_of(memory)) as bodies:
        taken = 0
        for item in bodies.ahead(refs(memory.bodies, listed=listed)):
            if not isinstance(item, bytes):
                with item.open() as body:
                    body.send(Kept(), body.size)  # type: ignore[arg-type]
                    taken += body.size
            assert memory.fetched - taken <= HELD_BYTES + PIECE_BYTES
    assert taken == 40 * PIECE_BYTES


def test_a_file_can_be_read_again_from_its_beginning() -> None:
    with closing(bodies_of(Memory(BODIES))) as bodies:
        candidate = next(bodies.ahead(iter([ObjectRef(Location(BUCKET, "large"), 0, "e", len(BODIES["large"]))])))
        assert not isinstance(candidate, bytes)
        with candidate.open() as body, body.raw() as file:
            assert file.read(10) == BODIES["large"][:10]
            file.seek(0)
            assert file.read() == BODIES["large"]


def test_what_goes_wrong_comes_when_its_turn_has_come() -> None:
    def items() -> Iterator[bytes | ObjectRef]:
        yield b"first"
        raise NotFound("key", "gone")

    with closing(bodies_of(Memory({}))) as bodies:
        ahead = bodies.ahead(items())
        assert next(ahead) == b"first"
        with pytest.raises(NotFound):
            next(ahead)


def test_an_object_that_is_gone_is_told_when_it_is_opened() -> None:
    with closing(bodies_of(Memory({}))) as bodies:
        candidate = next(bodies.ahead(iter([ObjectRef(Location(BUCKET, "gone"), 0)])))
        assert not isinstance(candidate, bytes)
        with pytest.raises(NotFound):
            candidate.open()


def test_who_waits_for_a_remote_that_does_not_answer_can_be_ended() -> None:
    def end() -> None:
        raise Closing

    memory = Memory(BODIES)
    memory.gate.clear()
    with closing(bodies_of(memory, end)) as bodies, pytest.raises(Closing):
        sent(bodies, refs(BODIES))
    memory.gate.set()
