"""Reading by blocks, from a remote in memory."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.remote_files.blocks import BLOCK_BYTES, BlockReader
from trainyard.instance.agent.data.remote_files.cache import BlockCache
from trainyard.instance.agent.data.remote_files.tree import RemoteFile

BUCKET = BucketRef("111122223333", "data")
LARGE = random.Random(2).randbytes(9 * BLOCK_BYTES + 77)
BODIES = [LARGE, *(bytes([number]) * (number * 100) for number in range(1, 50))]
FILES = [RemoteFile(Location(BUCKET, f"{n:02}"), len(body), f"e{n}", n) for n, body in enumerate(BODIES)]


class Remote:
    """A remote that records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self.failing: set[int] = set()

    def fetch(self, file: RemoteFile, offset: int, size: int) -> bytes:
        self.asked.append((file.number, offset, size))
        if file.number in self.failing:
            raise Unavailable("It rains.")
        data = BODIES[file.number][offset : offset + size]
        assert len(data) == size, "nothing is asked for that is not there"
        return data


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def reader_on(remote: Remote, folder: Path, pool: ThreadPoolExecutor, limit_bytes: int = 1 << 30) -> BlockReader:
    return BlockReader(FILES, remote.fetch, cache=BlockCache(folder, limit_bytes), pool=pool)


def read(reader: BlockReader, file: int, offset: int, size: int) -> bytes:
    answer: Future[bytes] = Future()

    def take(found: Sequence[bytes | memoryview] | Exception) -> None:
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(b"".join(found))

    reader.read_span(FILES[file], offset, size, take)
    return answer.result(10)


@pytest.mark.parametrize("limit_bytes", [1 << 30, 2 * BLOCK_BYTES + 100, 0])
def test_any_span_gives_its_bytes_however_small_the_cache_is(
    remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor, limit_bytes: int
) -> None:
    reader = reader_on(remote, tmp_path, pool, limit_bytes)
    chance = random.Random(5)
    spans = [(chance.randrange(len(LARGE)), chance.randrange(1, 3 * BLOCK_BYTES)) for _ in range(60)]
    for offset, size in [*spans, (0, len(LARGE)), (len(LARGE) - 1, 100), (BLOCK_BYTES, BLOCK_BYTES)]:
        assert read(reader, 0, offset, size) == LARGE[offset : offset + size]


def test_at_the_end_there_is_nothing(remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    reader = reader_on(remote, tmp_path, pool)
    assert read(reader, 0, len(LARGE), 100) == b""
    assert read(reader, 0, len(LARGE) + 5000, 100) == b""


def test_what_was_read_is_not_fetched_again(remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    reader = reader_on(remote, tmp_path, pool)
    for offset in range(0, len(LARGE), BLOCK_BYTES // 4):
        read(reader, 0, offset, BLOCK_BYTES // 4)
    pool.shutdown()
    assert sum(size for _, _, size in remote.asked) == len(LARGE)
    assert len(remote.asked) < 9


def test_a_random_read_fetches_one_block(remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    reader = reader_on(remote, tmp_path, pool)
    read(reader, 0, 5 * BLOCK_BYTES + 10, 1000)
    pool.shutdown()
    assert remote.asked == [(0, 5 * BLOCK_BYTES, BLOCK_BYTES)]


def test_files_that_are_read_in_order_are_fetched_before_they_are_read(
    remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    reader = reader_on(remote, tmp_path, pool)
    for file in range(1, 5):
        assert read(reader, file, 0, 1 << 17) == BODIES[file]
    pool.shutdown()
    assert {file for file, _, _ in remote.asked} > set(range(1, 12))


def test_an_error_reaches_the_reader_and_the_next_reader_tries_again(
    remote: Remote, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    reader = reader_on(remote, tmp_path, pool)
    remote.failing = {0}
    with pytest.raises(Unavailable, match="It rains"):
        read(reader, 0, 0, 100)
    remote.failing = set()
    assert read(reader, 0, 0, 100) == LARGE[:100]
