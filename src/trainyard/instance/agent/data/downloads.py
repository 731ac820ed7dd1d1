"""Downloads objects of a remote S3 to files of an instance, and checks that the disk has room for them."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, absence
from trainyard.objects.contract import IsRemote, ObjectAccess, ObjectReplaced, ObjectVersions
from trainyard.objects.remote.downloads import DownloadRequest, OnBytes, ResolvedDownload, download, resolve_versions

# Attempts to download an object that keeps being replaced.
_ATTEMPTS = 5
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class FileTree:
    """The files and folders that keys will become, before any of them exists."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders = {""}

    def reserve_path(self, path: str) -> bool:
        """Reserve the path of a file, or of a folder if it ends in a slash; False when it clashes with earlier ones."""
        folder, _, name = path.rpartition("/")
        if not self._reserve_folder(folder):
            return False
        if not name:
            return True
        if path in self._files or path in self._folders:
            return False
        self._files.add(path)
        return True

    def _reserve_folder(self, path: str) -> bool:
        while path not in self._folders:
            if path in self._files:
                return False
            self._folders.add(path)
            path = path.rpartition("/")[0]
        return True


def download_files(
    store: ObjectAccess,
    wanted: Sequence[DownloadRequest],
    *,
    what: str,
    check: Callable[[], None],
    on_bytes: OnBytes | None = None,
) -> None:
    """Download objects and create their folders; `what` names them in messages.

    Raises CannotRun, naming the object, when one is gone, was replaced or cannot be read, and when the disk is too
    small. Calls `check` frequently, which may raise.
    """
    size_bytes = 0
    _make_folders(wanted)
    try:
        found = resolve_versions(_versions(store), wanted, check=check)
        size_bytes = sum(each.version.size for each in found)
        require_space(wanted[0].place.parent, size_bytes, what=what)
        download(found, check=check, on_bytes=on_bytes)
    except NotFound as error:
        where = Location(wanted[0].where.bucket, error.name)
        missing = absence(was_listed=any(each.etag for each in wanted))
        raise CannotRun(f"The object {where} of {what} {missing}.", FailureKind.BAD_INPUT) from error
    except ObjectReplaced as error:
        raise CannotRun(
            f"The object {error.where} of {what} was replaced since the job began to read it; start the job again "
            "when nothing writes there.",
            FailureKind.BAD_INPUT,
        ) from error
    except Unavailable as error:
        raise CannotRun(f"The download of {what} failed: {error.message}", FailureKind.INTERNAL) from error
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        failure = _disk_too_small(wanted[0].place.parent, size_bytes, what=what)
        # The files are useless now, and the yard needs space to report the failure.
        for each in wanted:
            each.place.unlink(missing_ok=True)
        raise failure from error


def download_newest(
    store: ObjectAccess, wanted: Sequence[DownloadRequest], *, what: str, check: Callable[[], None]
) -> list[ResolvedDownload]:
    """Download the current versions, whatever others do meanwhile. Deleted objects are skipped.

    Raises Unavailable when an object cannot be read or keeps being replaced, CannotRun when the disk is too small.
    """
    downloaded: list[ResolvedDownload] = []
    replaced: dict[DownloadRequest, ObjectReplaced] = {}

    def handle_miss(each: DownloadRequest, error: Exception) -> None:
        if isinstance(error, ObjectReplaced):
            replaced[each] = error

    for _ in range(_ATTEMPTS):
        found = resolve_versions(_versions(store), wanted, check=check, on_missing=handle_miss)
        for each in found[:1]:
            require_space(each.wanted.place.parent, sum(one.version.size for one in found), what=what)
        downloaded += download(found, check=check, on_missing=handle_miss)
        wanted = list(replaced)
        if not wanted:
            return downloaded
        last = replaced[wanted[0]]
        replaced.clear()
    raise last


def require_space(folder: Path, size_bytes: int, *, what: str) -> None:
    """Raise CannotRun when the disk of a folder has no room for so much.

    The reserve of the yard is not for jobs, except for downloads so small that they do no harm.
    """
    free, reserve = _free_bytes(folder), reserve_of(folder).bytes
    if size_bytes > free or size_bytes > max(free - reserve, reserve):
        raise _disk_too_small(folder, size_bytes, what=what)


def _versions(store: ObjectAccess) -> ObjectVersions:
    assert isinstance(store, IsRemote), "a store that is not on this machine is remote"
    return store.versions


def _make_folders(wanted: Sequence[DownloadRequest]) -> None:
    for folder in {each.place.parent for each in wanted}:
        folder.mkdir(parents=True, exist_ok=True)


def _disk_too_small(folder: Path, size_bytes: int, *, what: str) -> CannotRun:
    needed = f"{_format_size(size_bytes)} of space" if size_bytes else "more space than there is"
    return CannotRun(
        f"The disk of this machine is too full: {what} needs {needed}, and {_format_size(_free_bytes(folder))} are "
        f"free, of which {_format_size(reserve_of(folder).bytes)} are reserved for the yard. Free some space, or use "
        "FastFile or Pipe channels.",
        FailureKind.DISK_FULL,
    )


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / 1024**3:.1f} GiB" if size_bytes >= 1024**3 else f"{size_bytes / 1024**2:.1f} MiB"
