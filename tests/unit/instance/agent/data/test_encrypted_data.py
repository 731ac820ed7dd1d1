"""Encrypted objects reach a job decrypted, in every way in which objects reach it."""

import gzip
import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.instance.agent.data.test_pipe_feed import received
from tests.unit.instance.agent.samples import ACCOUNT, BUCKET, SPEC, changed, make_bucket, put_object, tar_gz
from trainyard.formats.recordio import read_recordio
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.channels import stage_channel
from trainyard.instance.agent.data.pipe_feed import PipeFeed
from trainyard.instance.agent.data.sync.restore import restore_folder
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.program.code import fetch_code
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.link.contract import ChannelSpec, ObjectsSpec
from trainyard.objects.encryption.headers import Encryption
from trainyard.objects.encryption.keys import KeyState
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.objects.samples import NOON, REGION

OBJECTS = {"data/a": b"first " * 50_000, "data/b": b"", "data/deep/c": os.urandom(200_001)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        key = opened.keyring.create(ACCOUNT, region=REGION, now=NOON)
        opened.encrypt_bucket(BUCKET, Encryption("aws:kms", key.arn))
        for name, data in OBJECTS.items():
            put_object(opened, name, data)
        yield opened


def disable_key(store: FilesystemObjects) -> None:
    [key] = store.keyring.keys(ACCOUNT, limit=1)
    store.keyring.change(ACCOUNT, key.id, lambda key: replace(key, state=KeyState.DISABLED))


def channel(mode: str = "File", **values: object) -> ChannelSpec:
    told = {"name": "train", "mode": mode, "bucket": BUCKET.name, "prefix": "data/", "keys": tuple(OBJECTS)}
    return ChannelSpec(**{**told, **values})  # type: ignore[arg-type]


def stage(store: FilesystemObjects, folder: Path) -> None:
    stage_channel(store, channel(), bucket=BUCKET, folder=folder, check=lambda: None)


def pipe(tmp_path: Path, **values: object) -> bytes:
    return received(PipeFeed(changed(objects=ObjectsSpec(str(tmp_path / "objects"))), channel("Pipe", **values)))


def test_a_file_channel_holds_the_decrypted_objects(store: FilesystemObjects, tmp_path: Path) -> None:
    stage(store, tmp_path / "train")
    found = {key: (tmp_path / "train" / key.removeprefix("data/")) for key in OBJECTS}
    assert {key: path.read_bytes() for key, path in found.items()} == OBJECTS
    # The job's own copies: nothing else on the disk has the content.
    assert {path.stat().st_nlink for path in found.values()} == {1}
    assert b"first " * 10 not in b"".join(path.read_bytes() for path in (tmp_path / "objects/data").rglob("?*-*"))


def test_a_channel_whose_key_is_disabled_names_the_object_and_the_key(store: FilesystemObjects, tmp_path: Path) -> None:
    disable_key(store)
    with pytest.raises(
        CannotRun, match=r"data/a of channel train cannot be staged: it cannot be decrypted: arn.* is di"
    ):
        stage(store, tmp_path / "train")
    with pytest.raises(CannotRun, match=r"data/a of channel train cannot be sent: it cannot be decrypted: arn.* is di"):
        pipe(tmp_path)


def test_a_pipe_sends_the_decrypted_objects(store: FilesystemObjects, tmp_path: Path) -> None:
    assert pipe(tmp_path) == b"".join(OBJECTS.values())
    assert list(read_recordio(io.BytesIO(pipe(tmp_path, record_wrapper="RecordIO")))) == list(OBJECTS.values())


def test_a_pipe_unpacks_decrypted_objects(store: FilesystemObjects, tmp_path: Path) -> None:
    for key, data in OBJECTS.items():
        put_object(store, key, gzip.compress(data))
    assert pipe(tmp_path, compression="Gzip") == b"".join(OBJECTS.values())


def test_a_pipe_reads_an_encrypted_manifest(store: FilesystemObjects, tmp_path: Path) -> None:
    lines = [{"source-ref": f"s3://{BUCKET.name}/data/a", "label": number} for number in range(3)]
    put_object(store, "data/manifest", b"\n".join(json.dumps(line).encode() for line in lines))
    sent = pipe(tmp_path, keys=("data/manifest",), attributes=("source-ref", "label"), record_wrapper="RecordIO")
    records = list(read_recordio(io.BytesIO(sent)))
    assert records == [each for number in range(3) for each in (OBJECTS["data/a"], str(number).encode())]


def test_checkpoints_are_restored_decrypted(store: FilesystemObjects, tmp_path: Path) -> None:
    (tmp_path / "restored").mkdir()
    with ConfinedFolder.open(tmp_path / "restored") as folder:
        where, owner = Location(BUCKET, "data/"), ProgramUser(None)
        list(restore_folder(store, where, folder, owner=owner, check=lambda: None, on_skipped=lambda key: None))
    assert (tmp_path / "restored/deep/c").read_bytes() == OBJECTS["data/deep/c"]


def test_code_is_unpacked_from_an_encrypted_archive(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "code/sourcedir.tar.gz", tar_gz({"train.py": "print('hello')", "lib/more.py": "x = 1"}))
    (tmp_path / "ml/code").mkdir(parents=True)
    fetch_code(store, SPEC, tmp_path / "ml", check=lambda: None)
    assert (tmp_path / "ml/code/lib/more.py").read_text() == "x = 1"
    disable_key(store)
    with pytest.raises(CannotRun, match=r"cannot be decrypted: arn.* is disabled"):
        fetch_code(store, SPEC, tmp_path / "ml", check=lambda: None)
