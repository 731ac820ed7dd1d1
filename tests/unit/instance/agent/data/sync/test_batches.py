"""Uploads of many files, to a store that writes them together and to one that does not."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.sync import batches
from trainyard.instance.agent.data.sync.batches import UploadResult, upload_all
from trainyard.instance.agent.data.sync.changes import UploadCandidate
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.data.sync.upload import FileUploader, SyncedPath, UploadIdentity
from trainyard.objects.contract import NewObject, ObjectWriter, WriteResult
from trainyard.objects.filesystem import FilesystemObjects


class Recording(FilesystemObjects):
    """Records how objects were written."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.together: list[list[str]] = []
        self.alone: list[str] = []

    def put_batch(self, objects: Sequence[NewObject], *, now: datetime) -> Sequence[WriteResult | TrainyardError]:
        self.together.append([each.where.key for each in objects])
        return super().put_batch(objects, now=now)

    def writer(self, where: Location, *arguments: Any, **options: Any) -> Any:
        self.alone.append(where.key)
        return super().writer(where, *arguments, **options)


class Far:
    """A store that writes single objects, and blocks each until the expected number is in progress."""

    def __init__(self, near: FilesystemObjects, at_once: int) -> None:
        self._near = near
        self._meeting = threading.Barrier(at_once, timeout=30)
        self._lock = threading.Lock()
        self.begun: list[str] = []
        self.meeting_keys: set[str] = set()

    def writer(self, where: Location, *arguments: Any, **options: Any) -> ObjectWriter:
        with self._lock:
            self.begun.append(where.key)
        if where.key in self.meeting_keys:
            self._meeting.wait()
        return self._near.writer(where, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "put_batch":
            raise AttributeError(name)
        return getattr(self._near, name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Recording]:
    with closing(Recording(tmp_path / "objects")) as opened:
        make_bucket(opened)
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoints"
    made.mkdir()
    return made


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def sender(folder: Path, notes: list[str]) -> FileUploader:
    writer = UploadIdentity("job", "algo-1", is_alone=True)
    place = SyncedPath(folder.parent, folder.name)
    return FileUploader(place, Location(BUCKET, "ck/"), writer=writer, note=notes.append, check=lambda: None)


def flat(sent: Iterator[Sequence[UploadResult]]) -> dict[str, object]:
    return {each.path: each.outcome for group in sent for each in group}


def written(folder: Path, *paths: str, size: int = 10) -> list[UploadCandidate]:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((path * size).encode()[:size])
    return [UploadCandidate(path) for path in paths]


def test_small_files_are_stored_together_and_large_ones_between_them_in_their_turn(
    store: Recording, folder: Path, sender: FileUploader
) -> None:
    candidates = [
        *written(folder, "a", "b"),
        *written(folder, "large", size=batches.SMALL_BYTES + 1),
        *written(folder, "c", "index"),
    ]
    outcomes = flat(upload_all(sender, store, candidates))
    assert outcomes == {each.path: FileStamp.of((folder / each.path).stat()) for each in candidates}
    assert store.together == [["ck/a", "ck/b"], ["ck/c", "ck/index"]]
    assert store.alone == ["ck/large"]
    for each in candidates:
        assert read_object(store, f"ck/{each.path}") == (folder / each.path).read_bytes()


def test_a_group_ends_with_its_files_or_its_bytes(
    store: Recording, folder: Path, sender: FileUploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "GROUP_FILES", 3)
    monkeypatch.setattr(batches, "GROUP_BYTES", 1000)
    candidates = [*written(folder, *"abcd"), *written(folder, "e", size=995), *written(folder, "f")]
    flat(upload_all(sender, store, candidates))
    assert store.together == [["ck/a", "ck/b", "ck/c"], ["ck/d", "ck/e"], ["ck/f"]]


def test_a_missing_or_forbidden_file_does_not_stop_the_others(
    store: Recording, folder: Path, sender: FileUploader
) -> None:
    candidates = [UploadCandidate("gone"), *written(folder, "a")]
    outcomes = flat(upload_all(sender, store, candidates))
    assert outcomes["gone"] is None
    assert outcomes["a"] == FileStamp.of((folder / "a").stat())


def test_a_file_that_cannot_be_read_is_reported_by_itself(
    store: Recording, folder: Path, sender: FileUploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = [*written(folder, "a"), *written(folder, "broken", size=13), *written(folder, "b")]
    inode = (folder / "broken").stat().st_ino
    read = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:  # like a broken disk
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    outcomes = flat(upload_all(sender, store, candidates))
    assert isinstance(outcomes["broken"], OSError)
    assert isinstance(outcomes["a"], FileStamp)
    assert isinstance(outcomes["b"], FileStamp)


def test_an_object_of_another_instance_among_many_is_reported_and_replaced(
    store: Recording, folder: Path, sender: FileUploader, notes: list[str]
) -> None:
    put_object(store, "ck/b", b"another's")
    other = UploadIdentity("job", "algo-2", is_alone=False)
    theirs = FileUploader(
        SyncedPath(folder.parent, folder.name),
        Location(BUCKET, "ck/"),
        writer=other,
        note=notes.append,
        check=lambda: None,
    )
    candidates = written(folder, "a", "c")
    flat(upload_all(theirs, store, candidates))
    candidates = written(folder, "a", "b", "c", size=20)
    outcomes = flat(upload_all(sender, store, candidates))
    assert all(isinstance(outcome, FileStamp) for outcome in outcomes.values())
    assert [read_object(store, f"ck/{key}") for key in "abc"] == [b"a" * 20, b"b" * 20, b"c" * 20]
    assert len(notes) == 2  # it is unknown who wrote b
    assert all("is written by algo-2 of job and by algo-1" in note for note in notes)


def test_a_store_that_refuses_a_group_is_an_error_for_each_file(
    store: Recording, folder: Path, sender: FileUploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise Unavailable("The disk is full.")

    candidates = written(folder, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(store, "put_batch", full)
        outcomes = flat(upload_all(sender, store, candidates))
    assert {path: str(outcome) for path, outcome in outcomes.items()} == dict.fromkeys("ab", "The disk is full.")
    assert all(isinstance(outcome, FileStamp) for outcome in flat(upload_all(sender, store, candidates)).values())


def test_a_remote_store_gets_many_files_at_once_but_possible_references_after_them(
    store: Recording, folder: Path, sender: FileUploader
) -> None:
    first = flat(upload_all(sender, store, written(folder, "latest")))
    assert isinstance(first["latest"], FileStamp)
    paths = [*(f"step-1/shard-{number}" for number in range(8)), "step-1/index", "latest"]
    far = Far(store, at_once=8)
    far.meeting_keys = {f"ck/step-1/shard-{number}" for number in range(8)}
    outcomes = flat(upload_all(sender, far, [*written(folder, *paths[:-1]), *written(folder, "latest", size=20)]))
    assert outcomes == {path: FileStamp.of((folder / path).stat()) for path in paths}
    assert set(far.begun[:8]) == far.meeting_keys
    assert far.begun[8:] == ["ck/step-1/index", "ck/latest"]
    for path in paths:
        assert read_object(store, f"ck/{path}") == (folder / path).read_bytes()
