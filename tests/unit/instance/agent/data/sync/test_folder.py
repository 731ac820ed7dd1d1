"""The sync of a folder with a real object store, without its thread."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.data.sync import folder as folder_module
from trainyard.instance.agent.data.sync.changes import UploadCandidate
from trainyard.instance.agent.data.sync.folder import FolderSync, SyncAborted
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.data.sync.upload import (
    FileUploader,
    SyncedPath,
    UploadIdentity,
    catch_lease_signals,
    is_closed_for_writing,
)
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.objects.filesystem import FilesystemObjects

ALONE = UploadIdentity("job", "algo-1", is_alone=True)


class World:
    """One store, and folders of several instances on one location."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes: list[str] = []
        self._opened: list[FolderSync] = []
        with self.store() as store:
            make_bucket(store)

    def store(self) -> closing[FilesystemObjects]:
        return closing(FilesystemObjects(self.root / "objects"))

    def folder(self, name: str = "algo-1") -> Path:
        folder = self.root / name / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync(
        self,
        writer: UploadIdentity = ALONE,
        *,
        open_store: Callable[[], FilesystemObjects] | None = None,
        may_write: Callable[[], bool] = lambda: True,
        keeps_removed: bool = False,
    ) -> FolderSync:
        """Return a sync that has restored what exists."""
        made = FolderSync(
            SyncedPath(self.folder(writer.instance).parent, "checkpoints"),
            Location(BUCKET, "ck/"),
            seen_as="/opt/ml/checkpoints",
            writer=writer,
            open_store=open_store or (lambda: FilesystemObjects(self.root / "objects")),
            note=self.notes.append,
            may_write=may_write,
            keeps_removed=keeps_removed,
        )
        self._opened.append(made)
        with self.store() as store:
            made.restore(store, owner=ProgramUser(None), check=lambda: None)
        return made

    def objects(self) -> dict[str, bytes]:
        with self.store() as store:
            page = store.list_objects(BUCKET, prefix="ck/")
            return {found.key.removeprefix("ck/"): read_object(store, found.key) for found in page.objects}

    def put(self, key: str, data: bytes) -> None:
        with self.store() as store:
            put_object(store, f"ck/{key}", data)

    def close(self) -> None:
        for sync in self._opened:
            sync.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def nothing() -> None:
    return


def test_what_a_program_leaves_is_stored_and_what_it_removed_is_deleted(world: World) -> None:
    for name in ("kept", "removed", "changed"):
        world.put(name, b"old")
    sync, folder = world.sync(), world.folder()
    assert (folder / "removed").read_bytes() == b"old"
    (folder / "removed").unlink()
    (folder / "changed").write_bytes(b"new")
    (folder / "step 2").mkdir()
    (folder / "step 2/été.pt").write_bytes(b"fresh" * 1000)
    sync.finish(nothing)
    assert world.objects() == {"kept": b"old", "changed": b"new", "step 2/été.pt": b"fresh" * 1000}
    assert world.notes == []


def test_what_did_not_change_is_not_stored_again(world: World) -> None:
    world.put("kept", b"old")
    with world.store() as store:
        before = store.info(Location(BUCKET, "ck/kept")).modified_at
    world.sync().finish(nothing)
    with world.store() as store:
        assert store.info(Location(BUCKET, "ck/kept")).modified_at == before


def test_objects_that_came_after_the_start_are_left_alone(world: World) -> None:
    sync = world.sync()
    world.put("later", b"by somebody else")
    sync.finish(nothing)
    assert world.objects() == {"later": b"by somebody else"}


def test_a_folder_replaced_by_a_link_loses_nothing_and_is_not_followed(world: World) -> None:
    world.put("a", b"a")
    sync, folder = world.sync(), world.folder()
    secrets = world.root / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("secret")
    (folder / "a").unlink()
    folder.rmdir()
    folder.symlink_to(secrets)
    sync.finish(nothing)
    assert world.objects() == {"a": b"a"}


def test_links_are_reported_once_and_not_stored(world: World) -> None:
    sync, folder = world.sync(), world.folder()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "file").write_text("x")
    sync.finish(nothing)
    assert world.objects() == {"file": b"x"}
    (note,) = world.notes
    assert "Links, pipes, sockets and devices in /opt/ml/checkpoints are not stored, such as link." in note


def test_what_a_program_removes_stays_stored_if_that_is_wanted(world: World) -> None:
    world.put("removed", b"old")
    sync, folder = world.sync(keeps_removed=True), world.folder()
    (folder / "removed").unlink()
    (folder / "new").write_bytes(b"new")
    sync.finish(lambda: None)
    assert world.objects() == {"removed": b"old", "new": b"new"}


def test_a_folder_that_a_program_has_replaced_by_a_link_is_not_followed_and_a_note_says_so(world: World) -> None:
    sync, folder = world.sync(), world.folder()
    folder.rmdir()
    folder.symlink_to("/etc")
    sync.finish(lambda: None)
    assert world.objects() == {}
    assert world.notes == ["/opt/ml/checkpoints is not a folder any more, so nothing more of it is stored."]


def test_each_of_several_instances_deletes_only_what_it_wrote(world: World) -> None:
    first, second = (UploadIdentity("job", name, is_alone=False) for name in ("algo-1", "algo-2"))
    for writer in (first, second):
        sync = world.sync(writer)
        (world.folder(writer.instance) / f"{writer.instance}.pt").write_text(writer.instance)
        sync.finish(nothing)
        assert f"{writer.instance}.pt" in world.objects()
    (world.folder("algo-2") / "algo-1.pt").unlink()
    (world.folder("algo-2") / "algo-2.pt").unlink()
    later = world.sync(UploadIdentity("later", "algo-3", is_alone=False))
    again = world.sync(UploadIdentity("later", "algo-2", is_alone=False))
    for name in ("algo-2", "algo-3"):
        for path in world.folder(name).iterdir():
            path.unlink()
    later.finish(nothing)
    assert set(world.objects()) == {"algo-1.pt", "algo-2.pt"}
    again.finish(nothing)
    assert set(world.objects()) == {"algo-1.pt"}


def test_the_same_key_from_two_instances_is_reported(world: World) -> None:
    first, second = (world.sync(UploadIdentity("job", name, is_alone=False)) for name in ("algo-1", "algo-2"))
    for name in ("algo-1", "algo-2"):
        (world.folder(name) / "model.pt").write_text(name)
    first.finish(nothing)
    second.finish(nothing)
    assert world.objects() == {"model.pt": b"algo-2"}
    (note,) = world.notes
    assert "s3://yard/ck/model.pt is written by algo-1 of job and by algo-2" in note


def test_an_object_that_another_has_replaced_is_not_deleted(world: World) -> None:
    world.put("a", b"old")
    sync = world.sync()
    world.put("a", b"replaced by another")
    (world.folder() / "a").unlink()
    sync.finish(nothing)
    assert world.objects() == {"a": b"replaced by another"}


def test_a_store_that_fails_at_first_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "SETTLE_S", 0.0)
    failures = [Unavailable("The disk is full."), Unavailable("The disk is full.")]

    def open_store() -> FilesystemObjects:
        if failures:
            raise failures.pop()
        return FilesystemObjects(world.root / "objects")

    sync = world.sync(open_store=open_store)
    (world.folder() / "a").write_text("x")
    sync.finish(nothing)
    assert world.objects() == {"a": b"x"}


def test_what_cannot_be_stored_at_the_end_is_a_failure_that_names_the_key(world: World) -> None:
    sync = world.sync()
    (world.folder() / "a").write_text("x")
    with world.store() as store:
        store.delete_bucket(BUCKET)
    with pytest.raises(CannotRun, match="s3://yard/ck/a could not be synced") as caught:
        sync.finish(nothing)
    assert caught.value.kind is FailureKind.USER_ERROR


def test_the_final_sync_ends_when_the_instance_must(world: World) -> None:
    sync = world.sync()
    (world.folder() / "a").write_text("x")

    def check() -> None:
        raise StopRequested

    with pytest.raises(StopRequested):
        sync.finish(check)
    assert world.objects() == {}


@pytest.fixture
def leases() -> Iterator[None]:
    before = signal.getsignal(signal.SIGIO)
    catch_lease_signals()
    yield
    signal.signal(signal.SIGIO, before)


def sender(world: World) -> FileUploader:
    place = SyncedPath(world.folder().parent, "checkpoints")
    return FileUploader(place, Location(BUCKET, "ck/"), writer=ALONE, note=world.notes.append, check=nothing)


@pytest.mark.usefixtures("leases")
def test_a_file_that_is_open_for_writing_is_not_stored_unless_that_is_asked_for(world: World) -> None:
    path = world.folder() / "model.pt"
    with world.store() as store, path.open("wb", buffering=0) as file:
        file.write(b"half of it")
        assert sender(world).upload(store, UploadCandidate("model.pt")) is None
        assert sender(world).upload(store, UploadCandidate("model.pt", even_if_open=True)) == FileStamp.of(path.stat())
    assert world.objects() == {"model.pt": b"half of it"}


@pytest.mark.usefixtures("leases")
def test_a_file_is_at_rest_as_soon_as_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    reader = os.open(path, os.O_RDONLY)
    assert is_closed_for_writing(reader)
    with path.open("ab"):
        assert not is_closed_for_writing(reader)
    assert is_closed_for_writing(reader)
    os.close(reader)


def test_a_file_that_changes_while_it_is_read_is_not_stored(world: World) -> None:
    path = world.folder() / "model.pt"
    path.write_bytes(b"x" * 3_000_000)
    place = SyncedPath(world.folder().parent, "checkpoints")
    pieces: list[int] = []

    def write_more() -> None:
        pieces.append(1)
        with path.open("ab") as file:
            file.write(b"more")

    changing = FileUploader(place, Location(BUCKET, "ck/"), writer=ALONE, note=world.notes.append, check=write_more)
    with world.store() as store:
        assert changing.upload(store, UploadCandidate("model.pt")) is None
        assert world.objects() == {}
        size = path.stat().st_size
        assert changing.upload(store, UploadCandidate("model.pt", even_if_changing=True)) is not None
    assert len(world.objects()["model.pt"]) == size
    assert len(pieces) == 7  # three each time, and once before storing it


def test_a_file_that_is_gone_is_no_error(world: World) -> None:
    with world.store() as store:
        assert sender(world).upload(store, UploadCandidate("gone")) is None
        assert sender(world).upload(store, UploadCandidate("no/folder")) is None


def test_a_file_of_nothing_but_holes_is_reported_and_not_stored(world: World) -> None:
    with (world.folder() / "hollow").open("wb") as file:
        file.truncate(70 * 1024**3)
    world.sync().finish(nothing)
    assert world.objects() == {}
    assert "nearly empty but very large" in world.notes[0]


def test_after_the_lease_nothing_is_stored_and_nothing_deleted(world: World) -> None:
    world.put("old.pt", b"of the attempt before")
    sync = world.sync(may_write=lambda: False)
    (world.folder() / "old.pt").unlink()
    (world.folder() / "new.pt").write_bytes(b"x" * 3_000_000)
    (world.folder() / "small.json").write_text("{}")

    with pytest.raises(SyncAborted):
        sync.finish(lambda: None)

    assert world.objects() == {"old.pt": b"of the attempt before"}
