from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, ObjectInfo
from trainyard.objects.remote.failures import RemoteObjectChanged, RetryPolicy
from trainyard.objects.remote.reader import RemoteReader
from trainyard.objects.remote.versions import RemoteVersion
from trainyard.testing.objects.samples import ALICE

BODY = bytes(range(250)) * 10_000
MODIFIED = datetime(2026, 1, 1, tzinfo=UTC)
WHERE = Location(BucketRef(ALICE, "bucket"), "key")


@dataclass
class Remote:
    """Simulates an object of 2.5 MB and its bucket, since no real remote breaks off on demand."""

    breaks_after: int = 1_000_000_000
    is_replaced: bool = False
    ranges: list[tuple[int, int]] = field(default_factory=list)
    info: ObjectInfo = field(default_factory=lambda: ObjectInfo(WHERE, len(BODY), "etag", MODIFIED, Attributes()))

    def chunks(self) -> Iterator[bytes]:
        for offset in range(0, len(BODY), 70_000):
            if offset > self.breaks_after:
                raise Unavailable("the connection was lost")
            yield BODY[offset : offset + 70_000]

    def close(self) -> None:
        """Skip the unread rest."""

    def read_range(self, path: str, offset: int, size: int, *, etag: str, version: str | None) -> bytes:
        if self.is_replaced:
            raise RemoteObjectChanged(path)
        self.ranges.append((offset, size))
        return BODY[offset : offset + size]


def reader(remote: Remote) -> RemoteReader:
    version = RemoteVersion(WHERE, len(BODY), "etag", remote, "path", RetryPolicy(), info=remote.info)  # type: ignore[arg-type]
    return RemoteReader(version, remote)  # type: ignore[arg-type]  # all are played by one


def test_reading_from_front_to_back_asks_for_no_range() -> None:
    remote = Remote()
    with reader(remote) as opened:
        assert b"".join(opened.read(offset, 64_000) for offset in range(0, len(BODY), 64_000)) == BODY
    assert remote.ranges == []


def test_reading_elsewhere_asks_for_that_range_only() -> None:
    remote = Remote()
    with reader(remote) as opened:
        assert opened.read(2_000_000, 10) == BODY[2_000_000:2_000_010]
        assert opened.read(0, 10) == BODY[:10]
    assert remote.ranges == [(2_000_000, 10)]


def test_a_stream_that_breaks_off_is_taken_up_by_ranges() -> None:
    remote = Remote(breaks_after=300_000)
    with reader(remote) as opened:
        assert b"".join(opened.read(offset, 100_000) for offset in range(0, len(BODY), 100_000)) == BODY
    assert remote.ranges[0] == (300_000, 100_000)


def test_a_stream_that_breaks_off_over_a_replaced_object_is_an_error() -> None:
    with reader(Remote(breaks_after=300_000, is_replaced=True)) as opened:
        opened.read(0, 300_000)
        with pytest.raises(Unavailable, match="Open it again"):
            opened.read(300_000, 100_000)
