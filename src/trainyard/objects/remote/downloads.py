"""Downloads many objects to files in parallel: small objects, and the ranges of large ones."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectReplaced, ObjectVersion, ObjectVersions
from trainyard.objects.remote.parallel import Pause, run_all

# Held in memory for each request in progress.
RANGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """An object to download to a file in an existing folder. Without an `etag` it is the newest version."""

    where: Location
    place: Path
    etag: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedDownload:
    """A request and the version of the object to download."""

    wanted: DownloadRequest
    version: ObjectVersion


OnMissing = Callable[[DownloadRequest, Exception], None]
# Called by the threads that download, with the number of bytes that have been written.
OnBytes = Callable[[int], None]


def resolve_versions(
    versions: ObjectVersions,
    wanted: Sequence[DownloadRequest],
    *,
    check: Callable[[], None],
    on_missing: OnMissing | None = None,
) -> list[ResolvedDownload]:
    """Return the versions to download, in any order; look up only those without an `etag`.

    `check` is called every 50 ms and may raise to end the run. A missing object also ends it, with NotFound, unless
    `on_missing` is given. Unavailable always ends it.
    """
    found = [
        ResolvedDownload(each, versions.from_listing(each.where, etag=each.etag, size=each.size))
        for each in wanted
        if each.etag
    ]
    missing: list[tuple[DownloadRequest, Exception]] = []

    def resolve(each: DownloadRequest, pause: Pause) -> None:
        try:
            found.append(ResolvedDownload(each, versions.newest(each.where, pause=pause)))
        except NotFound as error:
            if on_missing is None:
                raise
            missing.append((each, error))

    run_all(resolve, [each for each in wanted if not each.etag], check=check)
    if on_missing is not None:
        for each, error in missing:
            on_missing(each, error)
    return found


def download(
    found: Sequence[ResolvedDownload],
    *,
    check: Callable[[], None],
    on_missing: OnMissing | None = None,
    on_bytes: OnBytes | None = None,
) -> list[ResolvedDownload]:
    """Download versions to files with bounded concurrency and memory; return those that now have a file.

    `check` is called every 50 ms and may raise to end the run: requests in progress then finish in the background. An
    object that is gone or was replaced also ends it, with NotFound or ObjectReplaced, unless `on_missing` is given;
    such an object gets no file. Unavailable and OSError always end it.
    """
    lost: dict[Path, tuple[DownloadRequest, Exception]] = {}

    def fetch(piece: _DownloadRange, pause: Pause) -> None:
        wanted = piece.of.wanted
        if wanted.place in lost:
            return
        try:
            data = piece.of.version.read(piece.offset, RANGE_BYTES, pause=pause)
        except (NotFound, ObjectReplaced) as error:
            if on_missing is None:
                raise
            lost[wanted.place] = wanted, error
        else:
            _write(wanted.place, piece.offset, data)
            if on_bytes is not None:
                on_bytes(len(data))

    run_all(fetch, _ranges(found), check=check)
    for wanted, error in lost.values():
        wanted.place.unlink()
        assert on_missing is not None, "objects are recorded as lost only with on_missing"
        on_missing(wanted, error)
    return [each for each in found if each.wanted.place not in lost]


@dataclass(frozen=True, slots=True)
class _DownloadRange:
    of: ResolvedDownload
    offset: int


def _ranges(found: Sequence[ResolvedDownload]) -> Iterator[_DownloadRange]:
    """Yield all ranges in order; create each file and reserve its disk space before its first range."""
    for each in found:
        size = each.version.size
        with each.wanted.place.open("xb", buffering=0) as file:
            if size > RANGE_BYTES:
                os.posix_fallocate(file.fileno(), 0, size)
        yield from (_DownloadRange(each, offset) for offset in range(0, size, RANGE_BYTES))


def _write(place: Path, offset: int, data: bytes) -> None:
    with place.open("r+b", buffering=0) as file:
        view = memoryview(data)
        while view:
            written = os.pwrite(file.fileno(), view, offset)
            offset, view = offset + written, view[written:]
