"""Results in the object store."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, changed, make_bucket, read_object
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.results.artifacts import StoredArtifact, artifact_location, store_folders
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.objects.filesystem import FilesystemObjects

WHERE = artifact_location(SPEC, "model")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        yield opened


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "ml" / "model").mkdir(parents=True)
    return tmp_path / "ml"


def stored(store: FilesystemObjects, ml: Path) -> StoredArtifact | None:
    return store_folders(store, [ml], "model", where=WHERE, check=lambda: None)


def unpacked(store: FilesystemObjects) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(read_object(store, WHERE.key)), mode="r:gz") as tar:
        return {entry.name: entry for entry in tar}


def test_the_locations_are_those_that_clients_fetch() -> None:
    assert str(WHERE) == "s3://yard/models/mnist-7/output/model.tar.gz"
    assert str(artifact_location(SPEC, "output")) == "s3://yard/models/mnist-7/output/output.tar.gz"
    at_root = changed(output_path="s3://yard/")
    assert str(artifact_location(at_root, "model")) == "s3://yard/mnist-7/output/model.tar.gz"
    uncompressed = changed(is_output_compressed=False)
    assert str(artifact_location(uncompressed, "model")) == "s3://yard/models/mnist-7/output/model/"
    assert str(artifact_location(uncompressed, "output")) == "s3://yard/models/mnist-7/output/output/"


def test_files_folders_and_links_are_packed(store: FilesystemObjects, ml: Path) -> None:
    model = ml / "model"
    (model / "sub" / "empty").mkdir(parents=True)
    (model / "weights.bin").write_bytes(os.urandom(3_000_000))
    (model / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (model / "sub" / "run.sh").chmod(0o700)
    (model / "latest").symlink_to("weights.bin")
    made = stored(store, ml)
    assert made is not None
    assert made.where == WHERE
    assert made.size == store.info(WHERE).size
    assert made.skipped == 0
    with tarfile.open(fileobj=io.BytesIO(read_object(store, WHERE.key)), mode="r:gz") as tar:
        assert tar.getnames() == ["latest", "sub", "weights.bin", "sub/empty", "sub/run.sh"]
        weights = tar.extractfile("weights.bin")
        assert weights is not None
        assert weights.read() == (model / "weights.bin").read_bytes()
        assert tar.getmember("latest").linkname == "weights.bin"
        assert tar.getmember("sub/run.sh").mode == 0o755
        assert tar.getmember("sub/empty").isdir()


def test_the_same_files_give_the_same_bytes(store: FilesystemObjects, ml: Path, tmp_path: Path) -> None:
    archives = []
    for number, names in enumerate((["a", "b", "c"], ["c", "a", "b"])):
        other = tmp_path / f"ml-{number}"
        (other / "model").mkdir(parents=True)
        for name in names:
            (other / "model" / name).write_text(name)
            os.utime(other / "model" / name, (number * 1000, number * 1000))
        stored(store, other)
        archives.append(read_object(store, WHERE.key))
    assert archives[0] == archives[1]


def test_an_empty_or_missing_folder_stores_nothing(store: FilesystemObjects, ml: Path) -> None:
    assert stored(store, ml) is None
    (ml / "model").rmdir()
    assert stored(store, ml) is None
    assert store.list_objects(BUCKET).objects == []


def test_links_out_of_the_folder_are_never_followed(store: FilesystemObjects, ml: Path) -> None:
    secret = ml.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (ml / "model" / "file").symlink_to(secret / "key")
    (ml / "model" / "folder").symlink_to(secret)
    stored(store, ml)
    assert {name: entry.type for name, entry in unpacked(store).items()} == {
        "file": tarfile.SYMTYPE,
        "folder": tarfile.SYMTYPE,
    }
    assert b"secret" not in gzip.decompress(read_object(store, WHERE.key)).replace(str(secret).encode(), b"")


def test_a_folder_that_is_itself_a_link_stores_nothing(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model").rmdir()
    (ml / "model").symlink_to("/etc")
    assert stored(store, ml) is None


def test_what_cannot_be_packed_is_counted(store: FilesystemObjects, ml: Path) -> None:
    os.mkfifo(ml / "model" / "pipe")
    (ml / "model" / "file").write_text("1")
    made = stored(store, ml)
    assert made is not None
    assert made.skipped == 1
    assert list(unpacked(store)) == ["file"]


def test_names_in_any_script_are_packed(store: FilesystemObjects, ml: Path) -> None:
    names = ["é.bin", "x" * 200, "данные", os.fsdecode(b"\xff-not-utf8")]
    for name in names:
        (ml / "model" / name).write_text("1")
    stored(store, ml)
    assert set(unpacked(store)) == set(names)


def test_an_abandoned_artifact_leaves_the_old_one(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "a").write_text("old")
    stored(store, ml)
    (ml / "model" / "a").write_bytes(os.urandom(5_000_000))

    def give_up() -> None:
        raise StopRequested

    with pytest.raises(StopRequested):
        store_folders(store, [ml], "model", where=WHERE, check=give_up)
    assert unpacked(store)["a"].size == len("old")
    assert store.verify(deep=True) == []


def test_a_bucket_that_is_not_there_is_not_found(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "a").write_text("1")
    elsewhere = Location(type(BUCKET)(BUCKET.account, "missing"), "model.tar.gz")
    with pytest.raises(NotFound):
        store_folders(store, [ml], "model", where=elsewhere, check=lambda: None)


def folder_of(tmp_path: Path, host: str, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / host / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / host


def texts(store: FilesystemObjects) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(read_object(store, WHERE.key)), mode="r:gz") as tar:
        files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_folders_of_several_instances_become_one(store: FilesystemObjects, tmp_path: Path) -> None:
    roots = [
        folder_of(tmp_path, "algo-1", {"shard-1": "one", "sub/a": "1"}),
        folder_of(tmp_path, "algo-2", {"shard-2": "two", "sub/b": "2"}),
    ]
    made = store_folders(store, roots, "model", where=WHERE, check=lambda: None)
    assert made is not None
    assert made.clashes == 0
    assert texts(store) == {"shard-1": "one", "shard-2": "two", "sub/a": "1", "sub/b": "2"}
    assert sorted(unpacked(store)) == ["shard-1", "shard-2", "sub", "sub/a", "sub/b"]


def test_of_what_several_instances_wrote_the_last_is_kept(store: FilesystemObjects, tmp_path: Path) -> None:
    roots = [
        folder_of(tmp_path, "algo-1", {"weights": "one", "thing/inner": "one", "other": "one", "link/x": "one"}),
        folder_of(tmp_path, "algo-2", {"weights": "two", "thing": "two", "other/inner": "two"}),
    ]
    (tmp_path / "algo-2" / "model" / "link").symlink_to("other", target_is_directory=True)
    made = store_folders(store, roots, "model", where=WHERE, check=lambda: None)
    assert made is not None
    assert (made.clashes, made.clash) == (4, "link")
    assert texts(store) == {"weights": "two", "thing": "two", "other/inner": "two"}


def test_an_instance_that_wrote_nothing_changes_nothing(store: FilesystemObjects, tmp_path: Path) -> None:
    roots = [folder_of(tmp_path, "algo-1", {"weights": "one"}), tmp_path / "algo-2"]
    (tmp_path / "algo-2" / "model").mkdir(parents=True)
    store_folders(store, roots, "model", where=WHERE, check=lambda: None)
    assert texts(store) == {"weights": "one"}


def test_folders_nested_without_end_are_refused(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "/".join("d" * 210)).mkdir(parents=True)
    with pytest.raises(CannotRun, match="more than 200 deep"):
        stored(store, ml)
    assert not store.list_objects(BUCKET).objects


def test_holes_of_many_files_are_counted_together(
    store: FilesystemObjects, ml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.instance.agent.results.merged_tree._MAX_HOLE_BYTES", 10 << 20)
    for name in ("a", "b", "c"):
        (ml / "model" / name).touch()
        os.truncate(ml / "model" / name, 4 << 20)
    with pytest.raises(CannotRun, match='"c" claims to have 4194304 bytes but is nearly empty'):
        stored(store, ml)


def test_too_many_entries_are_refused_however_they_are_nested(
    store: FilesystemObjects, ml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.instance.agent.results.merged_tree._MAX_ENTRIES", 5)
    (ml / "model" / "inner").mkdir()
    for name in ("a", "b", "inner/c", "inner/d"):
        (ml / "model" / name).write_text("x")
    assert stored(store, ml) is not None
    (ml / "model" / "inner" / "e").write_text("x")
    with pytest.raises(CannotRun, match="More than 5 files and folders"):
        stored(store, ml)


def test_a_file_of_nothing_but_holes_is_refused(store: FilesystemObjects, ml: Path) -> None:
    with (ml / "model" / "holes").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CannotRun, match='"holes" claims to have 1099511627776 bytes but is nearly empty'):
        stored(store, ml)


def test_files_without_permissions_for_their_owner_are_packed(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "shut").mkdir()
    (ml / "model" / "shut" / "file").write_text("kept")
    for path in ("shut/file", "shut", "."):
        (ml / "model" / path).chmod(0)
    assert stored(store, ml) is not None
    assert {"shut", "shut/file"} <= unpacked(store).keys()
