"""Many files at once, into a store that writes them together and into one that does not."""

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
from trainyard.instance.agent.syncing import groups
from trainyard.instance.agent.syncing.changes import Candidate
from trainyard.instance.agent.syncing.groups import Sent, send_all
from trainyard.instance.agent.syncing.looks import Look
from trainyard.instance.agent.syncing.sending import Place, Sender, Writer
from trainyard.objects.contract import NewObject, ObjectWriter, Written
from trainyard.objects.filesystem import FilesystemObjects


class Recording(FilesystemObjects):
    """Remembers how objects were put."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.together: list[list[str]] = []
        self.alone: list[str] = []

    def put_together(self, objects: Sequence[NewObject], *, now: datetime) -> Sequence[Written | TrainyardError]:
        self.together.append([each.where.key for each in objects])
        return super().put_together(objects, now=now)

    def writer(self, where: Location, *arguments: Any, **options: Any) -> Any:
        self.alone.append(where.key)
        return super().writer(where, *arguments, **options)


class Far:
    """A store that writes one object at a time, and waits with each until as many are under way as were promised."""

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
        if name == "put_together":
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
def sender(folder: Path, notes: list[str]) -> Sender:
    writer = Writer("job", "algo-1", is_alone=True)
    place = Place(folder.parent, folder.name)
    return Sender(place, Location(BUCKET, "ck/"), writer=writer, note=notes.append, check=lambda: None)


def flat(sent: Iterator[Sequence[Sent]]) -> dict[str, object]:
    return {each.path: each.outcome for group in sent for each in group}


def written(folder: Path, *paths: str, size: int = 10) -> list[Candidate]:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((path * size).encode()[:size])
    return [Candidate(path) for path in paths]


def test_small_files_are_stored_together_and_large_ones_between_them_in_their_turn(
    store: Recording, folder: Path, sender: Sender
) -> None:
    candidates = [
        *written(folder, "a", "b"),
        *written(folder, "large", size=groups.SMALL_BYTES + 1),
        *written(folder, "c", "index"),
    ]
    outcomes = flat(send_all(sender, store, candidates))
    assert outcomes == {each.path: Look.of((folder / each.path).stat()) for each in candidates}
    assert store.together == [["ck/a", "ck/b"], ["ck/c", "ck/index"]]
    assert store.alone == ["ck/large"]
    for each in candidates:
        assert read_object(store, f"ck/{each.path}") == (folder / each.path).read_bytes()


def test_a_group_ends_with_its_files_or_its_bytes(
    store: Recording, folder: Path, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUP_FILES", 3)
    monkeypatch.setattr(groups, "GROUP_BYTES", 1000)
    candidates = [*written(folder, *"abcd"), *written(folder, "e", size=995), *written(folder, "f")]
    flat(send_all(sender, store, candidates))
    assert store.together == [["ck/a", "ck/b", "ck/c"], ["ck/d", "ck/e"], ["ck/f"]]


def test_what_is_gone_or_forbidden_keeps_none_of_the_others_away(
    store: Recording, folder: Path, sender: Sender
) -> None:
    candidates = [Candidate("gone"), *written(folder, "a")]
    outcomes = flat(send_all(sender, store, candidates))
    assert outcomes["gone"] is None
    assert outcomes["a"] == Look.of((folder / "a").stat())


def test_a_file_that_cannot_be_read_is_told_by_itself(
    store: Recording, folder: Path, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = [*written(folder, "a"), *written(folder, "broken", size=13), *written(folder, "b")]
    inode = (folder / "broken").stat().st_ino
    read = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:  # as a broken disk does, which no test can have
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    outcomes = flat(send_all(sender, store, candidates))
    assert isinstance(outcomes["broken"], OSError)
    assert isinstance(outcomes["a"], Look)
    assert isinstance(outcomes["b"], Look)


def test_an_object_of_another_among_many_is_told_and_replaced(
    store: Recording, folder: Path, sender: Sender, notes: list[str]
) -> None:
    put_object(store, "ck/b", b"another's")
    other = Writer("job", "algo-2", is_alone=False)
    theirs = Sender(
        Place(folder.parent, folder.name), Location(BUCKET, "ck/"), writer=other, note=notes.append, check=lambda: None
    )
    candidates = written(folder, "a", "c")
    flat(send_all(theirs, store, candidates))
    candidates = written(folder, "a", "b", "c", size=20)
    outcomes = flat(send_all(sender, store, candidates))
    assert all(isinstance(outcome, Look) for outcome in outcomes.values())
    assert [read_object(store, f"ck/{key}") for key in "abc"] == [b"a" * 20, b"b" * 20, b"c" * 20]
    assert len(notes) == 2  # of b nobody knows who put it
    assert all("is written by algo-2 of job and by algo-1" in note for note in notes)


def test_a_store_that_refuses_a_group_is_told_of_each_file(
    store: Recording, folder: Path, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise Unavailable("The disk is full.")

    candidates = written(folder, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(store, "put_together", full)
        outcomes = flat(send_all(sender, store, candidates))
    assert {path: str(outcome) for path, outcome in outcomes.items()} == dict.fromkeys("ab", "The disk is full.")
    assert all(isinstance(outcome, Look) for outcome in flat(send_all(sender, store, candidates)).values())


def test_a_store_far_away_gets_many_at_once_but_what_may_point_to_others_after_them(
    store: Recording, folder: Path, sender: Sender
) -> None:
    first = flat(send_all(sender, store, written(folder, "latest")))
    assert isinstance(first["latest"], Look)
    paths = [*(f"step-1/shard-{number}" for number in range(8)), "step-1/index", "latest"]
    far = Far(store, at_once=8)
    far.meeting_keys = {f"ck/step-1/shard-{number}" for number in range(8)}
    outcomes = flat(send_all(sender, far, [*written(folder, *paths[:-1]), *written(folder, "latest", size=20)]))
    assert outcomes == {path: Look.of((folder / path).stat()) for path in paths}
    assert set(far.begun[:8]) == far.meeting_keys
    assert far.begun[8:] == ["ck/step-1/index", "ck/latest"]
    for path in paths:
        assert read_object(store, f"ck/{path}") == (folder / path).read_bytes()
