"""An upload collects parts in any order; completing it creates the object or changes nothing."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    CompletedPart,
    DigestMismatch,
    InvalidPart,
    ObjectPart,
    ObjectStore,
    PartTooSmall,
    Upload,
)
from trainyard.testing.objects.samples import NOON, PART, body_of, keys_of, md5, minutes, put, put_part

SAID = Attributes({"content-type": "application/x-tar"}, {"größe": "1"}, {"t": "v"})
CRCS = [ChecksumAlgorithm.CRC32, ChecksumAlgorithm.CRC32C, ChecksumAlgorithm.CRC64NVME]


class UploadContract:
    def test_parts_are_joined_in_the_order_of_their_numbers(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "a//big é")
        upload = store.create_upload(where, SAID, now=NOON)
        bodies = {7: b"7" * (PART + 3), 2: b"2" * PART, 10_000: b"last"}
        etags = {number: put_part(store, upload, number, body=body).etag for number, body in bodies.items()}
        info = store.complete_upload(where, upload.id, completed_parts(etags), now=minutes(1))
        assert body_of(store, where) == bodies[2] + bodies[7] + bodies[10_000]
        assert info == store.info(where)
        assert info.attributes == SAID
        assert [(part.number, part.size, part.etag) for part in info.parts] == [
            (number, len(bodies[number]), etags[number]) for number in sorted(bodies)
        ]
        [listed] = store.list_objects(bucket).objects
        assert (listed.key, listed.size, listed.etag) == (where.key, info.size, info.etag)

    def test_an_upload_of_one_short_part_is_an_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 5, body=b"short")
        store.complete_upload(upload.where, upload.id, [CompletedPart(5, part.etag)], now=NOON)
        assert body_of(store, upload.where) == b"short"

    def test_the_last_part_can_be_empty(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        etags = {1: put_part(store, upload, 1, body=b"x" * PART).etag, 2: put_part(store, upload, 2, body=b"").etag}
        store.complete_upload(upload.where, upload.id, completed_parts(etags), now=NOON)
        assert store.info(upload.where).size == PART

    def test_nothing_is_visible_before_completion(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"old")
        upload = store.create_upload(where, Attributes(), now=NOON)
        put_part(store, upload, 1, body=b"new")
        assert body_of(store, where) == b"old"
        assert keys_of(store, bucket) == ["k"]

    def test_only_the_named_parts_are_joined(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        etags = {number: put_part(store, upload, number, body=f"part {number}".encode()).etag for number in (1, 2, 3)}
        store.complete_upload(upload.where, upload.id, [CompletedPart(2, etags[2])], now=NOON)
        assert body_of(store, upload.where) == b"part 2"

    def test_a_later_part_of_the_same_number_replaces_a_part(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        old = put_part(store, upload, 1, body=b"old part")
        new = put_part(store, upload, 1, body=b"new")
        assert store.parts(upload.where, upload.id) == [ObjectPart(1, 3, md5(b"new"), NOON)]
        with pytest.raises(InvalidPart):
            store.complete_upload(upload.where, upload.id, [CompletedPart(1, old.etag)], now=NOON)
        store.complete_upload(upload.where, upload.id, [CompletedPart(1, new.etag)], now=NOON)
        assert body_of(store, upload.where) == b"new"

    def test_an_aborted_part_keeps_the_one_before(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"kept")
        writer = store.part_writer(upload.where, upload.id, 1)
        writer.write(b"dropped")
        writer.abort()
        assert [each.etag for each in store.parts(upload.where, upload.id)] == [part.etag]

    def test_parts_are_listed_by_number_page_by_page(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        for number in (12, 3, 10_000, 1, 200):
            put_part(store, upload, number, body=str(number).encode())
        assert numbers(store, upload) == [1, 3, 12, 200, 10_000]
        first = store.parts(upload.where, upload.id, limit=2)
        assert [part.number for part in first] == [1, 3]
        rest = store.parts(upload.where, upload.id, after=3, limit=2)
        assert [(part.number, part.size) for part in rest] == [(12, 2), (200, 3)]
        assert store.parts(upload.where, upload.id, after=10_000) == []

    def test_a_failed_completion_leaves_the_upload_unchanged(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        etags = {number: put_part(store, upload, number, body=b"small").etag for number in (1, 2)}
        refused: list[tuple[type[Exception], list[CompletedPart]]] = [
            (InvalidPart, []),
            (InvalidPart, [CompletedPart(3, etags[1])]),
            (InvalidPart, [CompletedPart(1, md5(b"other"))]),
            (InvalidPart, [CompletedPart(2, etags[2]), CompletedPart(1, etags[1])]),
            (InvalidPart, [CompletedPart(1, etags[1]), CompletedPart(1, etags[1])]),
            (PartTooSmall, completed_parts(etags)),
        ]
        for error, parts in refused:
            with pytest.raises(error):
                store.complete_upload(upload.where, upload.id, parts, now=NOON)
            assert numbers(store, upload) == [1, 2]
        assert keys_of(store, bucket) == []
        store.complete_upload(upload.where, upload.id, [CompletedPart(2, etags[2])], now=NOON)

    def test_every_part_but_the_last_needs_five_mebibytes(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        etags = {
            1: put_part(store, upload, 1, body=b"x" * (PART - 1)).etag,
            2: put_part(store, upload, 2, body=b"").etag,
        }
        with pytest.raises(PartTooSmall):
            store.complete_upload(upload.where, upload.id, completed_parts(etags), now=NOON)
        etags[1] = put_part(store, upload, 1, body=b"x" * PART).etag
        assert store.complete_upload(upload.where, upload.id, completed_parts(etags), now=NOON).size == PART

    def test_a_completed_upload_is_gone(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"x")
        store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
        assert_gone(store, upload)
        assert store.uploads(bucket).uploads == []

    def test_an_aborted_upload_is_gone(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        put_part(store, upload, 1, body=b"x")
        store.abort_upload(upload.where, upload.id)
        assert_gone(store, upload)
        assert keys_of(store, bucket) == []

    def test_a_part_that_ends_after_the_abort_is_not_found(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        writer = store.part_writer(upload.where, upload.id, 1)
        writer.write(b"late")
        store.abort_upload(upload.where, upload.id)
        with pytest.raises(NotFound) as raised:
            writer.commit(now=NOON)
        assert raised.value.kind == "upload"
        writer.abort()

    def test_an_upload_belongs_to_its_key(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        for key, upload_id in [("other", upload.id), ("k", "0" * len(upload.id)), ("k", "../../k"), ("k", "é")]:
            with pytest.raises(NotFound) as raised:
                store.upload(Location(bucket, key), upload_id)
            assert (raised.value.kind, raised.value.name) == ("upload", upload_id)
        assert store.upload(upload.where, upload.id) == upload

    def test_an_upload_keeps_its_attributes_and_checksum_settings(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        upload = store.create_upload(where, SAID, now=NOON, algorithm=ChecksumAlgorithm.CRC32)
        assert upload == Upload(upload.id, where, NOON, SAID, ChecksumAlgorithm.CRC32, ChecksumType.COMPOSITE)
        assert store.upload(where, upload.id) == upload
        assert list(store.uploads(bucket).uploads) == [upload]

    def test_uploads_are_ordered_by_key_then_by_start(self, store: ObjectStore, bucket: BucketRef) -> None:
        begun = [
            store.create_upload(Location(bucket, key), Attributes(), now=minutes(minute))
            for key, minute in [("b", 3), ("a!", 1), ("b", 2), ("a", 9), ("é", 0), ("a/x", 4)]
        ]
        ordered = sorted(begun, key=lambda upload: (upload.where.key.encode(), upload.started_at))
        assert list(store.uploads(bucket).uploads) == ordered
        assert walk(store, bucket, limit=1) == ordered
        assert walk(store, bucket, limit=4) == ordered
        assert [each.where.key for each in store.uploads(bucket, after_key="a/x").uploads] == ["b", "b", "é"]

    def test_uploads_are_rolled_up_like_objects(self, store: ObjectStore, bucket: BucketRef) -> None:
        for key in ["a", "b/1", "b/2", "b/2", "c/1", "d"]:
            store.create_upload(Location(bucket, key), Attributes(), now=NOON)
        page = store.uploads(bucket, delimiter="/")
        assert [each.where.key for each in page.uploads] == ["a", "d"]
        assert list(page.prefixes) == ["b/", "c/"]
        inside = store.uploads(bucket, prefix="b/", delimiter="/")
        assert [each.where.key for each in inside.uploads] == ["b/1", "b/2", "b/2"]
        first = store.uploads(bucket, delimiter="/", limit=2)
        assert (list(first.prefixes), first.next_key) == (["b/"], "b/")
        rest = store.uploads(
            bucket, delimiter="/", after_key=first.next_key or "", after_upload_id=first.next_upload_id or ""
        )
        assert ([each.where.key for each in rest.uploads], list(rest.prefixes)) == (["d"], ["c/"])
        assert (rest.next_key, rest.next_upload_id) == (None, None)

    @pytest.mark.parametrize("algorithm", CRCS)
    def test_a_full_object_checksum_equals_that_of_one_body(
        self, store: ObjectStore, bucket: BucketRef, algorithm: ChecksumAlgorithm
    ) -> None:
        where = Location(bucket, "k")
        upload = store.create_upload(
            where, Attributes(), now=NOON, algorithm=algorithm, checksum_type=ChecksumType.FULL_OBJECT
        )
        bodies = [b"a" * PART, b"the end"]
        etags = {
            number: put_part(store, upload, number, body=body, algorithms=[algorithm]).etag
            for number, body in enumerate(bodies, 1)
        }
        whole = Checksum(algorithm, digest_of(algorithm, bodies))
        wrong = Checksum(algorithm, digest_of(algorithm, [b"wrong"]))
        with pytest.raises(DigestMismatch):
            store.complete_upload(where, upload.id, completed_parts(etags), now=NOON, expected=wrong)
        info = store.complete_upload(where, upload.id, completed_parts(etags), now=NOON, expected=whole)
        assert info.checksum == whole
        assert store.info(where).checksum == whole

    def test_a_composite_checksum_is_that_of_the_parts(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        upload = store.create_upload(where, Attributes(), now=NOON, algorithm=ChecksumAlgorithm.SHA256)
        bodies = [b"a" * PART, b"the end"]
        parts = [put_part(store, upload, number, body=body) for number, body in enumerate(bodies, 1)]
        etags = {number: part.etag for number, part in enumerate(parts, 1)}
        digests = [sha256(body).digest() for body in bodies]
        assert [part.checksum.value for part in parts if part.checksum] == [
            b64encode(each).decode() for each in digests
        ]
        whole = b64encode(sha256(b"".join(digests)).digest()).decode() + "-2"
        info = store.complete_upload(where, upload.id, completed_parts(etags), now=NOON)
        assert info.checksum == Checksum(ChecksumAlgorithm.SHA256, whole, ChecksumType.COMPOSITE)
        assert [b64decode(part.checksum.value) for part in info.parts if part.checksum] == digests

    def test_a_checksum_sent_only_on_completion_is_compared(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        bodies = [b"a" * PART, b"the end"]
        etags = {number: put_part(store, upload, number, body=body).etag for number, body in enumerate(bodies, 1)}
        wrong = Checksum(ChecksumAlgorithm.CRC64NVME, "AAAAAAAAAAA=")
        with pytest.raises(DigestMismatch):
            store.complete_upload(upload.where, upload.id, completed_parts(etags), now=NOON, expected=wrong)
        right = Checksum(ChecksumAlgorithm.CRC64NVME, digest_of(ChecksumAlgorithm.CRC64NVME, bodies))
        info = store.complete_upload(upload.where, upload.id, completed_parts(etags), now=NOON, expected=right)
        assert info.checksum == right

    def test_a_part_is_compared_with_its_announced_checksum(self, store: ObjectStore, bucket: BucketRef) -> None:
        algorithm = ChecksumAlgorithm.CRC32C
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON, algorithm=algorithm)
        writer = store.part_writer(upload.where, upload.id, 1, algorithms=[algorithm])
        writer.write(b"123456789")
        with pytest.raises(DigestMismatch):
            writer.commit(now=NOON, expected=[Checksum(algorithm, "AAAAAA==")])
        assert store.parts(upload.where, upload.id) == []
        part = put_part(store, upload, 1, body=b"123456789", algorithms=[algorithm])
        assert part.checksum == Checksum(algorithm, "4waSgw==")
        wrong = [CompletedPart(1, part.etag, "AAAAAA==")]
        with pytest.raises(InvalidPart):
            store.complete_upload(upload.where, upload.id, wrong, now=NOON)
        store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag, "4waSgw==")], now=NOON)

    @pytest.mark.parametrize(
        ("algorithm", "kind"),
        [
            (ChecksumAlgorithm.SHA1, ChecksumType.FULL_OBJECT),
            (ChecksumAlgorithm.SHA256, ChecksumType.FULL_OBJECT),
            (ChecksumAlgorithm.CRC64NVME, ChecksumType.COMPOSITE),
        ],
    )
    def test_an_unsupported_checksum_type_is_refused(
        self, store: ObjectStore, bucket: BucketRef, algorithm: ChecksumAlgorithm, kind: ChecksumType
    ) -> None:
        with pytest.raises(InvalidRequest, match=algorithm):
            store.create_upload(Location(bucket, "k"), Attributes(), now=NOON, algorithm=algorithm, checksum_type=kind)
        assert store.uploads(bucket).uploads == []


def completed_parts(etags: dict[int, str]) -> list[CompletedPart]:
    return [CompletedPart(number, etags[number]) for number in sorted(etags)]


def numbers(store: ObjectStore, upload: Upload) -> list[int]:
    return [part.number for part in store.parts(upload.where, upload.id)]


def assert_gone(store: ObjectStore, upload: Upload) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: store.upload(upload.where, upload.id),
        lambda: store.parts(upload.where, upload.id),
        lambda: store.part_writer(upload.where, upload.id, 2),
        lambda: store.complete_upload(upload.where, upload.id, [CompletedPart(1, md5(b"x"))], now=NOON),
        lambda: store.abort_upload(upload.where, upload.id),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound) as raised:
            attempt()
        assert (raised.value.kind, raised.value.name) == ("upload", upload.id)


def walk(store: ObjectStore, bucket: BucketRef, *, limit: int) -> Sequence[Upload]:
    found: list[Upload] = []
    key, upload_id = "", ""
    while True:
        page = store.uploads(bucket, after_key=key, after_upload_id=upload_id, limit=limit)
        assert len(page.uploads) <= limit
        found += page.uploads
        if page.next_key is None:
            return found
        key, upload_id = page.next_key, page.next_upload_id or ""
