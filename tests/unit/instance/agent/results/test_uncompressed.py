"""Results as one object for each file."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, changed, make_bucket, put_object, read_object
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.results.artifacts import StoredArtifact, artifact_location
from trainyard.instance.agent.results.uncompressed import store_files
from trainyard.objects.filesystem import FilesystemObjects

WHERE = artifact_location(changed(SPEC, is_output_compressed=False), "model")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        yield opened


def folder_of(tmp_path: Path, files: Mapping[str, str], host: str = "algo-1") -> Path:
    (tmp_path / host / "model").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = tmp_path / host / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / host


def stored(store: FilesystemObjects, *roots: Path) -> StoredArtifact | None:
    return store_files(store, roots, "model", where=WHERE, check=lambda: None)


def texts(store: FilesystemObjects) -> dict[str, str]:
    keys = [each.key for each in store.list_objects(BUCKET, prefix=WHERE.key).objects]
    return {key.removeprefix(WHERE.key): read_object(store, key).decode() for key in keys}


def test_each_file_becomes_an_object(store: FilesystemObjects, tmp_path: Path) -> None:
    ml = folder_of(tmp_path, {"config.json": "{}", "sub/deep/weights": "w" * 3_000_000, "sub/empty": ""})
    (ml / "model" / "nothing").mkdir()
    assert stored(store, ml) == StoredArtifact(WHERE, 3_000_002, skipped=0)
    assert texts(store) == {"config.json": "{}", "sub/deep/weights": "w" * 3_000_000, "sub/empty": ""}


def test_files_of_several_instances_are_merged_and_the_last_wins(store: FilesystemObjects, tmp_path: Path) -> None:
    roots = [
        folder_of(tmp_path, {"shard-1": "one", "both": "one", "sub/a": "1"}, "algo-1"),
        folder_of(tmp_path, {"shard-2": "two", "both": "two", "sub/b": "2"}, "algo-2"),
    ]
    made = stored(store, *roots)
    assert made is not None
    assert (made.clashes, made.clash) == (1, "both")
    assert texts(store) == {"shard-1": "one", "shard-2": "two", "both": "two", "sub/a": "1", "sub/b": "2"}


def test_a_link_to_a_file_of_the_folder_is_stored_as_a_copy_and_no_other(
    store: FilesystemObjects, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    ml = folder_of(tmp_path, {"blobs/1": "blob"})
    links = {
        "sub/link": "../blobs/1",
        "out": "../../secret",
        "absolute": str(tmp_path / "secret"),
        "broken": "nothing",
        "folder": "blobs",
        "chain": "sub/link",
        "through": "folder/1",
    }
    (ml / "model" / "sub").mkdir()
    for name, target in links.items():
        (ml / "model" / name).symlink_to(target)
    made = stored(store, ml)
    assert made is not None
    assert made.skipped == len(links) - 1
    assert texts(store) == {"blobs/1": "blob", "sub/link": "blob"}


def test_names_that_no_key_can_have_are_counted(store: FilesystemObjects, tmp_path: Path) -> None:
    ml = folder_of(tmp_path, {"данные": "1", os.fsdecode(b"\xff"): "2", "/".join(["x" * 200] * 6): "3"})
    made = stored(store, ml)
    assert made is not None
    assert made.skipped == 2
    assert texts(store) == {"данные": "1"}


def test_what_an_earlier_job_left_under_the_prefix_is_replaced(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, f"{WHERE.key}old", b"old")
    put_object(store, f"{WHERE.key.rstrip('/')}.tar.gz", b"other")
    stored(store, folder_of(tmp_path, {"new": "new"}))
    assert texts(store) == {"new": "new"}
    assert read_object(store, f"{WHERE.key.rstrip('/')}.tar.gz") == b"other"


def test_an_empty_folder_stores_and_deletes_nothing(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, f"{WHERE.key}old", b"old")
    assert stored(store, folder_of(tmp_path, {})) is None
    assert texts(store) == {"old": "old"}


def test_an_abandoned_upload_leaves_nothing(store: FilesystemObjects, tmp_path: Path) -> None:
    ml = folder_of(tmp_path, {f"{number}": "x" * 600_000 for number in range(5)})
    seen = []

    def give_up() -> None:
        seen.append(texts(store))
        if len(seen[-1]) == 3:
            raise StopRequested

    with pytest.raises(StopRequested):
        store_files(store, [ml], "model", where=WHERE, check=give_up)
    assert texts(store) == {}
    assert store.verify(deep=True) == []


def test_a_bucket_that_is_not_there_is_not_found(store: FilesystemObjects, tmp_path: Path) -> None:
    elsewhere = Location(type(BUCKET)(BUCKET.account, "missing"), "job/output/model/")
    with pytest.raises(NotFound):
        store_files(store, [folder_of(tmp_path, {"a": "1"})], "model", where=elsewhere, check=lambda: None)
