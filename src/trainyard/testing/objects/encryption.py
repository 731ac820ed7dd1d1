"""An object that asks for encryption reads like any other, in any range and however it was written."""

from collections.abc import Sequence

import pytest

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import (
    Attributes,
    ChecksumAlgorithm,
    CompletedPart,
    NewObject,
    ObjectStore,
    WritesBatches,
)
from trainyard.objects.encryption.headers import ALGORITHM
from trainyard.testing.objects.samples import NOON, PART, body_of, md5, put, put_part

# Around the boundaries of chunks.
SIZES = (0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (256 << 10) + 7)
BODY = bytes(range(256)) * 1025

ALGORITHMS = pytest.mark.parametrize("algorithm", ["AES256", "aws:kms"])


def asking_for(algorithm: str) -> Attributes:
    return Attributes({"content-type": "text/plain", ALGORITHM: algorithm})


class EncryptionContract:
    @ALGORITHMS
    @pytest.mark.parametrize("size", SIZES)
    def test_an_encrypted_object_has_the_bytes_that_were_written(
        self, store: ObjectStore, bucket: BucketRef, algorithm: str, size: int
    ) -> None:
        where = Location(bucket, "k")
        writer = store.writer(where, asking_for(algorithm), algorithms=[ChecksumAlgorithm.CRC32])
        for offset in range(0, size, 50_000):
            writer.write(BODY[offset : min(size, offset + 50_000)])
        written = writer.commit(now=NOON)
        info = store.info(where)
        assert body_of(store, where) == BODY[:size]
        assert (info.size, info.attributes.headers[ALGORITHM]) == (size, algorithm)
        assert written.checksum is not None
        assert written.checksum.value == digest_of(ChecksumAlgorithm.CRC32, [BODY[:size]])

    @ALGORITHMS
    def test_any_range_of_an_encrypted_object_can_be_read(
        self, store: ObjectStore, bucket: BucketRef, algorithm: str
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY, attributes=asking_for(algorithm))
        with store.open(where) as reader:
            for offset, size in [(0, 1), (65535, 2), (65536, 65536), (100, 200_000), (len(BODY) - 3, 50), (0, 1 << 30)]:
                assert reader.read(offset, size) == BODY[offset : offset + size]
            assert reader.read(len(BODY), 10) == b""

    def test_the_etag_of_an_encrypted_body_is_its_md5(self, store: ObjectStore, bucket: BucketRef) -> None:
        written = put(store, Location(bucket, "k"), BODY, attributes=asking_for("AES256"))
        assert written.etag == md5(BODY)

    @ALGORITHMS
    @pytest.mark.parametrize("bodies", [[b"only"], [b"a" * PART, b"", b"tail"], [b"b" * (PART + 5), b"c" * 70_000]])
    def test_an_encrypted_upload_has_the_bytes_of_its_parts(
        self, store: ObjectStore, bucket: BucketRef, algorithm: str, bodies: Sequence[bytes]
    ) -> None:
        where, whole = Location(bucket, "k"), b"".join(bodies)
        upload = store.create_upload(where, asking_for(algorithm), now=NOON)
        parts = [
            CompletedPart(number, put_part(store, upload, number, body=body).etag)
            for number, body in enumerate((body for body in bodies if body), 1)
        ]
        info = store.complete_upload(where, upload.id, parts, now=NOON)
        assert info.attributes.headers[ALGORITHM] == algorithm
        assert body_of(store, where) == whole
        with store.open(where) as reader:
            assert reader.read(PART - 5, 20) == whole[PART - 5 : PART + 15]

    def test_a_copy_is_encrypted_as_it_asks(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "plain")
        put(store, where, BODY)
        for number, asked in enumerate((asking_for("AES256"), asking_for("aws:kms"), Attributes()), 1):
            target = Location(bucket, f"copy-{number}")
            copied = store.copy(where, target, now=NOON, attributes=asked)
            assert copied.attributes.headers.get(ALGORITHM) == asked.headers.get(ALGORITHM)
            assert body_of(store, target) == BODY
            where = target

    def test_a_copy_stays_encrypted_if_it_asks_for_nothing_else(self, store: ObjectStore, bucket: BucketRef) -> None:
        where, target = Location(bucket, "k"), Location(bucket, "copy")
        put(store, where, BODY, attributes=asking_for("aws:kms"))
        store.copy(where, target, now=NOON)
        assert store.delete(where)
        assert store.info(target).attributes.headers[ALGORITHM] == "aws:kms"
        assert body_of(store, target) == BODY

    def test_a_batch_may_be_encrypted_in_part(self, store: ObjectStore, bucket: BucketRef) -> None:
        if not isinstance(store, WritesBatches):
            return
        asked = [Attributes(), asking_for("AES256"), asking_for("aws:kms")]
        new = [NewObject(Location(bucket, str(at)), BODY + bytes([at]), each) for at, each in enumerate(asked)]
        store.put_batch(new, now=NOON)
        assert [body_of(store, each.where) for each in new] == [each.body for each in new]
