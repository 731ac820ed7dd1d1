"""Threads that write, read and delete the same key see only whole objects."""

import pytest

from trainyard.foundation.errors import AlreadyExists, Conflict, NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart, ObjectStore
from trainyard.testing.objects.samples import (
    ALICE,
    NOON,
    REGION,
    body_of,
    in_threads,
    keys_of,
    md5,
    put,
    put_part,
)

THREADS = 8
ROUNDS = 6


class ConcurrencyContract:
    def test_readers_see_one_of_the_bodies_written(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        bodies = [bytes([65 + number]) * (3000 + number) for number in range(THREADS)]
        put(store, where, bodies[0])

        def work(number: int) -> None:
            for _ in range(ROUNDS):
                put(store, where, bodies[number])
                with store.open(where) as reader:
                    body = reader.read(0, reader.info.size)
                    assert body in bodies
                    assert reader.info.etag == md5(body)

        in_threads(THREADS, work)
        assert body_of(store, where) in bodies
        assert store.info(where).etag == md5(body_of(store, where))

    def test_every_acknowledged_key_is_there(self, store: ObjectStore, bucket: BucketRef) -> None:
        def work(number: int) -> None:
            for turn in range(ROUNDS):
                put(store, Location(bucket, f"{number}/{turn}"), f"{number} {turn}".encode())

        in_threads(THREADS, work)
        expected = {f"{number}/{turn}": f"{number} {turn}" for number in range(THREADS) for turn in range(ROUNDS)}
        assert keys_of(store, bucket) == sorted(expected)
        assert {key: body_of(store, Location(bucket, key)).decode() for key in expected} == expected

    def test_a_key_that_is_written_and_deleted_repeatedly_is_whole_or_absent(
        self, store: ObjectStore, bucket: BucketRef
    ) -> None:
        where = Location(bucket, "k")
        body = b"whole" * 2000

        def look() -> bytes | str:
            try:
                return body_of(store, where)
            except NotFound as error:
                return error.kind

        def work(number: int) -> None:
            for _ in range(ROUNDS):
                if number % 2:
                    put(store, where, body)
                    store.delete(where)
                else:
                    assert look() in (body, "key")

        in_threads(THREADS, work)
        assert keys_of(store, bucket) == []

    def test_only_one_of_many_deletes_reports_an_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"1")
        assert sum(in_threads(THREADS, lambda _: store.delete(where))) == 1

    def test_only_one_of_many_bucket_creations_succeeds(self, store: ObjectStore) -> None:
        ref = BucketRef(ALICE, "raced-for")

        def make(_: int) -> bool:
            try:
                store.create_bucket(ref, region=REGION, now=NOON)
            except AlreadyExists:
                return False
            return True

        assert sum(in_threads(THREADS, make)) == 1
        store.delete_bucket(ref)

    def test_only_one_of_many_completions_succeeds(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        part = put_part(store, upload, 1, body=b"once")

        def complete(_: int) -> str:
            try:
                store.complete_upload(upload.where, upload.id, [CompletedPart(1, part.etag)], now=NOON)
            except NotFound as error:
                return f"no {error.kind}"
            return "completed"

        assert sorted(in_threads(THREADS, complete)) == ["completed", *["no upload"] * (THREADS - 1)]
        assert body_of(store, upload.where) == b"once"

    def test_parts_can_be_uploaded_concurrently(self, store: ObjectStore, bucket: BucketRef) -> None:
        upload = store.create_upload(Location(bucket, "k"), Attributes(), now=NOON)
        etags = in_threads(THREADS, lambda n: put_part(store, upload, n + 1, body=b"%d" % n).etag)
        listed = store.parts(upload.where, upload.id)
        assert [(part.number, part.etag) for part in listed] == list(enumerate(etags, 1))

    def test_a_bucket_is_never_deleted_while_it_gets_an_object(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")

        def work(number: int) -> str:
            try:
                if number % 2:
                    put(store, where, b"1")
                    return "put"
                store.delete_bucket(bucket)
            except NotFound:
                return "no bucket"
            except Conflict:
                return "not empty"
            return "deleted"

        outcomes = in_threads(THREADS, work)
        if "deleted" in outcomes:
            assert "put" not in outcomes
            with pytest.raises(NotFound):
                store.bucket(bucket)
        else:
            assert body_of(store, where) == b"1"
