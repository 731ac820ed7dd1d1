"""A copy is an independent object with the bytes of its source at one moment."""

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    CompletedPart,
    ObjectStore,
    Precondition,
    PreconditionFailed,
)
from trainyard.testing.objects.samples import BOB, NOON, PART, body_of, md5, minutes, new_bucket, put, put_part

BODY = b"to be copied" * 100
ATTRIBUTES = Attributes({"content-type": "text/plain"}, {"größe": "1"}, {"t": "v"})


class CopyContract:
    def test_a_copy_has_the_bytes_and_the_attributes_of_its_source(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(new_bucket(store, BOB), "a//target é")
        put(store, source, BODY, attributes=ATTRIBUTES, algorithms=[ChecksumAlgorithm.CRC32C])
        copied = store.copy(source, target, now=minutes(1))
        assert body_of(store, target) == BODY
        assert copied == store.info(target)
        assert copied.where == target
        assert copied.attributes == ATTRIBUTES
        assert copied.checksum == store.info(source).checksum
        assert copied.size == len(BODY)

    def test_a_copy_can_have_other_attributes(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        put(store, source, BODY, attributes=ATTRIBUTES)
        other = Attributes({"content-type": "image/png"}, {}, {"other": "tag"})
        assert store.copy(source, target, now=NOON, attributes=other).attributes == other
        assert store.info(target).attributes == other
        assert store.info(source).attributes == ATTRIBUTES
        assert body_of(store, target) == BODY

    def test_copying_an_object_onto_itself_changes_its_attributes(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY, attributes=ATTRIBUTES)
        store.copy(where, where, now=NOON, attributes=Attributes({}, {"new": "1"}))
        assert store.info(where).attributes == Attributes({}, {"new": "1"})
        assert body_of(store, where) == BODY

    def test_a_copy_can_have_another_checksum(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        put(store, source, BODY, algorithms=[ChecksumAlgorithm.CRC32])
        for algorithm in ChecksumAlgorithm:
            copied = store.copy(source, target, now=NOON, algorithm=algorithm)
            assert copied.checksum == Checksum(algorithm, digest_of(algorithm, [BODY]))
            assert store.info(target).checksum == copied.checksum
        assert body_of(store, target) == BODY

    def test_a_copy_can_have_a_checksum_if_its_source_has_none(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        put(store, source, BODY)
        assert store.copy(source, target, now=NOON).checksum is None
        copied = store.copy(source, target, now=NOON, algorithm=ChecksumAlgorithm.SHA1)
        assert copied.checksum == Checksum(ChecksumAlgorithm.SHA1, digest_of(ChecksumAlgorithm.SHA1, [BODY]))

    def test_a_composite_checksum_becomes_a_full_object_one_in_a_copy_that_requests_one(
        self, store: ObjectStore, bucket: BucketRef
    ) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        upload = store.create_upload(source, ATTRIBUTES, now=NOON, algorithm=ChecksumAlgorithm.SHA256)
        part = put_part(store, upload, 1, body=BODY)
        store.complete_upload(source, upload.id, [CompletedPart(1, part.etag)], now=NOON)
        copied = store.copy(source, target, now=NOON, algorithm=ChecksumAlgorithm.SHA256)
        assert copied.checksum == Checksum(ChecksumAlgorithm.SHA256, digest_of(ChecksumAlgorithm.SHA256, [BODY]))
        assert store.info(target).checksum == copied.checksum

    def test_a_copy_can_require_an_absent_target(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        put(store, source, BODY)
        with pytest.raises(PreconditionFailed):
            store.copy(source, target, now=NOON, precondition=Precondition(etag=md5(b"other")))
        store.copy(source, target, now=NOON, precondition=Precondition(absent=True))
        with pytest.raises(PreconditionFailed):
            store.copy(source, target, now=NOON, precondition=Precondition(absent=True))
        assert body_of(store, target) == BODY

    def test_source_and_copy_are_independent(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target, again = (Location(bucket, key) for key in ("source", "target", "again"))
        put(store, source, BODY)
        store.copy(source, target, now=NOON)
        put(store, source, b"changed")
        assert body_of(store, target) == BODY
        store.copy(target, again, now=NOON)
        store.delete(target)
        assert body_of(store, again) == BODY
        assert body_of(store, source) == b"changed"

    def test_a_copy_can_require_the_etag_of_its_source(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        written = put(store, source, BODY)
        with pytest.raises(PreconditionFailed):
            store.copy(source, target, now=NOON, source_etag=md5(b"other"))
        with pytest.raises(NotFound):
            store.info(target)
        store.copy(source, target, now=NOON, source_etag=written.etag)
        assert body_of(store, target) == BODY

    def test_an_absent_source_is_not_found(self, store: ObjectStore, bucket: BucketRef) -> None:
        with pytest.raises(NotFound) as raised:
            store.copy(Location(bucket, "absent"), Location(bucket, "target"), now=NOON)
        assert (raised.value.kind, raised.value.name) == ("key", "absent")

    def test_an_object_uploaded_in_parts_is_copied_as_a_whole(self, store: ObjectStore, bucket: BucketRef) -> None:
        source, target = Location(bucket, "source"), Location(bucket, "target")
        upload = store.create_upload(source, ATTRIBUTES, now=NOON, algorithm=ChecksumAlgorithm.SHA256)
        bodies = [b"a" * PART, b"end"]
        named = [
            CompletedPart(number, put_part(store, upload, number, body=body).etag)
            for number, body in enumerate(bodies, 1)
        ]
        store.complete_upload(source, upload.id, named, now=NOON)
        copied = store.copy(source, target, now=NOON, algorithm=ChecksumAlgorithm.CRC32)
        assert body_of(store, target) == b"".join(bodies)
        assert copied.checksum == Checksum(ChecksumAlgorithm.CRC32, digest_of(ChecksumAlgorithm.CRC32, bodies))
        assert copied.attributes == ATTRIBUTES
