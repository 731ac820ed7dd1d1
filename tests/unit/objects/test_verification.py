import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart
from trainyard.objects.datafiles import hold_files
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.objects.samples import NOON, PART, new_bucket, put, put_part


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        yield opened


@pytest.fixture
def bucket(store: FilesystemObjects) -> BucketRef:
    return new_bucket(store)


def file_of(store: FilesystemObjects, where: Location) -> Path:
    [file] = store.stored_files(where.bucket, [where.key])
    assert file is not None
    return Path(file.path)


def change(file: Path, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(b"X")


@pytest.mark.parametrize("offset", [0, PART - 1, PART, PART + 2])
def test_a_changed_byte_of_any_part_is_found(store: FilesystemObjects, bucket: BucketRef, offset: int) -> None:
    upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
    bodies = [b"a" * PART, b"bcd"]
    named = [CompletedPart(n, put_part(store, upload, n, body=body).etag) for n, body in enumerate(bodies, 1)]
    store.complete_upload(upload.where, upload.id, named, now=NOON)
    file = file_of(store, upload.where)
    change(file, offset)
    assert store.verify() == []
    assert store.verify(deep=True) == [
        f"s3://{bucket.name}/k has changed since it was stored: the MD5 of its data file differs ({file})."
    ]


def test_a_changed_part_of_an_unfinished_upload_is_found(store: FilesystemObjects, bucket: BucketRef) -> None:
    upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
    put_part(store, upload, 3, body=b"part")
    [data] = store._files
    file = store._files.path(data)
    change(file, 2)
    what = "Part 3 of an unfinished upload"
    assert store.verify() == []
    assert store.verify(deep=True) == [
        f"{what} has changed since it was stored: the MD5 of its data file differs ({file})."
    ]
    os.truncate(file, 6)
    assert store.verify() == [f"{what} should have 4 bytes, but its data file has 6 ({file})."]


def test_every_problem_has_a_sentence(store: FilesystemObjects, bucket: BucketRef) -> None:
    wheres = [Location(bucket, key) for key in ("changed", "lost", "short", "sound")]
    for where in wheres:
        put(store, where, where.key.encode())
    changed, lost, short, _ = (file_of(store, where) for where in wheres)
    change(changed, 0)
    lost.unlink()
    os.truncate(short, 2)
    stray = lost.parent / f"stray{lost.parent.name}"
    stray.write_bytes(b"x")
    assert store.verify(deep=True) == [
        f"The data file {stray} belongs to no object; it only takes up space.",
        f"s3://{bucket.name}/changed has changed since it was stored: the MD5 of its data file differs ({changed}).",
        f"s3://{bucket.name}/lost has lost its data file ({lost}).",
        f"s3://{bucket.name}/short should have 5 bytes, but its data file has 2 ({short}).",
    ]


def test_files_on_their_way_in_or_out_are_no_problem(store: FilesystemObjects, bucket: BucketRef) -> None:
    put(store, Location(bucket, "k"), b"x")
    incoming_file = store._files.create()
    incoming_file.settle()
    with hold_files(store._files.root):
        store.delete(Location(bucket, "k"))
        assert len(list(store._files)) == 2
        assert store.verify(deep=True) == []
    incoming_file.discard()


def test_a_file_that_is_removed_while_it_is_looked_at_is_no_problem(
    store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Location(bucket, "k")
    size = store._files.size

    def remove_first(data: str) -> int | None:
        store.delete(where)
        return size(data)

    put(store, where, b"x")
    with monkeypatch.context() as patch:
        patch.setattr(store._files, "size", remove_first)
        assert store.verify() == []
    stray = store._files.path("0123ab")
    stray.write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(store._index.data, "is_trash", lambda _: stray.unlink())
        assert store.verify() == []


def test_a_file_that_is_lost_before_its_bytes_are_read_is_reported_as_lost(
    store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, Location(bucket, "k"), b"x")
    file = file_of(store, Location(bucket, "k"))

    def lose(_: str) -> int:
        file.unlink()
        return 1

    monkeypatch.setattr(store._files, "size", lose)
    assert store.verify(deep=True) == [f"s3://{bucket.name}/k has lost its data file ({file})."]


def test_a_damaged_index_is_reported_and_nothing_else_is_checked(store: FilesystemObjects, bucket: BucketRef) -> None:
    put(store, Location(bucket, "k"), b"x")
    file_of(store, Location(bucket, "k")).unlink()
    with closing(sqlite3.connect(store._files.root / "index.sqlite")) as index:
        # Point both indexes at one page, which lacks the rows of one of them.
        index.execute("PRAGMA writable_schema = ON")
        index.execute(
            "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'part_by_data') "
            "WHERE name = 'object_by_data'"
        )
        index.execute("PRAGMA schema_version = 1000")
        index.commit()
    problems = store.verify()
    assert problems
    assert all(problem.startswith("The index is damaged: ") for problem in problems)
