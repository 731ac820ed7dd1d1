"""A reader sees one version of an object, even if the key changes meanwhile."""

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectStore
from trainyard.testing.objects.samples import body_of, put

BODY = bytes(range(256)) * 80
LONG = bytes(range(251)) * 20_000  # about 5 MB


class ReadContract:
    @pytest.mark.parametrize(
        ("offset", "size"),
        [(0, 10), (10, 300), (0, len(BODY)), (len(BODY) - 1, 1), (5, 0), (0, 0)],
    )
    def test_a_range_has_exactly_its_bytes(self, store: ObjectStore, bucket: BucketRef, offset: int, size: int) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        with store.open(where) as reader:
            assert reader.read(offset, size) == BODY[offset : offset + size]

    @pytest.mark.parametrize(("offset", "size"), [(len(BODY) - 5, 100), (len(BODY), 1), (len(BODY) + 7, 9), (0, 10**9)])
    def test_a_range_beyond_the_end_is_shorter(
        self, store: ObjectStore, bucket: BucketRef, offset: int, size: int
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        with store.open(where) as reader:
            assert reader.read(offset, size) == BODY[offset : offset + size]

    def test_an_empty_object_has_no_bytes_anywhere(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"")
        with store.open(where) as reader:
            assert reader.info.size == 0
            assert reader.read(0, 10) == b""
            assert reader.read(3, 10) == b""

    def test_a_long_object_can_be_read_in_any_order(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, LONG)
        with store.open(where) as reader:
            step = 300_000
            forwards = b"".join(reader.read(offset, step) for offset in range(0, len(LONG), step))
            assert forwards == LONG
            assert reader.read(len(LONG) - 9, 100) == LONG[-9:]
            assert reader.read(4_000_000, 10) == LONG[4_000_000:4_000_010]
            assert reader.read(1, 3_000_000) == LONG[1:3_000_001]
            assert reader.read(0, len(LONG)) == LONG

    def test_a_reader_keeps_its_version_when_the_object_is_replaced(
        self, store: ObjectStore, bucket: BucketRef
    ) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        with store.open(where) as reader:
            put(store, where, b"new")
            assert reader.read(0, len(BODY)) == BODY
            assert reader.info.size == len(BODY)
        assert body_of(store, where) == b"new"

    def test_a_reader_keeps_its_version_when_the_object_is_deleted(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        with store.open(where) as reader:
            first = reader.read(0, 100)
            store.delete(where)
            store.delete_bucket(bucket)
            assert first + reader.read(100, len(BODY)) == BODY

    def test_a_reader_has_the_info_of_its_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, BODY)
        with store.open(where) as reader:
            assert reader.info == store.info(where)
        [listed] = store.list_objects(bucket).objects
        assert listed.modified_at == reader.info.modified_at
        assert (listed.key, listed.size, listed.etag) == ("k", len(BODY), reader.info.etag)

    def test_an_absent_key_is_not_found(self, store: ObjectStore, bucket: BucketRef) -> None:
        put(store, Location(bucket, "there"), b"1")
        for look in (store.open, store.info):
            with pytest.raises(NotFound) as raised:
                look(Location(bucket, "ther"))
            assert (raised.value.kind, raised.value.name) == ("key", "ther")
