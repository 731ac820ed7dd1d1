"""Listings are in the order of UTF-8 bytes, page by page, for any prefix and delimiter."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Listing, ObjectStore
from trainyard.testing.objects.samples import ODD_KEYS, in_threads, keys_of, new_bucket, put

KEYS = st.text("ab/.é%\n ~\x7f\x00\ufffd😀-0", min_size=1, max_size=6)
TEXTS = st.text("ab/.é😀-0~", max_size=4)


@dataclass(frozen=True)
class ListEntry:
    text: str
    is_prefix: bool


class ListContract:
    def test_keys_are_in_the_order_of_their_bytes(self, store: ObjectStore, bucket: BucketRef) -> None:
        in_threads(8, lambda n: [put(store, Location(bucket, key), b"") for key in ODD_KEYS[n::8]])
        assert keys_of(store, bucket) == sorted(ODD_KEYS, key=str.encode)
        assert walk(store, bucket, limit=7) == sorted(ODD_KEYS, key=str.encode)

    def test_an_empty_bucket_has_an_empty_last_page(self, store: ObjectStore, bucket: BucketRef) -> None:
        assert store.list_objects(bucket) == Listing([], [], None)
        assert store.list_objects(bucket, prefix="a", delimiter="/", after="b") == Listing([], [], None)

    def test_common_prefixes_are_listed_once(self, store: ObjectStore, bucket: BucketRef) -> None:
        for key in ["a.txt", "photos/", "photos/2006/jan.jpg", "photos/2006/feb.jpg", "photos/2007/x", "z"]:
            put(store, Location(bucket, key), b"1")
        top = store.list_objects(bucket, delimiter="/")
        assert [found.key for found in top.objects] == ["a.txt", "z"]
        assert list(top.prefixes) == ["photos/"]
        inside = store.list_objects(bucket, prefix="photos/", delimiter="/")
        assert [found.key for found in inside.objects] == ["photos/"]
        assert list(inside.prefixes) == ["photos/2006/", "photos/2007/"]
        assert inside.next_after is None

    def test_a_page_can_end_with_a_common_prefix(self, store: ObjectStore, bucket: BucketRef) -> None:
        for key in ["a", "b/1", "b/2", "c", "d/1"]:
            put(store, Location(bucket, key), b"1")
        page = store.list_objects(bucket, delimiter="/", limit=2)
        assert ([found.key for found in page.objects], list(page.prefixes)) == (["a"], ["b/"])
        assert page.next_after == "b/"
        rest = store.list_objects(bucket, delimiter="/", after="b/")
        assert ([found.key for found in rest.objects], list(rest.prefixes), rest.next_after) == (["c"], ["d/"], None)

    def test_a_page_that_is_exactly_full_is_the_last(self, store: ObjectStore, bucket: BucketRef) -> None:
        for key in ["a", "b", "c"]:
            put(store, Location(bucket, key), b"1")
        assert store.list_objects(bucket, limit=3).next_after is None
        assert store.list_objects(bucket, limit=2).next_after == "b"
        assert store.list_objects(bucket, limit=1, delimiter="/").next_after == "a"

    def test_an_empty_page_is_the_last(self, store: ObjectStore, bucket: BucketRef) -> None:
        put(store, Location(bucket, "a/b"), b"1")
        assert store.list_objects(bucket, limit=0) == Listing([], [], None)
        assert store.list_objects(bucket, limit=0, delimiter="/") == Listing([], [], None)

    def test_a_listing_shows_the_newest_size_and_etag(self, store: ObjectStore, bucket: BucketRef) -> None:
        where = Location(bucket, "k")
        put(store, where, b"first")
        written = put(store, where, b"the second")
        [listed] = store.list_objects(bucket).objects
        assert (listed.size, listed.etag) == (10, written.etag)
        assert listed.checksum in (None, store.info(where).checksum)

    def test_buckets_do_not_mix(self, store: ObjectStore, bucket: BucketRef) -> None:
        others = [new_bucket(store), BucketRef("999999999999", bucket.name)]
        store.create_bucket(others[1], region="r", now=store.bucket(bucket).created_at)
        for number, ref in enumerate([bucket, *others]):
            put(store, Location(ref, f"k{number}"), b"1")
        assert keys_of(store, bucket) == ["k0"]
        assert [keys_of(store, ref) for ref in others] == [["k1"], ["k2"]]

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        keys=st.sets(KEYS, max_size=10),
        prefix=TEXTS,
        delimiter=st.sampled_from(["", "/", "a", "é", "//", "/a", "😀"]),
        after=TEXTS,
        limit=st.integers(1, 12),
    )
    def test_a_page_follows_the_definition(
        self, store: ObjectStore, keys: set[str], prefix: str, delimiter: str, after: str, limit: int
    ) -> None:
        bucket = new_bucket(store)
        for key in keys:
            put(store, Location(bucket, key), b"")
        entries = [entry for entry in expected_entries(keys, prefix, delimiter) if entry.text.encode() > after.encode()]
        page = store.list_objects(bucket, prefix=prefix, delimiter=delimiter, after=after, limit=limit)
        shown = entries[:limit]
        assert [found.key for found in page.objects] == [entry.text for entry in shown if not entry.is_prefix]
        assert list(page.prefixes) == [entry.text for entry in shown if entry.is_prefix]
        assert page.next_after == (shown[-1].text if len(entries) > limit else None)

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        keys=st.sets(KEYS, max_size=10),
        prefix=TEXTS,
        delimiter=st.sampled_from(["", "/", "a", "//"]),
        limit=st.integers(1, 4),
    )
    def test_pages_have_no_gaps_and_no_repetitions(
        self, store: ObjectStore, keys: set[str], prefix: str, delimiter: str, limit: int
    ) -> None:
        bucket = new_bucket(store)
        for key in keys:
            put(store, Location(bucket, key), b"")
        walked = walk(store, bucket, prefix=prefix, delimiter=delimiter, limit=limit)
        assert walked == [entry.text for entry in expected_entries(keys, prefix, delimiter)]


def expected_entries(keys: set[str], prefix: str, delimiter: str) -> list[ListEntry]:
    """Return every entry of a listing, straight from its definition."""
    entries = set()
    for key in keys:
        if key.startswith(prefix):
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            entries.add(ListEntry(key, False) if cut < 0 else ListEntry(key[: cut + len(delimiter)], True))
    return sorted(entries, key=lambda entry: entry.text.encode())


def walk(store: ObjectStore, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", limit: int) -> list[str]:
    lines: list[str] = []
    after = ""
    while True:
        page = store.list_objects(bucket, prefix=prefix, delimiter=delimiter, after=after, limit=limit)
        assert len(page.objects) + len(page.prefixes) <= limit
        lines += sorted([found.key for found in page.objects] + list(page.prefixes), key=str.encode)
        if page.next_after is None:
            return lines
        after = page.next_after
