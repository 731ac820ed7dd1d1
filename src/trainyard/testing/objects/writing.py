"""An object appears on commit, whole and with its attributes, or not at all."""

from base64 import b64encode
from hashlib import md5 as new_md5

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    DigestMismatch,
    ObjectStore,
)
from trainyard.testing.objects.samples import NOON, ODD_KEYS, body_of, keys_of, md5, put

BODY = b"the quick brown fox" * 1000

# Checksums of the text 123456789, from the catalogue of CRC algorithms and RFC 3174 / FIPS 180.
KNOWN = {
    ChecksumAlgorithm.CRC32: "y/Q5Jg==",
    ChecksumAlgorithm.CRC32C: "4waSgw==",
    ChecksumAlgorithm.CRC64NVME: "rosUhgp5mIg=",
    ChecksumAlgorithm.SHA1: "98O8HYCOBHMq32eZZczDTKeuNEE=",
    ChecksumAlgorithm.SHA256: "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
}


class WriteContract:
    def test_an_object_has_the_bytes_that_were_written(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        writer = store.writer(where, Attributes())
        for piece in (b"one ", b"", b"two ", BODY):
            writer.write(piece)
        written = writer.commit(now=NOON)
        assert body_of(store, where) == b"one two " + BODY
        assert written.size == len(BODY) + 8
        assert store.info(where).size == written.size

    def test_an_object_can_be_empty(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        written = store.writer(where, Attributes()).commit(now=NOON)
        assert written.size == 0
        assert written.etag == md5(b"")
        assert body_of(store, where) == b""

    def test_the_etag_of_one_body_is_its_md5(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        written = put(store, where, BODY)
        [listed] = store.list_objects(bucket).objects
        assert written.etag == store.info(where).etag == listed.etag == md5(BODY)

    def test_nothing_is_visible_before_the_commit(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        writer = store.writer(where, Attributes())
        writer.write(BODY)
        with pytest.raises(NotFound):
            store.info(where)
        assert keys_of(store, bucket) == []
        writer.commit(now=NOON)
        assert keys_of(store, bucket) == ["k"]

    def test_an_aborted_write_leaves_the_old_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"old")
        writer = store.writer(where, Attributes())
        writer.write(b"new")
        writer.abort()
        writer.abort()
        assert body_of(store, where) == b"old"

    def test_abort_after_commit_does_nothing(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        writer = store.writer(where, Attributes())
        writer.write(b"kept")
        writer.commit(now=NOON)
        writer.abort()
        assert body_of(store, where) == b"kept"

    def test_a_second_write_replaces_everything(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        first = Attributes({"content-type": "text/plain"}, {"a": "1"}, {"tag": "x"})
        put(store, where, b"a longer body", attributes=first, algorithms=[ChecksumAlgorithm.SHA1])
        put(store, where, b"short")
        info = store.info(where)
        assert body_of(store, where) == b"short"
        assert info.attributes == Attributes()
        assert info.checksum is None
        assert info.size == 5

    def test_attributes_are_returned_unchanged(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        attributes = Attributes(
            headers={
                "content-type": 'text/plain; charset="utf-8"',
                "cache-control": "no-store",
                "content-encoding": "gzip",
                "content-disposition": "attachment; filename=é.txt",
                "content-language": "de",
                "expires": "Thu, 01 Dec 2033 16:00:00 GMT",
                "x-amz-storage-class": "STANDARD_IA",
                "x-amz-server-side-encryption": "AES256",
            },
            metadata={"owner": "Ada", "größe": "日本語", "empty": "", "spaces": "  a  b  "},
            tags={"team": "vision", "key with space": "a/b=c+d"},
        )
        put(store, where, BODY, attributes=attributes)
        assert store.info(where).attributes == attributes
        with store.open(where) as reader:
            assert reader.info.attributes == attributes

    def test_attributes_can_be_as_long_as_s3_allows(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        attributes = Attributes(
            {"content-type": "x" * 1000, "content-disposition": "y" * 1000},
            {f"name{n}": "é" * 90 for n in range(10)},
            {"t" * 120 + str(n): "ü" * 256 for n in range(10)},
        )
        put(store, where, BODY, attributes=attributes)
        assert store.info(where).attributes == attributes
        put(store, where, BODY)
        assert store.info(where).attributes == Attributes()

    @pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: ascii(key)[:24])
    def test_any_text_is_a_key(self, store: ObjectStore, bucket: BucketRef, key: str) -> None:
        where = Location(bucket, key)
        put(store, where, key.encode())
        assert store.info(where).where == where
        assert body_of(store, where) == key.encode()
        assert keys_of(store, bucket) == [key]
        assert store.delete(where)
        assert keys_of(store, bucket) == []

    def test_keys_that_look_alike_are_different(self, store: ObjectStore, bucket: BucketRef) -> None:
        keys = ["a", "A", "a/", "/a", "a//", "./a", "a%2F", "é", "e\u0301"]
        for key in keys:
            put(store, Location(bucket, key), key.encode())
        assert keys_of(store, bucket) == sorted(keys)
        assert [body_of(store, Location(bucket, key)).decode() for key in keys] == keys

    @pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
    def test_checksums_equal_those_of_s3(
        self, store: ObjectStore, bucket: BucketRef, algorithm: ChecksumAlgorithm
    ) -> None:
        where = Location(bucket, "k")
        written = put(store, where, b"123456789", algorithms=[algorithm])
        assert written.checksum == Checksum(algorithm, KNOWN[algorithm])
        assert store.info(where).checksum == written.checksum

    @pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
    def test_a_wrong_checksum_is_refused(
        self, store: ObjectStore, bucket: BucketRef, algorithm: ChecksumAlgorithm
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, b"old")
        writer = store.writer(where, Attributes(), algorithms=[algorithm])
        writer.write(b"12345678X")
        with pytest.raises(DigestMismatch) as raised:
            writer.commit(now=NOON, expected=[Checksum(algorithm, KNOWN[algorithm])])
        assert raised.value.algorithm == algorithm
        writer.abort()
        assert body_of(store, where) == b"old"

    def test_the_first_expected_checksum_is_stored(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        wanted = [ChecksumAlgorithm.SHA256, ChecksumAlgorithm.CRC32]
        writer = store.writer(where, Attributes(), algorithms=[ChecksumAlgorithm.CRC32, ChecksumAlgorithm.SHA256])
        writer.write(BODY)
        written = writer.commit(now=NOON, expected=[Checksum(each, digest_of(each, [BODY])) for each in wanted])
        assert written.checksum == Checksum(ChecksumAlgorithm.SHA256, digest_of(ChecksumAlgorithm.SHA256, [BODY]))
        assert store.info(where).checksum == written.checksum

    def test_each_expected_checksum_is_compared(self, store: ObjectStore, bucket: BucketRef) -> None:
        writer = store.writer(Location(bucket, "k"), Attributes(), algorithms=list(ChecksumAlgorithm)[:2])
        writer.write(b"123456789")
        right = Checksum(ChecksumAlgorithm.CRC32, KNOWN[ChecksumAlgorithm.CRC32])
        with pytest.raises(DigestMismatch):
            writer.commit(now=NOON, expected=[right, Checksum(ChecksumAlgorithm.CRC32C, "AAAAAA==")])
        assert keys_of(store, bucket) == []

    def test_a_checksum_that_was_not_requested_is_also_compared(self, store: ObjectStore, bucket: BucketRef) -> None:
        right = Checksum(ChecksumAlgorithm.CRC32C, KNOWN[ChecksumAlgorithm.CRC32C])
        writer = store.writer(Location(bucket, "k"), Attributes())
        writer.write(b"123456789")
        assert writer.commit(now=NOON, expected=[right]).checksum == right
        writer = store.writer(Location(bucket, "k"), Attributes())
        writer.write(b"12345678X")
        with pytest.raises(DigestMismatch):
            writer.commit(now=NOON, expected=[right])

    def test_a_wrong_md5_is_refused(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        right = b64encode(new_md5(BODY, usedforsecurity=False).digest()).decode()
        writer = store.writer(where, Attributes())
        writer.write(BODY + b"!")
        with pytest.raises(DigestMismatch) as raised:
            writer.commit(now=NOON, md5=right)
        assert raised.value.algorithm == "MD5"
        assert keys_of(store, bucket) == []
        writer = store.writer(where, Attributes())
        writer.write(BODY)
        assert writer.commit(now=NOON, md5=right).checksum is None
        assert body_of(store, where) == BODY

    def test_tags_of_an_object_are_replaced_and_nothing_else(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        attributes = Attributes({"content-type": "text/plain"}, {"a": "b"}, {"old": "tag"})
        put(store, where, BODY, attributes=attributes, algorithms=[ChecksumAlgorithm.SHA1])
        before = store.info(where)
        store.tag_object(where, {"new": "täg"})
        after = store.info(where)
        assert after.attributes == Attributes(attributes.headers, attributes.metadata, {"new": "täg"})
        assert (after.etag, after.size, after.checksum) == (before.etag, before.size, before.checksum)
        assert body_of(store, where) == BODY
        store.tag_object(where, {})
        assert store.info(where).attributes.tags == {}

    def test_tags_need_an_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        with pytest.raises(NotFound) as raised:
            store.tag_object(Location(bucket, "absent"), {"a": "b"})
        assert (raised.value.kind, raised.value.name) == ("key", "absent")

    def test_deleting_returns_whether_there_was_an_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        assert store.delete(where) is True
        assert store.delete(where) is False
        with pytest.raises(NotFound) as raised:
            store.open(where)
        assert (raised.value.kind, raised.value.name) == ("key", "k")

    def test_a_listing_has_the_time_the_checksum_and_the_storage_class_of_an_object(
        self, store: ObjectStore, bucket: BucketRef
    ) -> None:
        where = Location(bucket, "k")
        attributes = Attributes({"x-amz-storage-class": "STANDARD_IA"}, {"x-amz-storage-class": "no"})
        written = put(store, where, BODY, attributes=attributes, algorithms=[ChecksumAlgorithm.SHA1])
        put(store, Location(bucket, "plain"), b"", attributes=Attributes({}, {"x-amz-storage-class": "no"}))
        for delimiter in ("", "/"):
            listed, plain = store.list_objects(bucket, delimiter=delimiter).objects
            assert listed.modified_at == store.info(where).modified_at
            assert listed.checksum in (None, written.checksum)
            assert listed.storage_class in (None, "STANDARD_IA")
            assert (plain.checksum, plain.storage_class) == (None, None)

    def test_many_keys_are_deleted_at_once(self, store: ObjectStore, bucket: BucketRef) -> None:
        keys = ["a", "a/", "a//b", "b", "é", "nul\x00", "keep"]
        for key in keys:
            put(store, Location(bucket, key), b"1")
        store.delete_many(bucket, ["absent", *keys[:-1], "a"])
        assert keys_of(store, bucket) == ["keep"]
        store.delete_many(bucket, [])
        assert keys_of(store, bucket) == ["keep"]
