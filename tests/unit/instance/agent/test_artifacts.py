"""Results in the object store."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, changed, make_bucket, read_object
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.instance.agent.artifacts import Stored, model_location, output_location, store_folder
from trainyard.instance.agent.orders import Ordered
from trainyard.objects.filesystem import FilesystemObjects

WHERE = model_location(SPEC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        yield opened


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "ml" / "model").mkdir(parents=True)
    return tmp_path / "ml"


def stored(store: FilesystemObjects, ml: Path) -> Stored | None:
    return store_folder(store, ml, "model", where=WHERE, check=lambda: None)


def unpacked(store: FilesystemObjects) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(read_object(store, WHERE.key)), mode="r:gz") as tar:
        return {entry.name: entry for entry in tar}


def test_the_locations_are_those_that_clients_fetch() -> None:
    assert str(WHERE) == "s3://yard/models/mnist-7/output/model.tar.gz"
    assert str(output_location(SPEC)) == "s3://yard/models/mnist-7/output/output.tar.gz"
    assert str(model_location(changed(output_path="s3://yard/"))) == "s3://yard/mnist-7/output/model.tar.gz"


def test_the_output_of_another_instance_has_a_name_of_its_own() -> None:
    other = changed(instance="algo-2", uploads=False)
    assert str(output_location(other)) == "s3://yard/models/mnist-7/output/output-algo-2.tar.gz"


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


def test_an_artifact_given_up_leaves_the_old_one(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "a").write_text("old")
    stored(store, ml)
    (ml / "model" / "a").write_bytes(os.urandom(5_000_000))

    def give_up() -> None:
        raise Ordered

    with pytest.raises(Ordered):
        store_folder(store, ml, "model", where=WHERE, check=give_up)
    assert unpacked(store)["a"].size == len("old")
    assert store.verify(deep=True) == []


def test_a_bucket_that_is_not_there_is_not_found(store: FilesystemObjects, ml: Path) -> None:
    (ml / "model" / "a").write_text("1")
    elsewhere = Location(type(BUCKET)(BUCKET.account, "missing"), "model.tar.gz")
    with pytest.raises(NotFound):
        store_folder(store, ml, "model", where=elsewhere, check=lambda: None)
