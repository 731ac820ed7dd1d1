import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.unit.objects import crash_writer
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    CompletedPart,
    DigestMismatch,
    HasLocalFile,
    InvalidPart,
    NewObject,
    Precondition,
    PreconditionFailed,
    Upload,
    WriteResult,
)
from trainyard.objects.database import DiskFull
from trainyard.objects.datafiles import hold_files
from trainyard.objects.filesystem import FileReader, FilesystemObjects, snapshot
from trainyard.testing.objects.listing import walk
from trainyard.testing.objects.samples import (
    NOON,
    PART,
    REGION,
    body_of,
    keys_of,
    minutes,
    new_bucket,
    put,
    put_part,
)

CRASH_ROUNDS = 6


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def store(root: Path) -> Iterator[FilesystemObjects]:
    opened = FilesystemObjects(root)
    yield opened
    opened.close()


@pytest.fixture
def bucket(store: FilesystemObjects) -> BucketRef:
    return new_bucket(store)


def data_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "data").glob("*/*"))


def incoming_files(root: Path) -> list[Path]:
    return sorted((root / "incoming").iterdir())


def completed(store: FilesystemObjects, where: Location, *bodies: bytes) -> Upload:
    upload = store.create_upload(where, Attributes(), now=NOON)
    named = [
        CompletedPart(number, put_part(store, upload, number, body=body).etag) for number, body in enumerate(bodies, 1)
    ]
    store.complete_upload(where, upload.id, named, now=NOON)
    return upload


class TestFiles:
    def test_the_files_of_many_objects_are_returned_together_with_none_for_missing_ones(
        self, store: FilesystemObjects, bucket: BucketRef
    ) -> None:
        for number in range(3):
            put(store, Location(bucket, f"k/{number}"), b"%d" % number)
        keys = [f"k/{number}" for number in range(2500)]
        told = store.stored_files(bucket, keys)
        assert told[3:] == [None] * 2497
        for number, file in enumerate(told[:3]):
            info = store.info(Location(bucket, keys[number]))
            assert file is not None
            assert (Path(file.path).read_bytes(), file.size, file.etag) == (b"%d" % number, info.size, info.etag)
        assert store.stored_files(BucketRef(bucket.account, "nowhere"), keys[:2]) == [None, None]

    def test_the_files_of_objects_are_returned_in_any_order_for_any_keys(
        self, store: FilesystemObjects, bucket: BucketRef
    ) -> None:
        keys = ["ž/é", "b", 'with "quotes" and \\', "a", "b\n"]
        for key in keys:
            put(store, Location(bucket, key), key.encode())
        assert [file and Path(file.path).read_bytes() for file in store.stored_files(bucket, keys)] == [
            key.encode() for key in keys
        ]

    def test_a_stored_file_is_changed_by_its_owner_alone_and_its_folder_is_private(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"bytes")
        [file] = data_files(root)
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        assert file.read_bytes() == b"bytes"
        assert incoming_files(root) == []

    def test_times_are_those_of_the_caller(self, store: FilesystemObjects, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        written = put(store, where, b"1")
        copied = store.copy(where, Location(bucket, "copy"), now=minutes(1))
        assert (written.modified_at, copied.modified_at) == (NOON, minutes(1))
        assert [found.modified_at for found in store.list_objects(bucket).objects] == [minutes(1), NOON]

    def test_a_reader_hands_its_file_to_the_kernel(
        self, store: FilesystemObjects, bucket: BucketRef, tmp_path: Path
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, b"0123456789")
        with store.open(where) as reader, (tmp_path / "sent").open("wb") as target:
            assert isinstance(reader, HasLocalFile)
            os.sendfile(target.fileno(), reader.file.fileno(), 2, 5)
        assert (tmp_path / "sent").read_bytes() == b"23456"

    def test_a_short_read_of_the_kernel_continues_to_the_end(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = bytes(range(256)) * 4
        put(store, Location(bucket, "k"), body)
        reader = store.open(Location(bucket, "k"))
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pread(descriptor, min(size, 100), offset))
        assert reader.read(0, len(body)) == body
        assert reader.read(200, 450) == body[200:650]
        reader.close()

    def test_a_disk_that_fails_while_it_is_read_is_unavailable(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, Location(bucket, "k"), b"bytes")

        # No disk fails on demand, so the failure is simulated.
        def fail(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        with store.open_local(Location(bucket, "k")) as reader:
            monkeypatch.setattr(os, "pread", fail)
            with pytest.raises(Unavailable, match="Input/output error"):
                reader.read(0, 5)
        assert isinstance(reader, FileReader)
        assert reader.file.closed

    def test_all_files_are_in_the_files_folder(self, store: FilesystemObjects, bucket: BucketRef) -> None:
        put(store, Location(bucket, "k"), b"bytes")
        [file] = store.stored_files(bucket, ["k"])
        assert file is not None
        assert Path(file.path).is_relative_to(store.files_folder)

    def test_cached_bytes_are_read_immediately(self) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            store = FilesystemObjects(Path(folder) / "objects")
            where = Location(new_bucket(store), "k")
            put(store, where, b"0123456789")
            reader = store.open(where)
            assert isinstance(reader, FileReader)
            reader.read(0, 10)
            told, at_the_end, beyond = (reader.read_now(offset, 5) for offset in (2, 8, 20))
            os.truncate(reader.file.name, 4)
            of_a_short_file = reader.read_now(2, 5)
            reader.close()
            store.close()
        if told is None:
            pytest.skip("the file system of /var/tmp cannot tell what is in memory")
        assert (told, at_the_end, beyond, of_a_short_file) == (b"23456", b"89", b"", None)

    def test_the_file_of_a_replaced_or_deleted_object_is_removed(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, b"first")
        put(store, where, b"second")
        assert [file.read_bytes() for file in data_files(root)] == [b"second"]
        store.delete(where)
        assert data_files(root) == []
        for number in range(5):
            put(store, Location(bucket, str(number)), b"x")
        store.delete_many(bucket, ["0", "1", "2", "3", "4"])
        assert data_files(root) == []

    def test_the_files_of_parts_go_with_their_upload(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        where = Location(bucket, "k")
        upload = store.create_upload(where, Attributes(), now=NOON)
        put_part(store, upload, 1, body=b"one")
        put_part(store, upload, 1, body=b"one again")
        assert [file.read_bytes() for file in data_files(root)] == [b"one again"]
        store.abort_upload(where, upload.id)
        assert data_files(root) == []
        completed(store, where, b"a" * PART, b"b")
        assert [file.stat().st_size for file in data_files(root)] == [PART + 1]

    def test_a_copy_shares_its_bytes_with_the_source(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "source"), b"x" * 100_000)
        store.copy(Location(bucket, "source"), Location(bucket, "target"), now=NOON)
        first, second = data_files(root)
        assert first.samefile(second)
        store.delete(Location(bucket, "source"))
        assert len(data_files(root)) == 1
        assert body_of(store, Location(bucket, "target")) == b"x" * 100_000

    def test_an_upload_of_one_part_becomes_the_object_without_a_copy(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"only")
        [before] = data_files(root)
        inode = before.stat().st_ino
        store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
        [after] = data_files(root)
        assert after.stat().st_ino == inode

    def test_a_refused_write_leaves_no_file(self, store: FilesystemObjects, bucket: BucketRef, root: Path) -> None:
        where = Location(bucket, "k")
        wrong = Checksum(ChecksumAlgorithm.SHA1, "AAAA")
        attempts: list[Callable[[], object]] = [
            lambda: put(store, where, b"x", precondition=Precondition(etag="other")),
            lambda: store.writer(where, Attributes()).commit(now=NOON, expected=[wrong]),
            lambda: store.writer(where, Attributes()).commit(now=NOON, md5="AAAA"),
        ]
        for attempt in attempts:
            with pytest.raises((PreconditionFailed, DigestMismatch)):
                attempt()
            assert data_files(root) == []
            assert incoming_files(root) == []

    def test_joining_works_where_the_kernel_cannot_copy(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # No file system here refuses copy_file_range, so the refusal is simulated.
        def refuse(*_: object) -> int:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "copy_file_range", refuse)
        bodies = [b"a" * PART, b"b" * (PART + 1), b"c"]
        completed(store, Location(bucket, "k"), *bodies)
        assert body_of(store, Location(bucket, "k")) == b"".join(bodies)

    def test_a_file_with_too_many_names_is_copied(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, Location(bucket, "source"), b"x" * 1000)
        link = os.link

        # Creating 65,000 links takes minutes, so the refusal of one more is simulated.
        def refuse(source: Path, target: Path) -> None:
            if source.parent.parent.name == "data":
                raise OSError(31, "Too many links")
            link(source, target)

        monkeypatch.setattr(os, "link", refuse)
        store.copy(Location(bucket, "source"), Location(bucket, "target"), now=NOON)
        first, second = data_files(root)
        assert not first.samefile(second)
        assert body_of(store, Location(bucket, "target")) == b"x" * 1000


class TestPages:
    def test_a_page_has_a_thousand_entries_by_default(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        fill(root, bucket, 501)
        listing = store.list_objects(bucket)
        assert (len(listing.objects), listing.next_after) == (1000, "validation/000498")
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        connection = sqlite3.connect(root / "index.sqlite")
        connection.executemany(
            "INSERT INTO part (upload, number, size, etag, modified_at, data) VALUES (?, ?, 1, 'etag', 1, ?)",
            [(upload.id, number, f"part {number}") for number in range(1, 1002)],
        )
        connection.executemany(
            "INSERT INTO upload (bucket, key, id, started_at) SELECT bucket, ?, ?, 1 FROM upload LIMIT 1",
            [(f"u{number:04}".encode(), f"{number}") for number in range(1000)],
        )
        connection.commit()
        connection.close()
        assert [part.number for part in store.parts(upload.where, upload.id)] == list(range(1, 1001))
        page = store.uploads(bucket)
        assert (len(page.uploads), page.next_key, page.next_upload_id) == (1000, "u0998", "998")

    def test_thousands_of_keys_are_deleted_at_once(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        fill(root, bucket, 2100)
        keys = [f"train/{number:06}" for number in range(2100)]
        store.delete_many(bucket, keys[:1000] + keys[1001:])
        assert keys_of(store, bucket)[:2] == ["train/001000", "validation/000000"]


class TestTogether:
    def test_a_batch_of_objects_is_put_with_all_attributes(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "replaced"), b"old")
        described = Attributes(metadata={"by": "a"})
        bodies = {"replaced": b"new", "empty": b"", **{f"{number:03}": b"x" * number for number in range(200)}}
        new = [NewObject(Location(bucket, key), body, described) for key, body in bodies.items()]
        outcomes = store.put_batch(new, now=NOON)
        for each, outcome in zip(new, outcomes, strict=True):
            info = store.info(each.where)
            assert outcome == WriteResult(info.etag, len(each.body), NOON)
            assert (info.size, info.modified_at, info.attributes) == (len(each.body), NOON, described)
            assert body_of(store, each.where) == each.body
        assert store.verify(deep=True) == []
        assert incoming_files(root) == []
        assert len(data_files(root)) == len(bodies)

    def test_a_failure_of_one_object_does_not_affect_the_others(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "b"), b"another's")
        gone = Location(BucketRef(bucket.account, "gone"), "d")
        wheres = [Location(bucket, "a"), Location(bucket, "b"), Location(bucket, "c"), gone]
        new = [NewObject(where, b"mine", Attributes(), Precondition(absent=True)) for where in wheres]
        first, second, third, fourth = store.put_batch(new, now=NOON)
        assert isinstance(first, WriteResult)
        assert isinstance(second, PreconditionFailed)
        assert isinstance(third, WriteResult)
        assert isinstance(fourth, NotFound)
        assert [body_of(store, where) for where in wheres[:3]] == [b"mine", b"another's", b"mine"]
        assert incoming_files(root) == []
        assert len(data_files(root)) == 3

    def test_files_that_come_together_lie_in_one_folder_which_is_synced_once(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        new = [NewObject(Location(bucket, str(number)), b"x", Attributes()) for number in range(20)]
        store.put_batch(new, now=NOON)
        assert len({file.parent for file in data_files(root)}) == 1

    def test_the_file_of_a_replaced_object_is_removed(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        for body in (b"old", b"new"):
            store.put_batch([NewObject(Location(bucket, key), body, Attributes()) for key in "ab"], now=NOON)
        assert [file.read_bytes() for file in data_files(root)] == [b"new", b"new"]
        assert store.put_batch([], now=NOON) == []


class TestMeanwhile:
    """Concurrent changes between two steps of an operation, made by the step itself."""

    def test_an_object_that_is_replaced_while_it_is_opened_or_copied_is_the_new_one(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where, target = Location(bucket, "k"), Location(bucket, "copy")
        attempts: list[tuple[str, Callable[[], object]]] = [
            ("open", lambda: body_of(store, where)),
            ("link", lambda: store.copy(where, target, now=NOON)),
        ]
        for step, attempt in attempts:
            put(store, where, b"old")
            with monkeypatch.context() as patch:
                before(patch, store, step, lambda: put(store, where, b"new"))
                attempt()
            assert body_of(store, where) == b"new"
        assert body_of(store, target) == b"new"

    def test_an_object_that_is_deleted_while_it_is_opened_is_not_found(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, b"old")
        before(monkeypatch, store, "open", lambda: store.delete(where))
        with pytest.raises(NotFound):
            store.open(where)

    def test_a_copy_that_requires_an_etag_is_refused_if_its_source_is_replaced(
        self, store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where = Location(bucket, "k")
        etag = put(store, where, b"old").etag
        before(monkeypatch, store, "link", lambda: put(store, where, b"new"))
        with pytest.raises(PreconditionFailed):
            store.copy(where, Location(bucket, "copy"), now=NOON, source_etag=etag)
        assert keys_of(store, bucket) == ["k"]

    @pytest.mark.parametrize("step", ["link", "open"])
    def test_a_part_that_is_replaced_during_the_completion_is_in_the_object(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        bodies = [b"a" * PART, b"b"] if step == "open" else [b"b"]
        named = [CompletedPart(n, put_part(store, upload, n, body=body).etag) for n, body in enumerate(bodies, 1)]
        before(monkeypatch, store, step, lambda: put_part(store, upload, len(bodies), body=b"b"))
        store.complete_upload(upload.where, upload.id, named, now=NOON)
        assert body_of(store, upload.where) == b"".join(bodies)
        assert store.verify(deep=True) == []
        assert (len(data_files(root)), incoming_files(root)) == (1, [])

    def test_a_part_that_is_replaced_after_the_join_is_in_the_object(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"b")
        complete = store._index.uploads.complete
        turns: list[int] = []

        def complete_late(*arguments: Any, **named: Any) -> None:
            turns.append(len(turns))
            if turns == [0]:
                put_part(store, upload, 1, body=b"b")
            complete(*arguments, **named)

        monkeypatch.setattr(store._index.uploads, "complete", complete_late)
        store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
        assert turns == [0, 1]
        assert body_of(store, upload.where) == b"b"
        assert (len(data_files(root)), incoming_files(root)) == (1, [])

    def test_a_part_that_is_another_by_the_time_its_upload_is_completed_is_refused(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"old")
        before(monkeypatch, store, "link", lambda: put_part(store, upload, 1, body=b"new"))
        with pytest.raises(InvalidPart):
            store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
        assert keys_of(store, bucket) == []
        assert (len(data_files(root)), incoming_files(root)) == (1, [])

    def test_writes_with_an_unknown_outcome_are_checked_at_the_next_start(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = store.writer(Location(bucket, "k"), Attributes())
        writer.write(b"bytes")

        def interrupt(*_: object, **__: object) -> bool:
            raise KeyboardInterrupt

        monkeypatch.setattr(store._index, "put_object", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.commit(now=NOON)
        assert (len(data_files(root)), len(incoming_files(root))) == (1, 1)
        store.close()
        with closing(FilesystemObjects(root)) as again:
            assert (data_files(root), incoming_files(root), keys_of(again, bucket)) == ([], [], [])


def before(patch: pytest.MonkeyPatch, store: FilesystemObjects, step: str, work: Callable[[], object]) -> None:
    """Run something once before this step of the data files."""
    original: Callable[..., object] = getattr(store._files, step)
    left = [work]

    def late(*arguments: object) -> object:
        if left:
            left.pop()()
        return original(*arguments)

    patch.setattr(store._files, step, late)


class TestHold:
    def test_files_stay_while_a_backup_holds_them_and_go_with_the_next_removal(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"held")
        put(store, Location(bucket, "other"), b"other")
        with hold_files(root):
            put(store, Location(bucket, "k"), b"new")
            assert store.sweep() == 0
            assert sorted(file.read_bytes() for file in data_files(root)) == [b"held", b"new", b"other"]
        store.delete(Location(bucket, "other"))
        assert [file.read_bytes() for file in data_files(root)] == [b"new"]

    def test_a_sweep_removes_files_that_a_backup_held(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        for number in range(3):
            put(store, Location(bucket, str(number)), b"x")
        with hold_files(root):
            store.delete_many(bucket, ["0", "1"])
        assert len(data_files(root)) == 3
        assert store.sweep() == 2
        assert len(data_files(root)) == 1
        assert store.sweep() == 0

    def test_files_that_a_backup_held_are_removed_at_the_next_opening(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"held")
        with hold_files(root):
            store.delete(Location(bucket, "k"))
            store.close()
        assert len(data_files(root)) == 1
        again = FilesystemObjects(root)
        assert data_files(root) == []
        again.close()

    def test_a_snapshot_is_a_store_of_one_moment(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, tmp_path: Path
    ) -> None:
        put(store, Location(bucket, "kept"), b"as it was", algorithms=[ChecksumAlgorithm.CRC32])
        put(store, Location(bucket, "deleted"), b"gone later")
        upload = store.create_upload(Location(bucket, "unfinished"), Attributes(), now=NOON)
        put_part(store, upload, 1, body=b"part")
        copy = tmp_path / "copy"
        copy.mkdir()
        with snapshot(root, copy / "index.sqlite") as files:
            put(store, Location(bucket, "kept"), b"changed")
            put(store, Location(bucket, "later"), b"later")
            store.delete(Location(bucket, "deleted"))
            for file in files:
                target = copy / file.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
        restored = FilesystemObjects(copy)
        assert keys_of(restored, bucket) == ["deleted", "kept"]
        assert body_of(restored, Location(bucket, "kept")) == b"as it was"
        assert [part.number for part in restored.parts(upload.where, upload.id)] == [1]
        assert restored.verify(deep=True) == []
        for number in range(300):  # some go into folders that held no file and were not copied
            put(restored, Location(bucket, f"new {number}"), b"1")
        restored.close()


class TestVerify:
    def test_a_sound_store_has_no_problems(self, store: FilesystemObjects, bucket: BucketRef) -> None:
        put(store, Location(bucket, "k"), b"1")
        completed(store, Location(bucket, "parts"), b"a" * PART, b"b")
        store.copy(Location(bucket, "parts"), Location(bucket, "copy"), now=NOON)
        put_part(store, store.create_upload(Location(bucket, "u"), Attributes(), now=NOON), 1, body=b"part")
        assert store.verify(deep=True) == []

    def test_a_lost_file_is_found_and_reading_it_says_how_to_get_it_back(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"1")
        data_files(root)[0].unlink()
        [problem] = store.verify()
        assert problem.startswith(f"s3://{bucket.name}/k has lost its data file")
        for read in (store.open, lambda where: store.copy(where, where, now=NOON)):
            with pytest.raises(Corrupt, match="trainyard restore"):
                read(Location(bucket, "k"))

    def test_a_stray_file_is_found(self, store: FilesystemObjects, bucket: BucketRef, root: Path) -> None:
        put(store, Location(bucket, "k"), b"1")
        stray = root / "data" / "ab" / "0123ab"
        stray.write_bytes(b"x")
        [problem] = store.verify()
        assert str(stray) in problem

    def test_a_short_file_is_found_and_never_read_as_whole(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"0123456789")
        os.truncate(data_files(root)[0], 4)
        [problem] = store.verify()
        assert "should have 10 bytes, but its data file has 4" in problem
        with store.open(Location(bucket, "k")) as reader, pytest.raises(Corrupt, match="too short"):
            reader.read(0, 10)

    def test_changed_bytes_are_found_by_a_deep_look(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        completed(store, Location(bucket, "k"), b"a" * PART, b"bcd")
        [file] = data_files(root)
        file.chmod(0o600)
        with file.open("r+b") as opened:
            opened.seek(PART + 1)
            opened.write(b"X")
        assert store.verify() == []
        [problem] = store.verify(deep=True)
        assert problem.startswith(f"s3://{bucket.name}/k has changed since it was stored")

    def test_a_lost_part_of_an_upload_is_found(self, store: FilesystemObjects, bucket: BucketRef, root: Path) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 3, body=b"part")
        data_files(root)[0].unlink()
        [problem] = store.verify()
        assert problem.startswith("Part 3 of an unfinished upload has lost its data file")
        with pytest.raises(Corrupt, match="trainyard restore"):
            store.complete_upload(upload.where, upload.id, [CompletedPart(3, part.etag)], now=NOON)

    def test_concurrent_writes_are_not_reported_as_problems(self, store: FilesystemObjects, bucket: BucketRef) -> None:
        is_over = Event()

        def work(number: int) -> None:
            while not is_over.is_set():
                put(store, Location(bucket, str(number)), b"x" * number)
                store.delete(Location(bucket, str(number)))

        threads = [Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        problems = [problem for _ in range(15) for problem in store.verify(deep=True)]
        is_over.set()
        for thread in threads:
            thread.join()
        assert problems == []


class TestOpening:
    def test_everything_is_there_after_closing_and_opening(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        said = Attributes({"content-type": "x/y"}, {"a": "b"}, {"t": "v"})
        put(store, Location(bucket, "k"), b"bytes", attributes=said)
        before = store.info(Location(bucket, "k"))
        store.close()
        again = FilesystemObjects(root)
        assert again.info(Location(bucket, "k")) == before
        assert body_of(again, Location(bucket, "k")) == b"bytes"
        again.close()

    def test_space_is_set_aside_so_that_things_can_be_deleted_on_a_full_disk(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, Location(bucket, "k"), b"1")
        delete, set_aside = store._index.delete_object, []

        # The full disk of `TestDisk` does this too, but takes long.
        def delete_with_space(where: Location, precondition: Precondition) -> bool:
            set_aside.append((root / "ballast").exists())
            if set_aside == [True]:
                raise DiskFull("There is no space left.")
            return delete(where, precondition)

        monkeypatch.setattr(store._index, "delete_object", delete_with_space)
        assert store.delete(Location(bucket, "k"))
        assert set_aside == [True, False]
        assert (root / "ballast").stat().st_size == 8 << 20
        assert data_files(root) == []

    def test_an_interrupted_write_is_cleared_up(self, store: FilesystemObjects, bucket: BucketRef, root: Path) -> None:
        put(store, Location(bucket, "k"), b"kept")
        store.writer(Location(bucket, "k"), Attributes()).write(b"never committed")
        store.close()
        assert len(incoming_files(root)) == 1
        again = FilesystemObjects(root)
        assert incoming_files(root) == []
        assert body_of(again, Location(bucket, "k")) == b"kept"
        assert again.verify(deep=True) == []
        again.close()

    def test_an_arrival_that_the_index_names_lives(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"acknowledged")
        [file] = data_files(root)
        os.link(file, root / "incoming" / file.name)  # as after a crash between the commit and the unlink
        store.close()
        again = FilesystemObjects(root)
        assert incoming_files(root) == []
        assert body_of(again, Location(bucket, "k")) == b"acknowledged"
        again.close()

    def test_a_second_opening_leaves_the_writes_of_the_first_alone(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        writer = store.writer(Location(bucket, "k"), Attributes())
        writer.write(b"in progress")
        second = FilesystemObjects(root)
        assert len(incoming_files(root)) == 1
        writer.commit(now=NOON)
        assert body_of(second, Location(bucket, "k")) == b"in progress"
        put(second, Location(bucket, "k"), b"from the second")
        second.close()
        assert body_of(store, Location(bucket, "k")) == b"from the second"

    def test_a_damaged_index_is_refused_with_the_way_back(self, root: Path) -> None:
        FilesystemObjects(root).close()
        (root / "index.sqlite").write_bytes(b"garbage" * 1000)
        with pytest.raises(Corrupt, match="trainyard restore"):
            FilesystemObjects(root)

    def test_a_damaged_page_of_the_index_is_reported_when_it_is_read(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        for number in range(300):
            put(store, Location(bucket, f"{number:04}"), b"")
        store.close()
        with (root / "index.sqlite").open("r+b") as index:
            index.seek(4096)
            index.write(b"\xff" * (os.path.getsize(root / "index.sqlite") - 4096))  # noqa: PTH202
        with pytest.raises(Corrupt, match="trainyard restore"):
            self._use(root, bucket)

    def test_a_lost_index_is_not_taken_for_an_empty_store(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        put(store, Location(bucket, "k"), b"1")
        store.close()
        (root / "index.sqlite").unlink()
        with pytest.raises(Corrupt, match="trainyard restore"):
            FilesystemObjects(root)
        assert len(data_files(root)) == 1
        assert not (root / "index.sqlite").exists()

    def test_an_index_of_a_newer_version_is_refused(self, root: Path) -> None:
        FilesystemObjects(root).close()
        connection = sqlite3.connect(root / "index.sqlite")
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(InvalidRequest, match="Upgrade Trainyard"):
            FilesystemObjects(root)

    def test_a_root_that_is_a_file_is_unavailable(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(Unavailable, match="file"):
            FilesystemObjects(tmp_path / "file")

    def _use(self, root: Path, bucket: BucketRef) -> None:
        store = FilesystemObjects(root)
        try:
            store.list_objects(bucket)
        finally:
            store.close()


class TestCost:
    def test_a_page_costs_the_same_in_a_bucket_of_any_size(
        self, store: FilesystemObjects, bucket: BucketRef, root: Path
    ) -> None:
        fill(root, bucket, 1_000)
        small = steps_of_pages(store, bucket)
        fill(root, bucket, 30_000)
        large = steps_of_pages(store, bucket)
        assert large == small


def fill(root: Path, bucket: BucketRef, count: int) -> None:
    """Add objects without files to the index; listings do not read files."""
    connection = sqlite3.connect(root / "index.sqlite")
    [(number,)] = connection.execute("SELECT id FROM bucket WHERE name = ?", (bucket.name,))
    connection.execute("DELETE FROM object")
    connection.executemany(
        "INSERT INTO object VALUES (?, ?, ?, 1, 'etag', 1, NULL, NULL, NULL)",
        [
            (number, f"{folder}/{n:06}".encode(), f"{folder}{n}")
            for folder in ("train", "validation")
            for n in range(count)
        ],
    )
    connection.commit()
    connection.close()


def steps_of_pages(store: FilesystemObjects, bucket: BucketRef) -> list[int]:
    """Return how many instructions SQLite executes for a page."""
    counted = []
    for prefix, delimiter in [("train/", ""), ("train/", "/"), ("", "/"), ("", "4")]:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        with store._index._database.reading() as connection:
            connection.set_progress_handler(count, 1)
        store.list_objects(bucket, prefix=prefix, delimiter=delimiter, limit=50)
        with store._index._database.reading() as connection:
            connection.set_progress_handler(None, 0)
        counted.append(steps)
    return counted


class TestCrash:
    def test_after_kill_9_every_acknowledged_object_is_whole(self, root: Path) -> None:
        store = FilesystemObjects(root)
        store.create_bucket(crash_writer.BUCKET, region=REGION, now=NOON)
        store.close()
        chance = random.Random(7)
        for turn in range(CRASH_ROUNDS):
            begun, done = run_until_killed(root, turn, after_lines=chance.randrange(30, 300))
            store = FilesystemObjects(root)
            assert incoming_files(root) == []
            for key, version in begun.items():
                possible = {version, done.get(key, version - 1)}
                assert stored_body(store, key) in [crash_writer.body_of(key, each) for each in possible]
                assert_twin_came_with(store, key, version)
            assert store.verify(deep=True) == []
            abort_uploads(store)
            named = len(keys_of(store, crash_writer.BUCKET))
            store.close()
            assert len(data_files(root)) == named


def run_until_killed(root: Path, turn: int, *, after_lines: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the last started and the last acknowledged version of each key."""
    command = [sys.executable, "-m", "tests.unit.objects.crash_writer", str(root), str(turn)]
    begun: dict[str, int] = {}
    done: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            if number == after_lines:
                process.send_signal(signal.SIGKILL)
            word, key, version = line.decode().split()
            (begun if word == "begin" else done)[key] = int(version)
    assert process.returncode == -signal.SIGKILL
    return begun, done


def stored_body(store: FilesystemObjects, key: str) -> bytes | None:
    try:
        return body_of(store, Location(crash_writer.BUCKET, key))
    except NotFound:
        return None


def assert_twin_came_with(store: FilesystemObjects, key: str, version: int) -> None:
    """If the interrupted write was a batch of two objects, both exist or neither does."""
    if crash_writer.KINDS[version % len(crash_writer.KINDS)] == "together":
        body = crash_writer.body_of(key, version)
        assert (stored_body(store, key) == body) == (stored_body(store, key + crash_writer.TWIN) == body)


def abort_uploads(store: FilesystemObjects) -> None:
    for upload in store.uploads(crash_writer.BUCKET).uploads:
        store.abort_upload(upload.where, upload.id)


def fill_disk(store: FilesystemObjects, bucket: BucketRef) -> list[str]:
    """Return the keys that were stored before the disk was full."""
    stored: list[str] = []
    while True:
        try:
            put(store, Location(bucket, f"{len(stored):05}"), b"x" * 4000)
        except Unavailable as error:
            if "Free some" not in str(error):
                raise
            return stored
        stored.append(f"{len(stored):05}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small disk that this fills up")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount the small disk that this fills up")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # a failed test may leave a file open


class TestDisk:
    def test_a_full_disk_refuses_writes_and_keeps_existing_objects(self, small_disk: Path) -> None:
        root = small_disk / "objects"
        store = FilesystemObjects(root, reserve_bytes=1)
        bucket = new_bucket(store)
        put(store, Location(bucket, "kept"), b"x" * 1000)
        with pytest.raises(Unavailable, match=r"no space left .* Free some"):
            put(store, Location(bucket, "large"), b"x" * (20 << 20))
        assert incoming_files(root) == []
        assert keys_of(store, bucket) == ["kept"]
        put(store, Location(bucket, "small"), b"y" * 1000)
        assert body_of(store, Location(bucket, "kept")) == b"x" * 1000
        assert store.verify(deep=True) == []
        store.close()

    def test_a_disk_that_fills_up_with_small_objects_can_be_emptied_again(self, small_disk: Path) -> None:
        store = FilesystemObjects(small_disk / "objects", reserve_bytes=1)
        bucket = new_bucket(store)
        stored = fill_disk(store, bucket)
        assert incoming_files(small_disk / "objects") == []
        assert store.verify(deep=True) == []
        assert walk(store, bucket, limit=1000) == stored
        store.delete_many(bucket, keys_of(store, bucket))
        for number in range(500):
            put(store, Location(bucket, f"again {number}"), b"x" * 4000)
        store.close()

    def test_a_full_disk_refuses_a_batch_and_keeps_none_of_its_files(self, small_disk: Path) -> None:
        store = FilesystemObjects(small_disk, reserve_bytes=1)
        bucket = new_bucket(store)
        new = [NewObject(Location(bucket, f"{number}"), b"x" * 1_000_000, Attributes()) for number in range(100)]
        with pytest.raises(Unavailable, match="Free some"):
            store.put_batch(new, now=NOON)
        assert keys_of(store, bucket) == []
        assert incoming_files(small_disk) == []
        assert data_files(small_disk) == []
        store.close()

    def test_uploads_of_every_kind_leave_the_reserve_to_the_yard_and_deletes_free_it(self, small_disk: Path) -> None:
        store = FilesystemObjects(small_disk / "objects", reserve_bytes=4 << 20)
        bucket = new_bucket(store)
        where = Location(bucket, "key")
        put(store, where, b"x" * (1 << 20))
        upload = store.create_upload(Location(bucket, "parts"), Attributes(), now=NOON)
        stored = fill_disk(store, bucket)
        assert (4 << 20) - (1 << 18) <= store.reserve.free_bytes < (4 << 20) + (1 << 18)
        (small_disk / "records").write_bytes(b"x" * (1 << 20))  # the yard's own records
        attempts: list[Callable[[], object]] = [
            lambda: store.writer(where, Attributes()),
            lambda: store.part_writer(upload.where, upload.id, 1),
            lambda: store.put_batch([NewObject(where, b"x", Attributes())], now=NOON),
            lambda: store.create_upload(where, Attributes(), now=NOON),
            lambda: store.create_bucket(BucketRef(bucket.account, "more"), region="here", now=NOON),
            lambda: store.tag_object(where, {"a": "b"}),
            lambda: store.require_space(where, 1),
        ]
        for attempt in attempts:
            with pytest.raises(Unavailable, match="4194304 are kept for the yard's own records"):
                attempt()
        assert store.reserve.is_touched
        assert body_of(store, where) == b"x" * (1 << 20)
        store.delete_many(bucket, [*stored, "key"])
        put(store, where, b"y" * (1 << 16))
        store.close()

    def test_a_read_only_disk_is_reported_as_such(self, small_disk: Path) -> None:
        root = small_disk / "objects"
        FilesystemObjects(root).close()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        with pytest.raises(Unavailable, match=r"read-only. Make it writable"):
            FilesystemObjects(root)
