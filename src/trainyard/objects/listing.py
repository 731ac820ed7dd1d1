"""Listing by prefix and delimiter, as S3 defines it, on UTF-8 bytes.

Keys that are equal up to the first delimiter after the prefix are listed as one common prefix. This relies on two
properties of UTF-8: its byte order is the order of the characters, and no text contains the byte 0xFF. So the smallest
key beyond all keys with a prefix is that prefix with its last byte incremented.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from trainyard.objects.contract import Listing, ObjectSummary, Upload, UploadPage

T = TypeVar("T")
Seek = Callable[[bytes], Iterator[tuple[bytes, T]]]

# Beyond every key.
END = b"\xff"


def key_beyond(prefix: bytes) -> bytes:
    """Return the smallest key after all keys with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else END


def first_key(prefix: bytes, delimiter: bytes, *, after: bytes) -> bytes:
    """Return the smallest key that a page strictly after `after` can start with."""
    if after < prefix:
        return prefix
    shared = common_prefix(after, prefix, delimiter) if after.startswith(prefix) else None
    return after + b"\0" if shared is None else key_beyond(shared)


def common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    """Return the common prefix that is listed instead of `key`, or None if the key itself is listed."""
    if not delimiter:
        return None
    cut = key.find(delimiter, len(prefix))
    return None if cut < 0 else key[: cut + len(delimiter)]


def roll_up(
    seek: Seek[T], *, prefix: bytes, delimiter: bytes, start: bytes, skip_rows: int = 0
) -> Iterator[tuple[bytes, T | None]]:
    """Yield each key with its row, and each common prefix once with None, in order.

    `seek` returns the rows from a key on, in order. It is called again to skip the rest of a common prefix, after
    `skip_rows` rows of it: if rows come in pages, the next few cost less than another seek.
    """
    rows = seek(start)
    shared: bytes | None = None
    skipped = 0
    while (entry := next(rows, None)) is not None:
        key, row = entry
        if not key.startswith(prefix):
            return
        if shared is not None and key.startswith(shared):
            skipped += 1
            if skipped > skip_rows:
                rows = seek(key_beyond(shared))
            continue
        skipped = 0
        shared = common_prefix(key, prefix, delimiter)
        yield (key, row) if shared is None else (shared, None)


def object_page(entries: Iterator[tuple[bytes, ObjectSummary | None]], limit: int) -> Listing:
    """Return the first page of a rolled-up listing."""
    page, more = _page(entries, limit)
    objects = [summary for _, summary in page if summary is not None]
    prefixes = [key.decode() for key, summary in page if summary is None]
    return Listing(objects, prefixes, page[-1][0].decode() if more else None)


def upload_page(entries: Iterator[tuple[bytes, Upload | None]], limit: int) -> UploadPage:
    """Return the first page of a rolled-up listing. If it ends with a common prefix, its upload marker is empty."""
    page, more = _page(entries, limit)
    uploads = [upload for _, upload in page if upload is not None]
    prefixes = [key.decode() for key, upload in page if upload is None]
    if not more:
        return UploadPage(uploads, prefixes, None, None)
    key, last = page[-1]
    return UploadPage(uploads, prefixes, key.decode(), last.id if last else "")


def _page(entries: Iterator[tuple[bytes, T]], limit: int) -> tuple[Sequence[tuple[bytes, T]], bool]:
    page = list(islice(entries, limit))
    return page, limit > 0 and next(entries, None) is not None
