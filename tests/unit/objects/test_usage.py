"""The usage of accounts is counted with every write, and limited."""

import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart, NewObject, StorageFull
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.index_usage import OVERHEAD_BYTES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANNA, BEN = "111111111111", "222222222222"
HERS, HIS = BucketRef(ANNA, "hers"), BucketRef(BEN, "his")
MIB = 1 << 20
EACH = OVERHEAD_BYTES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        for bucket in (HERS, HIS):
            opened.create_bucket(bucket, region="here", now=NOW)
        yield opened


def put(store: FilesystemObjects, key: str, size: int, *, bucket: BucketRef = HERS) -> None:
    writer = store.writer(Location(bucket, key), Attributes())
    try:
        writer.write(b"x" * size)
        writer.commit(now=NOW)
    finally:
        writer.abort()


def put_part(store: FilesystemObjects, key: str, upload: str, *, number: int, size: int) -> CompletedPart:
    writer = store.part_writer(Location(HERS, key), upload, number)
    writer.write(b"x" * size)
    return CompletedPart(number, writer.commit(now=NOW).etag)


def recounted(store: FilesystemObjects) -> dict[str, int]:
    """Return the usage counted from all rows."""
    with closing(sqlite3.connect(Path(store.files_folder).parent / "index.sqlite")) as database:
        rows = database.execute(
            f"SELECT account, sum(size + {OVERHEAD_BYTES}) FROM (SELECT bucket, size FROM object UNION ALL "
            "SELECT bucket, size FROM part JOIN upload ON id = upload) JOIN bucket ON bucket.id = bucket GROUP BY 1"
        ).fetchall()
    return dict(rows)


def used(store: FilesystemObjects) -> dict[str, int]:
    return {account: size for account, size in store.usage().items() if size}


def test_writes_overwrites_copies_and_deletes_move_the_count(store: FilesystemObjects) -> None:
    put(store, "a", 1000)
    put(store, "b", 10, bucket=HIS)
    assert used(store) == {ANNA: 1000 + EACH, BEN: 10 + EACH}
    put(store, "a", 400)
    store.copy(Location(HERS, "a"), Location(HERS, "c"), now=NOW)
    store.put_batch([NewObject(Location(HERS, "d"), b"12345", Attributes())], now=NOW)
    assert used(store)[ANNA] == 400 + 400 + 5 + 3 * EACH
    store.delete(Location(HERS, "a"))
    store.delete(Location(HERS, "a"))
    store.delete_many(HERS, ["c", "d", "none"])
    assert used(store) == {BEN: 10 + EACH}


def test_parts_count_until_they_are_joined_or_given_up(store: FilesystemObjects) -> None:
    where = Location(HERS, "big")
    first = store.create_upload(where, Attributes(), now=NOW).id
    parts = [put_part(store, "big", first, number=1, size=5 * MIB), put_part(store, "big", first, number=2, size=7)]
    parts[1] = put_part(store, "big", first, number=2, size=9)
    put_part(store, "big", first, number=3, size=100)  # not completed
    assert used(store) == {ANNA: 5 * MIB + 9 + 100 + 3 * EACH}
    store.complete_upload(where, first, parts, now=NOW)
    assert used(store) == {ANNA: 5 * MIB + 9 + EACH}
    second = store.create_upload(where, Attributes(), now=NOW).id
    put_part(store, "big", second, number=1, size=50)
    store.abort_upload(where, second)
    assert used(store) == {ANNA: 5 * MIB + 9 + EACH}


def test_deleting_a_bucket_subtracts_the_parts_of_its_uploads(store: FilesystemObjects) -> None:
    upload = store.create_upload(Location(HERS, "big"), Attributes(), now=NOW).id
    put_part(store, "big", upload, number=1, size=50)
    store.delete_bucket(HERS)
    assert used(store) == {}


def test_the_usage_equals_a_full_count_after_any_operations(store: FilesystemObjects) -> None:
    chance = random.Random(7)
    uploads: list[tuple[str, str]] = []
    for _ in range(300):
        key = f"k{chance.randrange(12)}"
        match chance.randrange(7):
            case 0 | 1:
                put(store, key, chance.randrange(5000), bucket=chance.choice((HERS, HIS)))
            case 2:
                store.delete(Location(chance.choice((HERS, HIS)), key))
            case 3:
                uploads.append((key, store.create_upload(Location(HERS, key), Attributes(), now=NOW).id))
            case 4 if uploads:
                name, upload = chance.choice(uploads)
                put_part(store, name, upload, number=chance.randrange(1, 4), size=chance.randrange(5000))
            case 5 if uploads:
                name, upload = uploads.pop(chance.randrange(len(uploads)))
                found = store.parts(Location(HERS, name), upload)[-1:]
                if found and chance.random() < 0.5:
                    named = [CompletedPart(part.number, part.etag) for part in found]
                    store.complete_upload(Location(HERS, name), upload, named, now=NOW)
                else:
                    store.abort_upload(Location(HERS, name), upload)
            case _:
                store.delete_many(HERS, [key, f"{key}x"])
    assert used(store) == recounted(store)


def test_an_older_store_is_counted_once_and_older_releases_can_still_use_it(tmp_path: Path) -> None:
    with closing(FilesystemObjects(tmp_path)) as store:
        store.create_bucket(HERS, region="here", now=NOW)
        put(store, "a", 1000)
        upload = store.create_upload(Location(HERS, "b"), Attributes(), now=NOW).id
        put_part(store, "b", upload, number=1, size=7)
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%usage'").fetchall():
            kind = "TABLE" if name == "usage" else "TRIGGER"
            database.execute(f"DROP {kind} IF EXISTS {name}")
        database.execute("DROP TABLE storage_limit")
        database.execute("DROP INDEX upload_by_id")
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
    with closing(FilesystemObjects(tmp_path)) as store:
        assert used(store) == {ANNA: 1000 + 7 + 2 * EACH}
        with closing(sqlite3.connect(tmp_path / "index.sqlite")) as old:
            old.execute("DELETE FROM object")
            old.commit()
        assert used(store) == {ANNA: 7 + EACH}


def test_an_account_cannot_exceed_its_limit_and_others_are_unaffected(store: FilesystemObjects) -> None:
    store.set_limit(ANNA, 10_000 + EACH)
    put(store, "a", 10_000)
    put(store, "b", 20_000, bucket=HIS)
    with pytest.raises(StorageFull, match=f"uses {10_000 + EACH} of {10_000 + EACH} bytes in this yard"):
        put(store, "c", 0)
    with pytest.raises(StorageFull):
        store.copy(Location(HERS, "a"), Location(HERS, "c"), now=NOW)
    (refused,) = store.put_batch([NewObject(Location(HERS, "c"), b"1", Attributes())], now=NOW)
    assert isinstance(refused, StorageFull)
    upload = store.create_upload(Location(HERS, "c"), Attributes(), now=NOW).id
    with pytest.raises(StorageFull):
        put_part(store, "c", upload, number=1, size=1)
    put(store, "a", 9_000)
    store.delete(Location(HERS, "a"))
    put(store, "c", 10_000)
    store.set_limit(ANNA, None)
    put(store, "d", 10_000)


def test_the_limit_of_everyone_holds_for_each_without_one_of_its_own(store: FilesystemObjects) -> None:
    store.set_limit("*", 5000)
    store.set_limit(ANNA, 100_000)
    put(store, "a", 50_000)
    with pytest.raises(StorageFull):
        put(store, "b", 5000, bucket=HIS)
    put(store, "b", 5000 - EACH, bucket=HIS)
    assert store.limits() == {"*": 5000, ANNA: 100_000}


def test_parts_at_the_limit_can_be_joined(store: FilesystemObjects) -> None:
    where = Location(HERS, "big")
    upload = store.create_upload(where, Attributes(), now=NOW).id
    part = put_part(store, "big", upload, number=1, size=5000)
    store.set_limit(ANNA, used(store)[ANNA])
    store.complete_upload(where, upload, [part], now=NOW)
    assert store.info(where).size == 5000


def test_concurrent_writes_stay_within_the_limit_while_their_bytes_arrive(store: FilesystemObjects) -> None:
    store.set_limit(ANNA, 3 * MIB)
    writers = [store.writer(Location(HERS, f"k{number}"), Attributes()) for number in range(10)]
    taken = 0
    for writer in writers:
        try:
            writer.write(b"x" * MIB)
            taken += 1
        except StorageFull:
            pass
    assert taken == 3
    for writer in writers:
        writer.abort()
    put(store, "after", 2 * MIB)  # aborted bytes no longer count


def test_many_threads_get_no_further_than_the_limit(store: FilesystemObjects) -> None:
    store.set_limit(ANNA, 20 * (1000 + EACH))

    def attempt(number: int) -> bool:
        try:
            put(store, f"k{number}", 1000)
        except StorageFull:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(attempt, range(60)))
    assert 0 < sum(done) <= 20
    assert used(store)[ANNA] == sum(done) * (1000 + EACH)


def test_a_body_that_is_too_large_is_refused_before_it_comes(store: FilesystemObjects) -> None:
    store.set_limit(ANNA, 10_000)
    with pytest.raises(StorageFull):
        store.require_space(Location(HERS, "a"), 20_000)
    put(store, "a", 5000)
    store.require_space(Location(HERS, "a"), 5500)  # replaces the object
    with pytest.raises(Unavailable, match="are kept for the yard's own records"):
        store.require_space(Location(HIS, "a"), 1 << 60)
