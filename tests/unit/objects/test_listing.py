from bisect import bisect_left
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, Listing, ObjectSummary, Upload, UploadPage
from trainyard.objects.listing import first_key, key_beyond, object_page, roll_up, upload_page
from trainyard.testing.objects.samples import ALICE, NOON

TEXTS = st.text("ab/é😀\x00", max_size=5)


class Sorted:
    """Sorted keys that count seeks and rows."""

    def __init__(self, keys: set[str]) -> None:
        self.keys = sorted(key.encode() for key in keys)
        self.seeks = 0
        self.rows = 0

    def seek(self, start: bytes) -> Iterator[tuple[bytes, str]]:
        self.seeks += 1
        for key in self.keys[bisect_left(self.keys, start) :]:
            self.rows += 1
            yield key, key.decode()


@given(prefix=st.text(min_size=1, max_size=4), rest=st.text(max_size=4), other=st.text(max_size=6))
def test_the_least_key_beyond_a_prefix_parts_the_keys(prefix: str, rest: str, other: str) -> None:
    edge = key_beyond(prefix.encode())
    assert (prefix + rest).encode() < edge
    assert (other.encode() >= edge) == (other > prefix and not other.startswith(prefix))


@given(keys=st.sets(TEXTS.filter(bool)), prefix=TEXTS, delimiter=st.sampled_from(["", "/", "//", "é"]), after=TEXTS)
def test_rolling_up_lists_each_entry_after_the_start_once(
    keys: set[str], prefix: str, delimiter: str, after: str
) -> None:
    expected = set()
    for key in keys:
        if key.startswith(prefix):
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            expected.add((key, key) if cut < 0 else (key[: cut + len(delimiter)], None))
    start = first_key(prefix.encode(), delimiter.encode(), after=after.encode())
    rolled = roll_up(Sorted(keys).seek, prefix=prefix.encode(), delimiter=delimiter.encode(), start=start)
    found = [(key.decode(), row) for key, row in rolled]
    assert found == sorted((line for line in expected if line[0] > after), key=lambda line: line[0])


def test_a_common_prefix_is_leapt_over() -> None:
    keys = Sorted({f"{folder}/{number}" for folder in "abc" for number in range(1000)})
    lines = [key for key, _ in roll_up(keys.seek, prefix=b"", delimiter=b"/", start=b"")]
    assert lines == [b"a/", b"b/", b"c/"]
    assert keys.rows <= 6


@pytest.mark.parametrize(("skip_rows", "seeks", "rows"), [(0, 4, 6), (7, 4, 27), (8, 1, 27)])
def test_an_expensive_seek_is_deferred(skip_rows: int, seeks: int, rows: int) -> None:
    keys = Sorted({f"{folder}/{number}" for folder in "abc" for number in range(9)})
    lines = [key for key, _ in roll_up(keys.seek, prefix=b"", delimiter=b"/", start=b"", skip_rows=skip_rows)]
    assert lines == [b"a/", b"b/", b"c/"]
    assert (keys.seeks, keys.rows) == (seeks, rows)


def test_patience_begins_anew_with_each_common_prefix() -> None:
    keys = Sorted({"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c"})
    lines = [key for key, _ in roll_up(keys.seek, prefix=b"", delimiter=b"/", start=b"", skip_rows=2)]
    assert lines == [b"a/", b"b/", b"c"]
    assert keys.seeks == 1


def test_nothing_after_the_prefix_is_looked_at() -> None:
    keys = Sorted({"a/1", "b/1", "b/2", "c/1", "c/2"})
    assert [key for key, _ in roll_up(keys.seek, prefix=b"b/", delimiter=b"", start=b"b/")] == [b"b/1", b"b/2"]
    assert keys.rows == 3


def summary(key: str) -> ObjectSummary:
    return ObjectSummary(key, 1, "etag", NOON)


def upload(key: str, identifier: str) -> Upload:
    return Upload(identifier, Location(BucketRef(ALICE, "bucket"), key), NOON, Attributes())


def test_a_page_of_objects_ends_with_the_marker_of_its_last_line_while_there_are_more() -> None:
    lines = [(b"a", summary("a")), (b"b/", None), ("é".encode(), summary("é"))]
    shown = [summary("a"), summary("é")]
    assert object_page(iter(lines), 3) == object_page(iter(lines), 4) == Listing(shown, ["b/"], None)
    assert object_page(iter(lines), 2) == Listing(shown[:1], ["b/"], "b/")
    assert object_page(iter([*lines, lines[0]]), 3) == Listing(shown, ["b/"], "é")
    assert object_page(iter(lines), 0) == Listing([], [], None)


def test_a_page_of_uploads_has_two_markers_of_which_that_of_a_common_prefix_is_empty() -> None:
    lines = [(b"a", upload("a", "1")), (b"a", upload("a", "2")), (b"b/", None), (b"c", upload("c", "3"))]
    assert upload_page(iter(lines), 4) == UploadPage([each for _, each in lines if each], ["b/"], None, None)
    assert upload_page(iter(lines), 2) == UploadPage([upload("a", "1"), upload("a", "2")], [], "a", "2")
    assert upload_page(iter(lines), 3) == UploadPage([upload("a", "1"), upload("a", "2")], ["b/"], "b/", "")
    assert upload_page(iter(lines), 0) == UploadPage([], [], None, None)


def test_a_list_of_all_keys_ends_beyond_all_text() -> None:
    assert key_beyond(b"") > "\U0010ffff".encode()
