import base64
import hashlib
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from trainyard._sdk.storage import file_digests
from trainyard._sdk.storage.file_digests import (
    PART_BYTES,
    FileChanged,
    FileDigest,
    FileDigests,
    part_sizes,
)


def long_ago(path: Path) -> None:
    """Set the modification time of a file to the past. The change time cannot be set."""
    os.utime(path, (1_000_000_000, 1_000_000_000))


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_a_small_file_has_the_sha256_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    with FileDigests(tmp_path / "cache") as digests:
        assert digests.digest(tmp_path / "a") == FileDigest(7, base64.b64encode(sha256(b"content")).decode())


def test_a_large_file_has_the_checksum_that_s3_makes_of_its_parts(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(PART_BYTES + 3)
    parts = [sha256(bytes(PART_BYTES)), sha256(bytes(3))]
    with FileDigests(tmp_path / "cache") as digests:
        found = digests.digest(tmp_path / "large")
    assert found.checksum == f"{base64.b64encode(sha256(b''.join(parts))).decode()}-2"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 300 * 1024**3, 5 * 1024**4])
def test_no_file_has_more_parts_than_s3_takes(size: int) -> None:
    sizes = part_sizes(size)
    assert sum(sizes) == size
    assert len(sizes) <= 10_000
    assert len(set(sizes[:-1])) <= 1, "all but the last are of one size"


def test_a_settled_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    # Every file counts as settled.
    monkeypatch.setattr(file_digests, "_UNSETTLED_NS", -time.time_ns())
    with FileDigests(tmp_path / "cache") as digests:
        first = digests.digest(path)
    # A mark in the cached digest shows that the file is not read again.
    with closing(sqlite3.connect(tmp_path / "cache" / "digests.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE digests SET checksum = 'kept'")
    with FileDigests(tmp_path / "cache") as digests:
        assert digests.digest(path) == FileDigest(first.size, "kept")
        path.write_bytes(b"changed")
        assert digests.digest(path).checksum == base64.b64encode(sha256(b"changed")).decode()


def test_a_file_that_was_written_just_now_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    with FileDigests(tmp_path / "cache") as digests:
        digests.digest(tmp_path / "a")
    with closing(sqlite3.connect(tmp_path / "cache" / "digests.sqlite", isolation_level=None)) as database:
        assert database.execute("SELECT count(*) FROM digests").fetchone() == (0,)


def test_a_file_of_the_same_size_and_time_in_its_place_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "_UNSETTLED_NS", -time.time_ns())
    (tmp_path / "a").write_bytes(b"first")
    long_ago(tmp_path / "a")
    with FileDigests(tmp_path / "cache") as digests:
        before = digests.digest(tmp_path / "a")
        (tmp_path / "b").write_bytes(b"other")
        long_ago(tmp_path / "b")
        (tmp_path / "b").replace(tmp_path / "a")
        assert digests.digest(tmp_path / "a") != before


@pytest.mark.parametrize("broken", ["a folder", "damaged"])
def test_without_its_cache_everything_is_read(tmp_path: Path, broken: str) -> None:
    (tmp_path / "a").write_bytes(b"content")
    database = tmp_path / "cache" / "digests.sqlite"
    database.parent.mkdir()
    if broken == "a folder":
        database.mkdir()
    else:
        database.write_bytes(b"no database" * 1000)
    with FileDigests(tmp_path / "cache") as digests:
        assert digests.digest(tmp_path / "a").size == 7


def test_a_file_that_grows_while_it_is_read_is_said_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    read = file_digests._checksum

    def read_and_write(*arguments: object) -> str | None:
        checksum = read(*arguments)  # type: ignore[arg-type]  # what the module passes
        with path.open("ab") as file:
            file.write(b"!")
        return checksum

    monkeypatch.setattr(file_digests, "_checksum", read_and_write)
    with FileDigests(tmp_path / "cache") as digests, pytest.raises(FileChanged, match="changed during"):
        digests.digest(path)
