"""File channels over a real object store: hard links that no program can reach."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.locations import Location
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.data import channels
from trainyard.instance.agent.data.channels import channel_file_path, has_empty_shard, stage_channel
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.link.contract import ChannelSpec
from trainyard.objects.filesystem import FileReader, FilesystemObjects

OBJECTS = {"data/train/a.csv": b"1,2\n" * 1000, "data/train/deep/er/b.bin": bytes(range(256)), "data/train/empty": b""}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        for key, data in OBJECTS.items():
            put_object(opened, key, data)
        yield opened


def channel(*keys: str, prefix: str = "data/train") -> ChannelSpec:
    return ChannelSpec("train", "File", BUCKET.name, prefix, keys)


def bring(store: FilesystemObjects, spec: ChannelSpec, folder: Path) -> dict[str, bytes]:
    stage_channel(store, spec, bucket=BUCKET, folder=folder, check=lambda: None)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_channel_holds_the_bytes_of_its_objects(store: FilesystemObjects, tmp_path: Path) -> None:
    found = bring(store, channel(*OBJECTS), tmp_path / "train")
    assert found == {"a.csv": b"1,2\n" * 1000, "deep/er/b.bin": bytes(range(256)), "empty": b""}


def test_its_files_are_links_and_take_no_space(store: FilesystemObjects, tmp_path: Path) -> None:
    bring(store, channel(*OBJECTS), tmp_path / "train")
    assert {path.stat().st_nlink for path in (tmp_path / "train").rglob("*") if path.is_file()} == {2}


def test_where_no_link_can_be_made_its_files_are_copies(
    store: FilesystemObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no second file system here, so the one call that needs it is replaced.
    monkeypatch.setattr(channels, "link_file", lambda source, place: False)
    found = bring(store, channel(*OBJECTS), tmp_path / "train")
    assert found == {"a.csv": b"1,2\n" * 1000, "deep/er/b.bin": bytes(range(256)), "empty": b""}
    (tmp_path / "train" / "a.csv").write_bytes(b"mine")
    assert read_object(store, "data/train/a.csv") == OBJECTS["data/train/a.csv"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_stored_file_of_another_user_is_copied_because_the_program_could_not_own_it(
    store: FilesystemObjects, tmp_path: Path
) -> None:
    with store.open(Location(BUCKET, "data/train/a.csv")) as reader:
        assert isinstance(reader, FileReader)
        os.fchown(reader.file.fileno(), 50_001, 50_001)
    bring(store, channel("data/train/a.csv"), tmp_path / "train")
    assert ((tmp_path / "train" / "a.csv").stat().st_nlink, (tmp_path / "train" / "a.csv").stat().st_uid) == (1, 0)


def test_a_stored_file_that_nobody_may_write_is_copied_because_the_program_may(
    store: FilesystemObjects, tmp_path: Path
) -> None:
    with store.open(Location(BUCKET, "data/train/a.csv")) as reader:
        assert isinstance(reader, FileReader)
        os.fchmod(reader.file.fileno(), 0o444)
    assert bring(store, channel("data/train/a.csv"), tmp_path / "train") == {"a.csv": OBJECTS["data/train/a.csv"]}
    assert (tmp_path / "train" / "a.csv").stat().st_nlink == 1


def test_an_object_replaced_afterwards_does_not_change_the_channel(store: FilesystemObjects, tmp_path: Path) -> None:
    bring(store, channel("data/train/a.csv"), tmp_path / "train")
    put_object(store, "data/train/a.csv", b"newer")
    assert (tmp_path / "train" / "a.csv").read_bytes() == OBJECTS["data/train/a.csv"]


@pytest.mark.parametrize(
    ("key", "prefix", "path"),
    [
        ("data/train/a.csv", "data/train/", "a.csv"),
        ("data/train/a.csv", "data/train", "a.csv"),
        ("data/train/x/a.csv", "data/train", "x/a.csv"),
        ("data/train/a.csv", "data/train/a.csv", "a.csv"),
        ("data/train2/a.csv", "data/train", "train2/a.csv"),
        ("data/part-01", "data/part-", "part-01"),
        ("a.csv", "", "a.csv"),
        ("a//b.csv", "", "a/b.csv"),
        ("data/train/", "data/train/", ""),
        ("data/train/sub/", "data/train", "sub/"),
    ],
)
def test_the_path_of_a_file_is_its_key_after_the_prefix(key: str, prefix: str, path: str) -> None:
    assert channel_file_path(key, prefix) == path


@pytest.mark.parametrize("key", ["d/../../x", "d/..", "d/./x", "d/\0", f"d/{'x' * 300}", f"d/{'é' * 130}"])
def test_a_key_that_no_file_can_have_is_refused(store: FilesystemObjects, tmp_path: Path, key: str) -> None:
    assert channel_file_path(key, "d") is None
    with pytest.raises(CannotRun, match="not a path") as caught:
        bring(store, channel(key, prefix="d"), tmp_path / "train")
    assert caught.value.kind is FailureKind.BAD_INPUT


def test_markers_of_folders_become_folders(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "data/train/", b"")
    put_object(store, "data/train/later/", b"")
    bring(store, channel("data/train/", "data/train/later/"), tmp_path / "train")
    assert (tmp_path / "train" / "later").is_dir()


def test_two_objects_that_cannot_both_be_files_are_refused(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "data/train/a.csv/b", b"")
    with pytest.raises(CannotRun, match="is a part of its key"):
        bring(store, channel("data/train/a.csv", "data/train/a.csv/b"), tmp_path / "train")


@pytest.mark.parametrize(("etags", "words"), [((), "it does not exist."), (("abc",), "it does not exist any more.")])
def test_an_object_that_is_not_there_is_named(
    store: FilesystemObjects, tmp_path: Path, etags: tuple[str, ...], words: str
) -> None:
    with pytest.raises(CannotRun) as caught:
        bring(store, replace(channel("data/train/lost"), etags=etags), tmp_path / "train")
    assert str(caught.value) == f"The object s3://yard/data/train/lost of channel train cannot be staged: {words}"
    assert caught.value.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"distribution": "ShardedByS3Key", "keys": ()}, True),
        ({"distribution": "ShardedByS3Key"}, False),
        ({"distribution": "ShardedByS3Key", "mode": "Pipe", "shuffle_seed": 7, "part": 1, "parts": 3}, True),
        ({"distribution": "ShardedByS3Key", "mode": "Pipe", "shuffle_seed": 7, "part": 0, "parts": 3}, False),
        ({"keys": (), "folder": "/shared"}, False),
    ],
)
def test_an_instance_without_a_part_in_a_sharded_channel_is_known(changes: dict[str, Any], expected: bool) -> None:
    assert has_empty_shard(replace(channel("data/train/a.csv"), **changes)) is expected


def test_an_object_replaced_since_it_was_listed_is_named(store: FilesystemObjects, tmp_path: Path) -> None:
    etags = [store.info(Location(BUCKET, key)).etag for key in OBJECTS]
    listed = replace(channel(*OBJECTS), etags=etags)
    assert len(bring(store, listed, tmp_path / "before")) == len(OBJECTS)
    put_object(store, "data/train/deep/er/b.bin", b"newer")
    with pytest.raises(CannotRun, match=r"s3://yard/data/train/deep/er/b.bin .* was replaced") as caught:
        bring(store, listed, tmp_path / "after")
    assert caught.value.kind is FailureKind.BAD_INPUT


def test_an_object_replaced_since_it_was_listed_is_noticed_where_files_are_copied(
    store: FilesystemObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no second file system here, so the one call that needs it is replaced.
    monkeypatch.setattr(channels, "link_file", lambda source, place: False)
    listed = replace(channel("data/train/a.csv"), etags=["0" * 32])
    with pytest.raises(CannotRun, match="was replaced"):
        bring(store, listed, tmp_path / "train")


def test_a_channel_without_objects_is_an_empty_folder(store: FilesystemObjects, tmp_path: Path) -> None:
    assert bring(store, channel(), tmp_path / "train") == {}
    assert (tmp_path / "train").is_dir()


def test_staging_ends_between_two_objects_on_a_command(store: FilesystemObjects, tmp_path: Path) -> None:
    asked = iter([None])

    def check() -> None:
        if next(asked, StopRequested) is StopRequested:
            raise StopRequested

    with pytest.raises(StopRequested):
        stage_channel(store, channel(*OBJECTS), bucket=BUCKET, folder=tmp_path / "train", check=check)
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["a.csv"]
