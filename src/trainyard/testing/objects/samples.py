"""Sample data of the tests, and steps that they share."""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    ChecksumAlgorithm,
    ObjectAccess,
    ObjectStore,
    Precondition,
    Upload,
    WriteResult,
)

T = TypeVar("T")

ALICE = "111111111111"
BOB = "222222222222"
REGION = "eu-central-1"
NOON = datetime(2026, 3, 14, 12, 0, 0, 250_000, tzinfo=UTC)
# The minimum size of a part that is not the last.
PART = 5 << 20

# Keys that break naive handling of folders, escapes, collations or XML.
ODD_KEYS = [
    " ",
    "!",
    "%",
    "%2e%2e/%2f",
    ".",
    "..",
    "../../etc/passwd",
    "./a",
    "/",
    "//",
    "/leading",
    "a",
    "a b/c d",
    "a!",
    "a%20b",
    "a+b&c=d?e#f",
    "a/",
    "a/../b",
    "a//b",
    "a\\b",
    "line\nbreak\r\ttab",
    "nul\x00inside",
    "quote\"'`",
    "<xml>&amp;</xml>",
    "~",
    "\x7f",
    "Z",
    "z",
    "é",
    "e\u0301",
    "ﬁ",
    "日本語/ファイル",
    "\ufffd",
    "\uffff",
    "😀",
    "k" * 1024,
    "é" * 512,
    "/".join("x" * 512),
]


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def new_bucket(store: ObjectStore, account: str = ALICE) -> BucketRef:
    """Create an empty bucket with a unique name."""
    ref = BucketRef(account, f"bucket-{uuid.uuid4().hex[:12]}")
    store.create_bucket(ref, region=REGION, now=NOON)
    return ref


def put(
    store: ObjectAccess,
    where: Location,
    body: bytes,
    *,
    attributes: Attributes | None = None,
    algorithms: Sequence[ChecksumAlgorithm] = (),
    precondition: Precondition = ANY_STATE,
) -> WriteResult:
    writer = store.writer(where, attributes or Attributes(), algorithms=algorithms)
    writer.write(body)
    return writer.commit(now=NOON, precondition=precondition)


def put_part(
    store: ObjectStore,
    upload: Upload,
    number: int,
    *,
    body: bytes,
    algorithms: Sequence[ChecksumAlgorithm] = (),
) -> WriteResult:
    writer = store.part_writer(upload.where, upload.id, number, algorithms=algorithms)
    writer.write(body)
    return writer.commit(now=NOON)


def body_of(store: ObjectAccess, where: Location) -> bytes:
    with store.open(where) as reader:
        return reader.read(0, reader.info.size)


def keys_of(store: ObjectAccess, bucket: BucketRef) -> list[str]:
    return [summary.key for summary in store.list_objects(bucket).objects]


def md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)` to `work(count - 1)` concurrently and return the results."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))
