from bisect import bisect_left
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects.listing import beyond, first_key, roll_up

TEXTS = st.text("ab/é😀\x00", max_size=5)


class Sorted:
    """Keys to seek in, and how often that was done."""

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
    edge = beyond(prefix.encode())
    assert (prefix + rest).encode() < edge
    assert (other.encode() >= edge) == (other > prefix and not other.startswith(prefix))


@given(keys=st.sets(TEXTS.filter(bool)), prefix=TEXTS, delimiter=st.sampled_from(["", "/", "//", "é"]), after=TEXTS)
def test_rolling_up_tells_each_line_after_the_start_once(
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


def test_a_seek_that_costs_more_than_rows_is_put_off() -> None:
    keys = Sorted({f"{folder}/{number}" for folder in "abc" for number in range(9)})
    lines = [key for key, _ in roll_up(keys.seek, prefix=b"", delimiter=b"/", start=b"", patience=10)]
    assert lines == [b"a/", b"b/", b"c/"]
    assert keys.seeks == 1
