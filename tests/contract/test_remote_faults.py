"""Reading from a remote S3 that is slow, overloaded, breaks connections, or changes while it is read."""

import threading
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest

from tests.faulty_s3 import BreakOff, Fault, FaultyS3, First, Refuse, Reset, Shorten, Wait
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, ObjectReplaced
from trainyard.objects.remote import RemoteObjects
from trainyard.objects.remote.downloads import (
    RANGE_BYTES,
    DownloadRequest,
    OnBytes,
    OnMissing,
    ResolvedDownload,
    download,
    resolve_versions,
)

BUCKET = BucketRef("111122223333", "data")
LARGE = 2 * RANGE_BYTES + 4321


@pytest.fixture
def store(faulty_store: RemoteObjects) -> RemoteObjects:
    faulty_store.create_bucket(BUCKET, region="us-east-1", now=utc_now())
    return faulty_store


def put(store: RemoteObjects, key: str, body: bytes) -> str:
    writer = store.writer(Location(BUCKET, key), Attributes())
    writer.write(body)
    return writer.commit(now=utc_now()).etag


def body_of(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def bring(
    store: RemoteObjects,
    wanted: list[DownloadRequest],
    *,
    check: Callable[[], None] = lambda: None,
    on_missing: OnMissing | None = None,
    on_bytes: OnBytes | None = None,
) -> list[ResolvedDownload]:
    found = resolve_versions(store.versions, wanted, check=check, on_missing=on_missing)
    return download(found, check=check, on_missing=on_missing, on_bytes=on_bytes)


def test_small_and_large_objects_arrive_byte_for_byte(store: RemoteObjects, tmp_path: Path) -> None:
    bodies = {f"small-{number}": body_of(number * 37) for number in range(40)}
    bodies |= {"large": body_of(LARGE), "exact": body_of(RANGE_BYTES), "empty": b""}
    etags = {key: put(store, key, body) for key, body in bodies.items()}
    wanted = [
        DownloadRequest(Location(BUCKET, key), tmp_path / key, etags[key], len(body)) for key, body in bodies.items()
    ]
    pieces = list[int]()
    arrived = bring(store, wanted, on_bytes=pieces.append)
    assert {each.wanted.where.key for each in arrived} == bodies.keys()
    assert {key: (tmp_path / key).read_bytes() for key in bodies} == bodies
    assert sum(pieces) == sum(map(len, bodies.values()))


def test_objects_without_an_etag_are_looked_up(store: RemoteObjects, tmp_path: Path) -> None:
    etag = put(store, "large", body_of(LARGE))
    (arrived,) = bring(store, [DownloadRequest(Location(BUCKET, "large"), tmp_path / "large")])
    assert (arrived.version.info and arrived.version.info.etag) == etag
    assert (tmp_path / "large").read_bytes() == body_of(LARGE)


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(500),
        Refuse(503, "SlowDown"),
        Refuse(429, "TooManyRequests"),
        Reset(),
        BreakOff(),
        Shorten(),
        Wait(0.3),
        Wait(1),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_passing_fault_costs_only_time(
    fault: Fault, size: int, store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    etag = put(store, "key", body_of(size))
    faulty.on("GET", "/key", [fault, fault])
    bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, size)])
    assert (tmp_path / "key").read_bytes() == body_of(size)


def test_every_request_is_retried_exactly_as_often_as_configured(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    etag = put(store, "key", b"x" * 100)
    faulty.on("GET", "/key", repeat(Refuse(503, "SlowDown")))
    with pytest.raises(Unavailable) as failed:
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, 100)])
    assert "s3://data/key could not be read: the remote store answered 503 SlowDown." in failed.value.message
    assert "Tried 4 times in " in failed.value.message
    assert faulty.count("GET", "/key") == 4


def test_an_answer_that_never_arrives_is_reported_as_such(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    etag = put(store, "key", b"x" * 100)
    faulty.on("GET", "/key", repeat(Wait(0.8)))
    with pytest.raises(Unavailable, match=r"s3://data/key could not be read: the remote store did not answer in time"):
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, 100)])


def test_a_refusal_of_the_keys_is_not_retried(store: RemoteObjects, faulty: FaultyS3, tmp_path: Path) -> None:
    etag = put(store, "key", b"x" * 100)
    faulty.on("GET", "/key", repeat(Refuse(403, "AccessDenied")))
    with pytest.raises(Unavailable, match="refuses our keys"):
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, 100)])
    assert faulty.count("GET", "/key") == 1


def test_a_key_deleted_before_it_is_read_is_noticed(store: RemoteObjects, tmp_path: Path) -> None:
    etag = put(store, "key", b"x" * 100)
    store.delete(Location(BUCKET, "key"))
    with pytest.raises(NotFound) as failed:
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, 100)])
    assert failed.value.name == "key"


@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_key_replaced_since_it_was_listed_is_noticed(size: int, store: RemoteObjects, tmp_path: Path) -> None:
    etag = put(store, "key", b"x" * size)
    put(store, "key", b"y" * size)
    with pytest.raises(ObjectReplaced) as failed:
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, size)])
    assert failed.value.where == Location(BUCKET, "key")


def test_a_key_swapped_in_the_middle_of_its_pieces_is_noticed(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    put(store, "key", b"x" * LARGE)
    swap = First(lambda: put(store, "key", b"y" * LARGE))
    faulty.on("GET", "/key", [Wait(0), swap])
    with pytest.raises(ObjectReplaced):
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key")])


def test_a_caller_with_on_missing_gets_the_missing_objects_reported_and_the_rest_downloaded(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    # With a known ETag, any request detects the swap; on a busy machine one may be repeated.
    etags = {key: put(store, key, b"x" * LARGE) for key in ("gone", "here", "swapped")}
    faulty.on("GET", "/swapped", [Wait(0), First(lambda: put(store, "swapped", b"y" * LARGE))])
    store.delete(Location(BUCKET, "gone"))
    on_missing: dict[str, type[Exception]] = {}
    arrived = bring(
        store,
        [DownloadRequest(Location(BUCKET, key), tmp_path / key, etag, LARGE) for key, etag in etags.items()],
        on_missing=lambda wanted, error: on_missing.update({wanted.where.key: type(error)}),
    )
    assert ([each.wanted.where.key for each in arrived], on_missing) == (
        ["here"],
        {"gone": NotFound, "swapped": ObjectReplaced},
    )
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["here"]


def test_a_cancelled_download_ends_at_once_even_while_no_answer_arrives(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    etag = put(store, "key", b"x" * 100)
    faulty.on("GET", "/key", repeat(Wait(5)))
    shall_end = threading.Event()
    threading.Timer(0.2, shall_end.set).start()

    def check() -> None:
        if shall_end.is_set():
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bring(store, [DownloadRequest(Location(BUCKET, "key"), tmp_path / "key", etag, 100)], check=check)
    assert time.monotonic() - begun < 2


def test_a_reader_of_a_broken_answer_continues_where_it_was(store: RemoteObjects, faulty: FaultyS3) -> None:
    put(store, "key", body_of(LARGE))
    faulty.on("GET", "/key", [BreakOff(), Refuse(500)])
    with store.open(Location(BUCKET, "key")) as reader:
        read = b"".join(reader.read(offset, 1 << 20) for offset in range(0, LARGE, 1 << 20))
    assert read == body_of(LARGE)
