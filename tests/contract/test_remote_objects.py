"""Guarantees of the remote back end alone, tested on a second yard."""

import os
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart, Precondition, PreconditionFailed
from trainyard.objects.remote import RemoteObjects
from trainyard.objects.remote import store as remote_store_module
from trainyard.testing.objects.samples import NOON, PART, body_of, in_threads, keys_of, new_bucket, put, put_part
from trainyard.testing.yard import RunningYard

LARGE = os.urandom(3 << 20)
TOLD = Attributes({"content-type": "text/csv"}, {"note": "n" * 3000})


@pytest.fixture
def bucket(remote_store: RemoteObjects) -> BucketRef:
    return new_bucket(remote_store)


def names(yard: RunningYard) -> list[str]:
    """Return every key of the remote bucket, as another client sees it."""
    keys = yard.credentials
    client = boto3.client(
        "s3",
        endpoint_url=yard.http,
        region_name=keys.region,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="remote")
    found = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    client.close()
    return found


def test_the_path_of_an_object_is_its_account_bucket_and_key(
    remote_store: RemoteObjects, bucket: BucketRef, remote_yard: RunningYard
) -> None:
    put(remote_store, Location(bucket, "train/images/1.jpg"), b"1")
    [found] = [name for name in names(remote_yard) if name.endswith("1.jpg") and bucket.name in name]
    assert found.endswith(f"/{bucket.account}/{bucket.name}/train/images/1.jpg")


def test_a_second_opening_finds_everything(open_remote: Callable[[], RemoteObjects]) -> None:
    first = open_remote()
    bucket = new_bucket(first)
    put(first, Location(bucket, "k"), b"bytes", attributes=TOLD)
    upload = first.create_upload(Location(bucket, "u"), TOLD, now=NOON)
    put_part(first, upload, 3, body=b"part")
    second = open_remote()
    assert second.bucket(bucket) == first.bucket(bucket)
    assert second.info(Location(bucket, "k")) == first.info(Location(bucket, "k"))
    assert second.upload(upload.where, upload.id) == upload
    assert second.parts(upload.where, upload.id) == first.parts(upload.where, upload.id)


def test_only_one_of_two_yards_that_write_a_new_key_succeeds(open_remote: Callable[[], RemoteObjects]) -> None:
    stores = [open_remote() for _ in range(4)]
    bucket = new_bucket(stores[0])

    def create(number: int) -> bool:
        try:
            put(stores[number], Location(bucket, "k"), b"%d" % number, precondition=Precondition(absent=True))
        except PreconditionFailed:
            return False
        return True

    assert sum(in_threads(4, create)) == 1


def test_a_large_object_read_from_front_to_back_outlives_its_replacement(
    remote_store: RemoteObjects, bucket: BucketRef
) -> None:
    where = Location(bucket, "k")
    put(remote_store, where, LARGE)
    with remote_store.open(where) as reader:
        first = reader.read(0, 1000)
        put(remote_store, where, b"new")
        assert first + reader.read(1000, len(LARGE)) == LARGE


def test_ranges_of_a_replaced_object_are_refused_never_mixed(remote_store: RemoteObjects, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    put(remote_store, where, LARGE)
    with remote_store.open(where) as reader:
        assert reader.read(2_000_000, 10) == LARGE[2_000_000:2_000_010]
        put(remote_store, where, LARGE[::-1])
        with pytest.raises(Unavailable, match="Open it again"):
            reader.read(1_000_000, 10)


def test_large_objects_keep_their_attributes_and_parts(remote_store: RemoteObjects, bucket: BucketRef) -> None:
    upload = remote_store.create_upload(Location(bucket, "k"), TOLD, now=NOON)
    bodies = [b"a" * PART, b"b" * PART, b"c"]
    parts = [put_part(remote_store, upload, number, body=body) for number, body in enumerate(bodies, 1)]
    named = [CompletedPart(number, part.etag) for number, part in enumerate(parts, 1)]
    info = remote_store.complete_upload(upload.where, upload.id, named, now=NOON)
    assert info.attributes == TOLD
    assert [part.etag for part in info.parts] == [part.etag for part in parts]
    assert body_of(remote_store, upload.where) == b"".join(bodies)
    remote_store.tag_object(upload.where, {"t": "v"})
    assert remote_store.info(upload.where).parts == info.parts
    assert body_of(remote_store, upload.where) == b"".join(bodies)


def test_an_upload_leaves_only_the_object(
    remote_store: RemoteObjects, bucket: BucketRef, remote_yard: RunningYard, tmp_path: Path
) -> None:
    upload = remote_store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
    for body in (b"first", b"second"):
        part = put_part(remote_store, upload, 1, body=body)
    remote_store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
    assert [name for name in names(remote_yard) if upload.id in name] == []
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_sweep_deletes_descriptions_that_no_object_has(
    remote_store: RemoteObjects, bucket: BucketRef, remote_yard: RunningYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside() -> int:
        return sum(1 for name in names(remote_yard) if f"/more/{bucket.account}/{bucket.name}/" in name)

    kept, replaced, copied = (Location(bucket, key) for key in ("kept", "replaced", "copied"))
    for where in (kept, replaced, Location(bucket, "deleted")):
        put(remote_store, where, b"1", attributes=TOLD)
    remote_store.copy(replaced, copied, now=NOON)
    put(remote_store, replaced, b"2")
    remote_store.delete_many(bucket, ["deleted"])
    assert remote_store.sweep() == 0  # all may belong to writes in progress
    assert beside() == 4
    tomorrow = remote_store.info(kept).modified_at + 2 * remote_store_module.SWEEP_AGE
    monkeypatch.setattr(remote_store_module, "utc_now", lambda: tomorrow)
    assert remote_store.sweep() == 2
    assert beside() == 2
    assert [remote_store.info(where).attributes for where in (kept, copied)] == [TOLD, TOLD]


def test_many_keys_are_listed_page_by_page_and_folder_by_folder(remote_store: RemoteObjects, bucket: BucketRef) -> None:
    keys = [f"{folder}/{number:04}" for folder in ("a", "b") for number in range(700)]
    in_threads(8, lambda n: [put(remote_store, Location(bucket, key), b"") for key in keys[n::8]])
    page = remote_store.list_objects(bucket, limit=1200)
    assert [found.key for found in page.objects] == keys[:1200]
    rest = remote_store.list_objects(bucket, after=page.next_after or "")
    assert [found.key for found in rest.objects] == keys[1200:]
    assert list(remote_store.list_objects(bucket, delimiter="/").prefixes) == ["a/", "b/"]
    inside = remote_store.list_objects(bucket, prefix="b/06", limit=3)
    assert [found.key for found in inside.objects] == ["b/0600", "b/0601", "b/0602"]
    remote_store.delete_many(bucket, keys)
    assert keys_of(remote_store, bucket) == []


def test_a_remote_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is unavailable"):
        RemoteObjects(
            "s3://remote", endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b", staging=tmp_path
        )


def test_wrong_keys_are_reported_as_such(remote_yard: RunningYard, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="refuses our keys"):
        RemoteObjects(
            "s3://remote", endpoint=remote_yard.http, access_key_id="a", secret_access_key="b", staging=tmp_path
        )


def test_a_missing_bucket_is_reported_at_once(remote_yard: RunningYard, tmp_path: Path) -> None:
    keys = remote_yard.credentials
    with pytest.raises(InvalidRequest, match="There is no bucket s3://absent"):
        RemoteObjects(
            "s3://absent/prefix",
            endpoint=remote_yard.http,
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
            staging=tmp_path,
        )
