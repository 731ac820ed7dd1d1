"""Clients upload and use local data while `gc` removes uploads that nobody needs."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.simulated_compute import simulated_compute
from tests.unit.server.services.s3.front import OWNER, Front, caller, read
from trainyard._sdk.storage import transfers
from trainyard._sdk.storage.file_digests import PART_BYTES
from trainyard._sdk.storage.input_uploads import InputUploads
from trainyard.foundation.errors import Unavailable
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.identity import Identities
from trainyard.server.jobs import processing, training, tuning
from trainyard.server.records.contract import Draft, ResourceKey
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Yard
from trainyard.server.streaming import Followers
from trainyard.server.upkeep.input_garbage import InputUpload, remove_input, unneeded_inputs
from trainyard.wire.client import CallFailed
from trainyard.wire.fault import Fault

KEPT = timedelta(days=30)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class FrontApi:
    """The API of a client on top of the S3 operations. `before` is called first with each operation and its key."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self.before: Callable[[str, str], None] = lambda operation, key: None

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        assert service == "s3", "nothing else is asked here"
        self.before(operation, params.get("Key", ""))
        try:
            answer = self._front(operation, **params)
        except Fault as fault:
            raise CallFailed(fault.code, fault.message, status=fault.status) from fault
        return answer | ({"Body": read(answer["Body"])} if operation == "GetObject" else {})

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]:
        raise NotImplementedError(f"{service} {operation} streams nothing here")


class World:
    """A yard's store and records, one client, and a folder with data."""

    def __init__(self, yard: Yard, folder: Path) -> None:
        self.records, self.objects, self._folder = yard.records, yard.objects, folder
        self.front = Front(yard, caller(OWNER))
        self.front("CreateBucket", Bucket="mine")
        self.api = FrontApi(self.front)
        self.data = folder / "data"
        self.data.mkdir()
        (self.data / "a").write_text("one")
        (self.data / "b").write_text("two")

    @property
    def now(self) -> datetime:
        return self.front.now

    def wait(self, time: timedelta) -> None:
        self.front.now += time

    def uploads(self) -> InputUploads:
        return InputUploads(self.api, "mine", cache=self._folder / "cache")

    def upload(self) -> str:
        """Upload the data for a job that is created at once, and return its location."""
        with self.uploads() as uploads:
            return uploads.upload(self.data).uri

    def make_job(self, uri: str, *, kind: str = training.KIND, status: str = "InProgress") -> None:
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
        request = {"InputDataConfig": [{"ChannelName": "data", "DataSource": source}]}
        if kind == tuning.KIND:
            request = {"TrainingJobDefinition": request}  # type: ignore[dict-item]  # as the API nests it
        key = ResourceKey(OWNER, kind, f"job-{status}")
        self.records.create(Draft(key, "us-east-1", {"request": request}, status=status), now=self.now)

    def unneeded(self) -> list[InputUpload]:
        return unneeded_inputs(self.objects, self.records, retention=KEPT, now=self.now)

    def collect(self) -> int:
        return sum(remove_input(self.objects, upload) for upload in self.unneeded())

    def files(self, uri: str) -> dict[str, bytes]:
        """Return what a job would find at a location."""
        prefix = uri.removeprefix("s3://mine/")
        keys = [key for key in self.front.keys("mine") if key.startswith(prefix)]
        return {key.removeprefix(prefix): self.front.get("mine", key)["Body"] for key in keys}


WHOLE = {"a": b"one", "b": b"two"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        closing(FilesystemObjects(tmp_path / "objects")) as objects,
        closing(open_records(f"sqlite:///{tmp_path}/records.db")) as records,
    ):
        compute, followers = simulated_compute(tmp_path), Followers(records, tmp_path / "jobs")
        logs, metrics = tmp_path / "logs", tmp_path / "metrics"
        yield World(Yard(records, objects, Identities(records), logs, metrics, compute, followers), tmp_path)


def test_an_upload_that_no_job_names_is_removed_with_all_its_objects(world: World) -> None:
    world.upload()

    assert world.collect() == 1
    assert world.front.keys("mine") == []


@pytest.mark.parametrize("kind", [training.KIND, processing.KIND, tuning.KIND])
def test_an_upload_of_an_unfinished_job_stays(world: World, kind: str) -> None:
    uri = world.upload()
    world.make_job(uri, kind=kind)
    world.wait(KEPT * 2)

    assert world.collect() == 0
    assert world.files(uri) == WHOLE


def test_an_upload_of_an_ended_job_stays_for_a_time(world: World) -> None:
    uri = world.upload()
    world.make_job(uri, status="Completed")
    world.wait(KEPT - MINUTE)
    assert world.collect() == 0
    world.wait(MINUTE)
    assert world.collect() == 1


def test_an_upload_for_a_future_job_is_held_for_an_hour(world: World) -> None:
    uri = world.uploads().upload(world.data).uri
    world.wait(HOUR - MINUTE)
    assert world.collect() == 0
    assert world.files(uri) == WHOLE
    world.wait(MINUTE)
    assert world.collect() == 1


def test_an_upload_that_is_used_during_its_removal_stays(world: World) -> None:
    uri = world.upload()
    (unneeded,) = world.unneeded()
    assert world.upload() == uri

    assert not remove_input(world.objects, unneeded)
    assert world.files(uri) == WHOLE


@pytest.mark.parametrize("moment", ["ListObjectsV2", "PutObject holds", "GetObject", "PutObject commits"])
def test_a_run_gets_complete_data_whenever_gc_removes_the_previous_upload(world: World, moment: str) -> None:
    before = world.upload()
    (unneeded,) = world.unneeded()
    operation, _, place = moment.partition(" ")

    def remove(asked: str, key: str) -> None:
        if asked == operation and place in key:
            world.api.before = lambda operation, key: None
            assert remove_input(world.objects, unneeded)

    world.api.before = remove
    uri = world.upload()

    assert uri != before
    assert world.files(uri) == WHOLE


def test_an_upload_that_stalled_too_long_is_not_used_after_gc_removed_it(world: World) -> None:
    def stand_still(operation: str, key: str) -> None:
        if operation == "PutObject" and key.endswith("/b"):
            world.api.before = lambda operation, key: None
            world.wait(HOUR)
            assert world.collect() == 1

    world.api.before = stand_still
    with pytest.raises(Unavailable, match="stalled"):
        world.upload()

    assert not [key for key in world.front.keys("mine") if "/commits/" in key]
    assert world.files(world.upload()) == WHOLE


def test_an_interrupted_upload_is_removed_an_hour_later(world: World) -> None:
    class Killed(BaseException):
        pass

    def end(operation: str, key: str) -> None:
        if operation == "PutObject" and key.endswith("/b"):
            raise Killed

    world.api.before = end
    with pytest.raises(Killed):
        world.upload()
    world.api.before = lambda operation, key: None

    assert world.collect() == 0
    world.wait(HOUR)
    assert world.collect() == 1
    assert world.front.keys("mine") == []


def test_objects_of_other_names_are_left_alone(world: World) -> None:
    for key in ("trainyard-inputs/trees/mine/a", "trainyard-inputs/manifests/mine", "trainyard-inputs/x"):
        world.front.put("mine", key)

    assert world.collect() == 0
    assert len(world.front.keys("mine")) == 3


def test_a_file_that_changes_before_it_is_sent_is_not_stored(world: World) -> None:
    def change(operation: str, key: str) -> None:
        (world.data / "b").write_text("new")

    world.api.before = change
    with pytest.raises(Unavailable, match='b" changed during the upload'):
        world.upload()
    world.api.before = lambda operation, key: None

    assert not [key for key in world.front.keys("mine") if "/commits/" in key]
    assert world.files(world.upload()) == {"a": b"one", "b": b"new"}


def test_two_uploads_of_one_folder_at_once_are_both_complete(world: World) -> None:
    uris: list[str] = []

    def upload_beside(operation: str, key: str) -> None:
        if "/commits/" in key:
            world.api.before = lambda operation, key: None
            uris.append(world.upload())

    world.api.before = upload_beside
    uris.append(world.upload())

    assert [world.files(uri) for uri in uris] == [WHOLE, WHOLE]


@pytest.mark.parametrize("max_copy_bytes", [transfers._MAX_COPY_BYTES, PART_BYTES])
def test_a_large_file_is_sent_in_parts_once_and_copied_after_that(
    world: World, monkeypatch: pytest.MonkeyPatch, max_copy_bytes: int
) -> None:
    monkeypatch.setattr(transfers, "_MAX_COPY_BYTES", max_copy_bytes)
    large = os.urandom(PART_BYTES + 5 * 1024 * 1024)
    (world.data / "large").write_bytes(large)
    world.upload()
    (world.data / "a").write_text("changed")
    asked: list[str] = []
    world.api.before = lambda operation, key: asked.append(f"{operation} {key.rpartition('/')[2]}")

    uri = world.upload()

    assert world.files(uri) == {"a": b"changed", "b": b"two", "large": large}
    assert "UploadPart large" not in asked
    assert "PutObject a" in asked
    assert "PutObject b" not in asked


def test_a_large_file_that_changes_during_the_upload_is_not_stored(world: World) -> None:
    (world.data / "large").write_bytes(bytes(PART_BYTES + 1))

    def change(operation: str, key: str) -> None:
        if operation == "UploadPart":
            (world.data / "large").write_bytes(b"\1" * (PART_BYTES + 1))

    world.api.before = change
    with pytest.raises(Unavailable, match="changed during the upload"):
        world.upload()
    world.api.before = lambda operation, key: None

    assert not [key for key in world.front.keys("mine") if "/commits/" in key or key.endswith("/large")]
    assert world.front("ListMultipartUploads", Bucket="mine")["Uploads"] == []
