"""Objects restored as files of a program."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.locations import Location
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.data.sync.restore import RestoredFile, key_to_path, restore_folder
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.layout import ProgramUser
from trainyard.objects.filesystem import FilesystemObjects

CHECKPOINTS = Location(BUCKET, "ck/")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoints"
    made.mkdir()
    return made


def bring(store: FilesystemObjects, folder: Path) -> tuple[list[RestoredFile], list[str]]:
    skipped: list[str] = []
    with ConfinedFolder.open(folder) as opened:
        found = restore_folder(
            store, CHECKPOINTS, opened, owner=ProgramUser(None), check=lambda: None, on_skipped=skipped.append
        )
        return list(found), skipped


def test_every_object_under_the_location_becomes_a_file(store: FilesystemObjects, folder: Path) -> None:
    contents = {"a.pt": b"a" * 5000, "step-1/b.pt": b"b", "step-1/empty": b"", "été/ü.pt": b"u"}
    for name, data in contents.items():
        put_object(store, f"ck/{name}", data)
    put_object(store, "ck2/other", b"no")
    found, skipped = bring(store, folder)
    assert {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    } == contents
    assert {each.path: each.stamp for each in found} == {
        name: FileStamp.of((folder / name).stat()) for name in contents
    }
    assert skipped == []


def test_a_file_has_the_time_of_its_object(store: FilesystemObjects, folder: Path) -> None:
    put_object(store, "ck/a", b"a")
    bring(store, folder)
    written = store.info(Location(BUCKET, "ck/a")).modified_at
    assert (folder / "a").stat().st_mtime == pytest.approx(written.timestamp(), abs=1e-3)


def test_changing_a_file_does_not_change_its_object(store: FilesystemObjects, folder: Path) -> None:
    put_object(store, "ck/a", b"stored")
    bring(store, folder)
    (folder / "a").write_bytes(b"change")
    assert read_object(store, "ck/a") == b"stored"
    assert (folder / "a").stat().st_nlink == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_and_folders_belong_to_the_user_of_the_job(store: FilesystemObjects, folder: Path) -> None:
    put_object(store, "ck/deep/a", b"a")
    with ConfinedFolder.open(folder) as opened:
        list(
            restore_folder(
                store, CHECKPOINTS, opened, owner=ProgramUser(54_331), check=lambda: None, on_skipped=lambda _: None
            )
        )
    assert [(folder / name).stat().st_uid for name in ("deep", "deep/a")] == [54_331, 54_331]


def test_keys_that_no_file_can_have_are_skipped_and_reported(store: FilesystemObjects, folder: Path) -> None:
    bad = ["ck/../escape", "ck/a//b", "ck/./c", "ck//", f"ck/{'n' * 300}"]
    for key in (*bad, "ck/good"):
        put_object(store, key, b"x")
    found, skipped = bring(store, folder)
    assert [each.path for each in found] == ["good"]
    assert sorted(skipped) == sorted(bad)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoints", "objects"]


def test_of_a_key_and_one_below_it_only_the_first_is_restored(store: FilesystemObjects, folder: Path) -> None:
    for key in ("ck/a", "ck/a/b", "ck/c"):
        put_object(store, key, b"x")
    found, skipped = bring(store, folder)
    assert ([each.path for each in found], skipped) == (["a", "c"], ["ck/a/b"])


def test_markers_of_folders_become_folders(store: FilesystemObjects, folder: Path) -> None:
    for key in ("ck/", "ck/empty/"):
        put_object(store, key, b"")
    assert bring(store, folder) == ([], [])
    assert (folder / "empty").is_dir()


def test_it_ends_when_the_instance_must(store: FilesystemObjects, folder: Path) -> None:
    put_object(store, "ck/a", b"x")

    def check() -> None:
        raise StopRequested

    with ConfinedFolder.open(folder) as opened, pytest.raises(StopRequested):
        list(
            restore_folder(store, CHECKPOINTS, opened, owner=ProgramUser(None), check=check, on_skipped=lambda _: None)
        )
    assert list(folder.iterdir()) == []


def test_a_path_is_the_rest_of_a_key() -> None:
    assert str(key_to_path("a/b")) == "a/b"
    assert str(key_to_path("a/")) == "a"
    assert key_to_path("a\0b") is None
