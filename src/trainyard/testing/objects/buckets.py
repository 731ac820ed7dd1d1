"""Buckets belong to accounts, and only an empty bucket can be deleted, which frees its name."""

from collections.abc import Callable

import pytest

from trainyard.foundation.errors import AlreadyExists, Conflict, NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, Bucket, ObjectStore
from trainyard.testing.objects.samples import (
    ALICE,
    BOB,
    NOON,
    REGION,
    body_of,
    keys_of,
    minutes,
    new_bucket,
    put,
    put_part,
)


class BucketContract:
    def test_a_bucket_keeps_its_region_and_creation_time(self, store: ObjectStore) -> None:
        ref = BucketRef(ALICE, "kept-bucket")
        made = store.create_bucket(ref, region=REGION, now=NOON)
        assert made == Bucket(ref, REGION, NOON)
        assert store.bucket(ref) == made
        store.delete_bucket(ref)

    def test_a_bucket_that_exists_cannot_be_created_again(self, store: ObjectStore, bucket: BucketRef) -> None:
        with pytest.raises(AlreadyExists) as raised:
            store.create_bucket(bucket, region="us-west-2", now=minutes(1))
        assert (raised.value.kind, raised.value.name) == ("bucket", bucket.name)
        assert store.bucket(bucket).region == REGION

    def test_two_accounts_can_have_buckets_of_the_same_name(self, store: ObjectStore, bucket: BucketRef) -> None:
        other = BucketRef(BOB, bucket.name)
        store.create_bucket(other, region=REGION, now=NOON)
        put(store, Location(bucket, "k"), b"alice")
        put(store, Location(other, "k"), b"bob")
        assert body_of(store, Location(bucket, "k")) == b"alice"
        assert store.delete(Location(other, "k"))
        assert keys_of(store, bucket) == ["k"]
        store.delete_bucket(other)
        assert body_of(store, Location(bucket, "k")) == b"alice"

    def test_buckets_are_ordered_by_name_then_account(self, store: ObjectStore) -> None:
        refs = [BucketRef(BOB, "order-b"), BucketRef(ALICE, "order-c"), BucketRef(ALICE, "order-b")]
        for ref in refs:
            store.create_bucket(ref, region=REGION, now=NOON)
        ordered = [found.ref for found in store.buckets() if found.ref.name.startswith("order-")]
        assert ordered == [BucketRef(ALICE, "order-b"), BucketRef(BOB, "order-b"), BucketRef(ALICE, "order-c")]
        assert [found.ref for found in store.buckets(name="order-b")] == ordered[:2]
        assert [found.ref for found in store.buckets(account=BOB, name="order-b")] == [ordered[1]]
        assert BucketRef(BOB, "order-b") not in [found.ref for found in store.buckets(account=ALICE)]
        assert store.buckets(name="order-none") == []
        for ref in refs:
            store.delete_bucket(ref)

    def test_tags_of_a_bucket_are_replaced_together(self, store: ObjectStore, bucket: BucketRef) -> None:
        store.tag_bucket(bucket, {"team": "vision", "größe": "1 & 2"})
        assert store.bucket(bucket).tags == {"team": "vision", "größe": "1 & 2"}
        store.tag_bucket(bucket, {"team": "speech"})
        assert store.bucket(bucket).tags == {"team": "speech"}
        store.tag_bucket(bucket, {})
        assert store.bucket(bucket).tags == {}

    def test_a_bucket_with_an_object_is_not_deleted(self, store: ObjectStore, bucket: BucketRef) -> None:
        put(store, Location(bucket, "k"), b"1")
        with pytest.raises(Conflict, match=bucket.name):
            store.delete_bucket(bucket)
        assert body_of(store, Location(bucket, "k")) == b"1"
        store.delete(Location(bucket, "k"))
        store.delete_bucket(bucket)
        with pytest.raises(NotFound):
            store.bucket(bucket)

    def test_uploads_in_progress_are_deleted_with_their_bucket(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        put_part(store, upload, 1, body=b"part")
        store.delete_bucket(bucket)
        store.create_bucket(bucket, region=REGION, now=NOON)
        assert store.uploads(bucket).uploads == []
        with pytest.raises(NotFound) as raised:
            store.parts(upload.where, upload.id)
        assert raised.value.kind == "upload"

    def test_a_bucket_created_again_is_empty_and_untagged(self, store: ObjectStore, bucket: BucketRef) -> None:
        put(store, Location(bucket, "k"), b"1")
        store.tag_bucket(bucket, {"a": "b"})
        store.delete(Location(bucket, "k"))
        store.delete_bucket(bucket)
        made = store.create_bucket(bucket, region="us-west-2", now=minutes(5))
        assert made == Bucket(bucket, "us-west-2", minutes(5))
        assert store.bucket(bucket) == made
        assert keys_of(store, bucket) == []

    def test_everything_in_an_absent_bucket_is_not_found(self, store: ObjectStore) -> None:
        ref = BucketRef(ALICE, "never-made")
        where = Location(ref, "k")
        there = Location(new_bucket(store), "k")
        put(store, there, b"1")
        attempts: list[Callable[[], object]] = [
            lambda: store.bucket(ref),
            lambda: store.delete_bucket(ref),
            lambda: store.tag_bucket(ref, {}),
            lambda: store.writer(where, Attributes()),
            lambda: store.open(where),
            lambda: store.info(where),
            lambda: store.list_objects(ref),
            lambda: store.delete(where),
            lambda: store.delete_many(ref, ["k"]),
            lambda: store.copy(where, there, now=NOON),
            lambda: store.copy(there, where, now=NOON),
            lambda: store.tag_object(where, {}),
            lambda: store.create_upload(where, Attributes(), now=NOON),
            lambda: store.uploads(ref),
        ]
        for attempt in attempts:
            with pytest.raises(NotFound) as raised:
                attempt()
            assert (raised.value.kind, raised.value.name) == ("bucket", "never-made")

    def test_a_bucket_that_is_deleted_while_an_object_is_written_is_not_found(
        self, store: ObjectStore, bucket: BucketRef
    ) -> None:
        writer = store.writer(Location(bucket, "k"), Attributes())
        writer.write(b"1")
        store.delete_bucket(bucket)
        with pytest.raises(NotFound) as raised:
            writer.commit(now=NOON)
        assert raised.value.kind == "bucket"
        writer.abort()
