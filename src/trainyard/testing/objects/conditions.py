"""A conditional write takes effect only if its precondition holds."""

import pytest

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart, ObjectStore, Precondition, PreconditionFailed
from trainyard.testing.objects.samples import NOON, body_of, in_threads, keys_of, md5, put, put_part

ABSENT = Precondition(absent=True)


class ConditionContract:
    def test_a_write_can_require_an_absent_key(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"first", precondition=ABSENT)
        with pytest.raises(PreconditionFailed):
            put(store, where, b"second", precondition=ABSENT)
        assert body_of(store, where) == b"first"
        store.delete(where)
        put(store, where, b"third", precondition=ABSENT)
        assert body_of(store, where) == b"third"

    def test_a_write_can_require_an_etag(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        first = put(store, where, b"first")
        second = put(store, where, b"second", precondition=Precondition(etag=first.etag))
        with pytest.raises(PreconditionFailed):
            put(store, where, b"third", precondition=Precondition(etag=first.etag))
        assert body_of(store, where) == b"second"
        assert store.info(where).etag == second.etag

    def test_an_absent_key_has_no_etag(self, store: ObjectStore, bucket: BucketRef) -> None:
        with pytest.raises(PreconditionFailed):
            put(store, Location(bucket, "k"), b"1", precondition=Precondition(etag=md5(b"")))
        assert keys_of(store, bucket) == []

    def test_a_delete_can_require_an_etag(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        written = put(store, where, b"1")
        with pytest.raises(PreconditionFailed):
            store.delete(where, precondition=Precondition(etag=md5(b"2")))
        assert body_of(store, where) == b"1"
        assert store.delete(where, precondition=Precondition(etag=written.etag))
        with pytest.raises(PreconditionFailed):
            store.delete(where, precondition=Precondition(etag=written.etag))

    def test_a_copy_can_have_a_precondition_on_its_target(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        put(store, source, b"source")
        there = put(store, target, b"target")
        with pytest.raises(PreconditionFailed):
            store.copy(source, target, now=NOON, precondition=ABSENT)
        with pytest.raises(PreconditionFailed):
            store.copy(source, target, now=NOON, precondition=Precondition(etag=md5(b"")))
        assert body_of(store, target) == b"target"
        store.copy(source, target, now=NOON, precondition=Precondition(etag=there.etag))
        assert body_of(store, target) == b"source"
        store.copy(source, Location(bucket, "new"), now=NOON, precondition=ABSENT)
        assert body_of(store, Location(bucket, "new")) == b"source"

    def test_a_completion_can_have_a_precondition_on_its_target(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"there")
        upload = store.create_upload(where, Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"new")
        named = [CompletedPart(1, part.etag)]
        with pytest.raises(PreconditionFailed):
            store.complete_upload(where, upload.id, named, now=NOON, precondition=ABSENT)
        assert body_of(store, where) == b"there"
        assert [each.number for each in store.parts(where, upload.id)] == [1]
        there = Precondition(etag=store.info(where).etag)
        store.complete_upload(where, upload.id, named, now=NOON, precondition=there)
        assert body_of(store, where) == b"new"

    def test_only_one_of_many_conditional_creations_succeeds(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")

        def create(number: int) -> bool:
            try:
                put(store, where, f"writer {number}".encode(), precondition=ABSENT)
            except PreconditionFailed:
                return False
            return True

        won = in_threads(8, create)
        assert sum(won) == 1
        assert body_of(store, where) == f"writer {won.index(True)}".encode()

    def test_no_update_that_requires_the_etag_it_read_is_lost(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "counter")
        put(store, where, b"0")

        def count(_: int) -> None:
            for _turn in range(4):
                while True:
                    with store.open(where) as reader:
                        read = int(reader.read(0, 100))
                        etag = reader.info.etag
                    try:
                        put(store, where, str(read + 1).encode(), precondition=Precondition(etag=etag))
                    except PreconditionFailed:
                        continue
                    break

        in_threads(4, count)
        assert body_of(store, where) == b"16"
