"""Listing by prefix and delimiter, as S3 defines it, on UTF-8 bytes.

Keys that share what stands up to the first delimiter after the prefix are told as one common prefix. This relies on
two properties of UTF-8: its byte order is the order of the characters, and no text contains the byte 0xFF, so that the
least key beyond all that begin with some text is that text with its last byte raised by one.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from trainyard.objects.contract import Listing, ObjectSummary, Upload, UploadPage

T = TypeVar("T")
Seek = Callable[[bytes], Iterator[tuple[bytes, T]]]

END = b"\xff"  # beyond every key


def beyond(prefix: bytes) -> bytes:
    """The least key after all that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else END


def first_key(prefix: bytes, delimiter: bytes, *, after: bytes) -> bytes:
    """The least key that a page strictly after `after` can begin with."""
    if after < prefix:
        return prefix
    shared = common_prefix(after, prefix, delimiter) if after.startswith(prefix) else None
    return after + b"\0" if shared is None else beyond(shared)


def common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    """What the listing tells instead of `key`, or None when it tells the key itself."""
    if not delimiter:
        return None
    cut = key.find(delimiter, len(prefix))
    return None if cut < 0 else key[: cut + len(delimiter)]


def roll_up(
    seek: Seek[T], *, prefix: bytes, delimiter: bytes, start: bytes, patience: int = 0
) -> Iterator[tuple[bytes, T | None]]:
    """Each key with its row, and each common prefix once with None, in order.

    `seek` gives the rows whose key is `start` or later, in order. It is called again to leap over the rest of a common
    prefix, after `patience` rows of it, since where rows come in pages the next few cost less than another seek.
    """
    rows = seek(start)
    shared: bytes | None = None
    passed = 0
    while (found := next(rows, None)) is not None:
        key, row = found
        if not key.startswith(prefix):
            return
        if shared is not None and key.startswith(shared):
            passed += 1
            if passed > patience:
                rows = seek(beyond(shared))
            continue
        passed = 0
        shared = common_prefix(key, prefix, delimiter)
        yield (key, row) if shared is None else (shared, None)


def object_page(entries: Iterator[tuple[bytes, ObjectSummary | None]], limit: int) -> Listing:
    """The first lines of a rolled-up listing."""
    shown, more = _page(entries, limit)
    objects = [summary for _, summary in shown if summary is not None]
    prefixes = [key.decode() for key, summary in shown if summary is None]
    return Listing(objects, prefixes, shown[-1][0].decode() if more else None)


def upload_page(entries: Iterator[tuple[bytes, Upload | None]], limit: int) -> UploadPage:
    """The first lines of a rolled-up listing. A page that ends with a common prefix has an empty upload marker."""
    shown, more = _page(entries, limit)
    uploads = [upload for _, upload in shown if upload is not None]
    prefixes = [key.decode() for key, upload in shown if upload is None]
    if not more:
        return UploadPage(uploads, prefixes, None, None)
    key, last = shown[-1]
    return UploadPage(uploads, prefixes, key.decode(), last.id if last else "")


def _page(entries: Iterator[tuple[bytes, T]], limit: int) -> tuple[Sequence[tuple[bytes, T]], bool]:
    shown = list(islice(entries, limit))
    return shown, limit > 0 and next(entries, None) is not None
