import os
from pathlib import Path

import pytest

from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.remote_files.cache import BlockCache
from trainyard.instance.agent.data.remote_files.tree import RemoteFile

KIBIBYTE = 1024
FILE = RemoteFile(Location(BucketRef("111122223333", "data"), "a"), 64 * KIBIBYTE, "e1", 0)
NEWER = RemoteFile(FILE.where, FILE.size, "e2", 0)


def block(number: int) -> memoryview:
    return memoryview(bytes([number]) * KIBIBYTE)


def read(cache: BlockCache, number: int, file: RemoteFile = FILE) -> bytes | None:
    return cache.read_block(file, number, offset=0, size=KIBIBYTE)


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return BlockCache(tmp_path, 10 * (KIBIBYTE + 4))


def test_a_cached_block_can_be_read_in_parts(cache: BlockCache) -> None:
    cache.store_block(FILE, 3, memoryview(b"0123456789"))
    assert cache.read_block(FILE, 3, offset=2, size=5) == b"23456"
    assert cache.read_block(FILE, 4, offset=0, size=1) is None


def test_blocks_of_another_version_are_others(cache: BlockCache) -> None:
    cache.store_block(FILE, 0, block(1))
    assert read(cache, 0, NEWER) is None
    cache.store_block(NEWER, 0, block(2))
    assert (read(cache, 0), read(cache, 0, NEWER)) == (bytes(block(1)), bytes(block(2)))


def test_the_limit_is_kept_by_removing_the_least_recently_used(cache: BlockCache, tmp_path: Path) -> None:
    for number in range(10):
        cache.store_block(FILE, number, block(number))
    assert read(cache, 0) is not None
    for number in range(10, 15):
        cache.store_block(FILE, number, block(number))
    kept = [number for number in range(15) if read(cache, number) is not None]
    assert kept == [0, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk == cache.size_bytes == 10 * (KIBIBYTE + 4)


def test_a_block_larger_than_the_limit_is_not_cached(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, KIBIBYTE)
    cache.store_block(FILE, 0, block(0))
    assert read(cache, 0) is None
    assert cache.size_bytes == 0


def test_a_later_process_finds_the_blocks_and_applies_its_own_limit(cache: BlockCache, tmp_path: Path) -> None:
    for number in range(4):
        cache.store_block(FILE, number, block(number))
    for number, path in enumerate(sorted(tmp_path.rglob("*-*"), key=lambda path: int(path.name.partition("-")[2]))):
        os.utime(path, (number, number))
    later = BlockCache(tmp_path, 2 * (KIBIBYTE + 4))
    assert [read(later, number) for number in range(4)] == [None, None, bytes(block(2)), bytes(block(3))]


def test_two_processes_share_one_limit(tmp_path: Path) -> None:
    limit = 32 * (KIBIBYTE + 4)
    first, second = BlockCache(tmp_path, limit), BlockCache(tmp_path, limit)
    for number in range(100):
        first.store_block(FILE, number, block(number))
        second.store_block(NEWER, number, block(number))
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk <= limit * 1.2


@pytest.mark.parametrize("ruin", [lambda data: data[:-1], lambda data: b"\xff" + data[1:], lambda data: b""])
def test_an_incomplete_block_after_a_crash_is_never_used(cache: BlockCache, tmp_path: Path, ruin: object) -> None:
    cache.store_block(FILE, 0, block(1))
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert callable(ruin)
    path.write_bytes(ruin(path.read_bytes()))
    later = BlockCache(tmp_path, 10 * KIBIBYTE)
    assert read(later, 0) is None
    assert not path.exists()
    later.store_block(FILE, 0, block(1))
    assert read(later, 0) == bytes(block(1))


def test_a_full_disk_only_means_that_nothing_is_cached(cache: BlockCache, tmp_path: Path) -> None:
    for folder in tmp_path.iterdir():
        folder.rmdir()
    cache.store_block(FILE, 0, block(0))
    assert read(cache, 0) is None
    assert cache.size_bytes == 0
