"""Access to the objects of a yard from other machines, through its S3 API with the credentials of an attempt."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.faulty_s3 import BreakOff, FaultyS3, Lose, Refuse, Reset
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    Attributes,
    Bucket,
    ChecksumAlgorithm,
    ObjectReplaced,
    Precondition,
    PreconditionFailed,
)
from trainyard.objects.remote.failures import RetryPolicy
from trainyard.objects.served import ServedObjects, client
from trainyard.objects.served import store as served_store
from trainyard.objects.served.client import LONG_RETRIES, CredentialsRevoked
from trainyard.testing.objects import ConcurrencyContract, ConditionContract, ListContract, ReadContract, WriteContract
from trainyard.testing.objects.samples import NOON, ODD_KEYS, body_of, keys_of, put
from trainyard.testing.yard import RunningYard, start_yard

IMPATIENT = RetryPolicy(tries=4, first_pause_s=0.01, max_pause_s=0.05, read_timeout_s=2.0)


class ServedStore(ServedObjects):
    """Creates and deletes buckets as a user, which no instance can."""

    def __init__(self, yard: RunningYard, staging: Path) -> None:
        keys = yard.credentials
        super().__init__(
            yard.http,
            staging=staging,
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
            region=keys.region,
            retry_policy=IMPATIENT,
        )
        self.client = client_of(yard)

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        self.client.create_bucket(Bucket=ref.name, CreateBucketConfiguration={"LocationConstraint": region})
        return Bucket(ref, region, now)

    def delete_many(self, bucket: BucketRef, keys: list[str]) -> None:
        for key in keys:
            self.delete(Location(bucket, key))


def client_of(yard: RunningYard) -> Any:
    keys = yard.credentials
    return boto3.client(
        "s3",
        endpoint_url=yard.http,
        region_name=keys.region,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
    )


def opened(
    yard: RunningYard,
    folder: Path,
    *,
    endpoint: str = "",
    access_key_id: str = "",
    retry_policy: RetryPolicy = IMPATIENT,
) -> ServedObjects:
    keys = yard.credentials
    return ServedObjects(
        endpoint or yard.http,
        staging=folder / "staging",
        access_key_id=access_key_id or keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        region=keys.region,
        retry_policy=retry_policy,
    )


@pytest.fixture
def store(remote_yard: RunningYard, tmp_path: Path) -> Iterator[ServedStore]:
    opened = ServedStore(remote_yard, tmp_path / "staging")
    yield opened
    opened.close()
    opened.client.close()


@pytest.fixture
def bucket(store: ServedStore, remote_yard: RunningYard) -> BucketRef:
    ref = BucketRef(remote_yard.credentials.account, f"bucket-{uuid.uuid4().hex[:12]}")
    store.create_bucket(ref, region="eu-central-1", now=NOON)
    return ref


class TestServedObjects(WriteContract, ReadContract, ListContract, ConditionContract, ConcurrencyContract): ...


# Tests of operations that `ObjectAccess` lacks because no instance needs them, and of what S3 cannot transfer.
for _name in (
    "test_only_one_of_many_bucket_creations_succeeds",
    "test_a_bucket_is_never_deleted_while_it_gets_an_object",
    "test_buckets_do_not_mix",
    "test_only_one_of_many_completions_succeeds",
    "test_parts_can_be_uploaded_concurrently",
    "test_a_completion_can_have_a_precondition_on_its_target",
    "test_a_copy_can_have_a_precondition_on_its_target",
    "test_tags_of_an_object_are_replaced_and_nothing_else",
    "test_tags_need_an_object",
    "test_attributes_can_be_as_long_as_s3_allows",  # tags among them
    "test_attributes_are_returned_unchanged",  # non-ASCII metadata names, and tags
    "test_any_text_is_a_key",  # U+0000; the others are below
    "test_keys_are_in_the_order_of_their_bytes",
    "test_many_keys_are_deleted_at_once",
    "test_a_page_follows_the_definition",  # needs buckets of another account
    "test_pages_have_no_gaps_and_no_repetitions",
    "test_a_reader_keeps_its_version_when_the_object_is_deleted",  # deletes the bucket too
    "test_a_second_write_replaces_everything",  # the yard adds a checksum if none is announced
):
    setattr(TestServedObjects, _name, None)

KEYS = [key for key in ODD_KEYS if "\0" not in key]


def test_every_key_that_s3_has_is_written_listed_read_and_deleted(store: ServedStore, bucket: BucketRef) -> None:
    for key in KEYS:
        put(store, Location(bucket, key), key.encode())

    assert keys_of(store, bucket) == sorted(KEYS, key=str.encode)
    assert [body_of(store, Location(bucket, key)).decode() for key in KEYS] == KEYS
    assert all(store.delete(Location(bucket, key)) for key in KEYS)
    assert keys_of(store, bucket) == []


def test_pages_follow_each_other_to_the_last_key(store: ServedStore, bucket: BucketRef) -> None:
    keys = sorted(["a/1", "a/2", "b", "b/é 1", "b/2", "c+%20", "c/d//e", "z"], key=str.encode)
    for key in keys:
        put(store, Location(bucket, key), b"")
    found: list[str] = []
    folders: list[str] = []
    after = ""
    while True:
        page = store.list_objects(bucket, delimiter="/", after=after, limit=2)
        found += [each.key for each in page.objects]
        folders += page.prefixes
        if page.next_after is None:
            break
        after = page.next_after

    assert found == ["b", "c+%20", "z"]
    assert folders == ["a/", "b/", "c/"]


def test_attributes_and_checksums_come_back(store: ServedStore, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    said = Attributes({"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}, {"two": "a  é  b"})
    written = put(store, where, b"body", attributes=said, algorithms=[ChecksumAlgorithm.SHA256])

    assert store.info(where).attributes == said
    assert store.info(where).checksum == written.checksum
    assert store.versions.newest(where).info == store.info(where)


def test_a_large_object_is_sent_in_parts_and_replaces_only_the_required_version(
    store: ServedStore, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_store, "PART_BYTES", 6 << 20)
    where, body = Location(bucket, "model.tar.gz"), os.urandom((13 << 20) + 7)
    written = put(store, where, body, precondition=Precondition(absent=True))

    assert written.etag.endswith("-3")
    assert store.info(where).etag == written.etag
    assert body_of(store, where) == body
    with pytest.raises(PreconditionFailed):
        put(store, where, body, precondition=Precondition(absent=True))
    assert store.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []) == []


def test_ranges_come_from_one_version_or_are_refused(store: ServedStore, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    first = put(store, where, b"0123456789")
    version = store.versions.from_listing(where, etag=first.etag, size=10)
    assert version.read(2, 5) == b"23456"
    assert version.read(8, 100) == b"89"

    put(store, where, b"9876543210")
    with pytest.raises(ObjectReplaced):
        version.read(2, 5)
    store.delete(where)
    with pytest.raises(NotFound):
        version.read(2, 5)


def test_transient_failures_are_retried(
    faulty: FaultyS3, remote_yard: RunningYard, bucket: BucketRef, tmp_path: Path
) -> None:
    where, body = Location(bucket, "k"), os.urandom(300_000)
    with closing(opened(remote_yard, tmp_path, endpoint=faulty.url)) as store:
        faulty.on("PUT", "k", [Refuse(503, "SlowDown"), Reset(), Refuse(500)])
        put(store, where, body)
        faulty.on("GET", "k", [BreakOff(), Refuse(503, "SlowDown"), Reset()])
        assert store.versions.newest(where).read(0, len(body)) == body
        faulty.on("GET", "list-type", [Refuse(503, "SlowDown")] * 4)
        with pytest.raises(Unavailable, match=r"Tried 4 times.*`advertise`"):
            store.list_objects(bucket)


def test_a_write_whose_answer_was_lost_is_not_mistaken_for_that_of_another(
    faulty: FaultyS3, remote_yard: RunningYard, bucket: BucketRef, tmp_path: Path
) -> None:
    where, new = Location(bucket, "k"), Precondition(absent=True)
    with closing(opened(remote_yard, tmp_path, endpoint=faulty.url)) as store:
        faulty.on("PUT", "k", [Lose()])
        written = put(store, where, b"mine", precondition=new)

        assert store.info(where).etag == written.etag
        with pytest.raises(PreconditionFailed):
            put(store, where, b"mine", precondition=new)
        faulty.on("DELETE", "k", [Lose()])
        assert store.delete(where)


def test_a_revoked_key_is_reported_at_once_by_every_operation(
    faulty: FaultyS3, remote_yard: RunningYard, bucket: BucketRef, tmp_path: Path
) -> None:
    where = Location(bucket, "k")
    with closing(opened(remote_yard, tmp_path, endpoint=faulty.url, access_key_id="ASIA0000000000000000")) as store:
        asked: list[Callable[[], object]] = [
            lambda: store.info(where),
            lambda: store.open(where),
            lambda: store.list_objects(bucket),
            lambda: store.delete(where),
            lambda: store.versions.from_listing(where, etag="e", size=9).read(0, 9),
            lambda: put(store, where, os.urandom(8 << 20)),
        ]
        for ask in asked:
            with pytest.raises(CredentialsRevoked, match="another one has replaced it"):
                ask()
    assert faulty.count("PUT", "k") == 1


def test_a_machine_with_a_wrong_clock_signs_with_the_time_of_the_yard(
    store: ServedStore, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "utc_now", lambda: utc_now() - timedelta(days=400))

    put(store, Location(bucket, "k"), b"late")

    assert body_of(store, Location(bucket, "k")) == b"late"


def test_a_client_waits_for_a_yard_that_restarts(tmp_path: Path) -> None:
    yard = start_yard(tmp_path / "home")
    port = int(yard.http.rpartition(":")[2])
    where = Location(BucketRef(yard.credentials.account, "kept"), "k")
    client = client_of(yard)
    client.create_bucket(Bucket="kept", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    client.close()
    with closing(opened(yard, tmp_path, retry_policy=LONG_RETRIES)) as store:
        put(store, where, b"before")
        yard.kill()
        again: list[RunningYard] = []
        starting = threading.Timer(1.0, lambda: again.append(start_yard(tmp_path / "home", port=port)))
        starting.start()

        put(store, where, b"after")

        assert body_of(store, where) == b"after"
        starting.join()
        again[0].stop()
