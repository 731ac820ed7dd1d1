"""Objects of a remote S3 as files of an instance, on a disk that has to have the space."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.failure import CannotRun, FailureKind, absence
from trainyard.objects.contract import IsFar, ObjectAccess, ObjectVersions, Replaced
from trainyard.objects.remote.downloading import Found, Wanted, download, look_up

_ROUNDS = 5  # in which an object that is replaced all the time is tried
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FileTree:
    """The files and folders that keys become, before any of them is there."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders = {""}

    def take(self, path: str) -> bool:
        """Whether there can be a file of this path, beside all that were taken before; a folder, if a slash ends it."""
        folder, _, name = path.rpartition("/")
        if not self._take_folder(folder):
            return False
        if not name:
            return True
        if path in self._files or path in self._folders:
            return False
        self._files.add(path)
        return True

    def _take_folder(self, path: str) -> bool:
        while path not in self._folders:
            if path in self._files:
                return False
            self._folders.add(path)
            path = path.rpartition("/")[0]
        return True


def bring_files(store: ObjectAccess, wanted: Sequence[Wanted], *, what: str, check: Callable[[], None]) -> None:
    """Download objects, of which `what` speaks to the user; their folders are made.

    CannotRun, which names the object, when one is gone, was replaced or cannot be read, and when the disk is too small.
    `check` is called every moment and may raise to end it.
    """
    size_bytes = 0
    _make_folders(wanted)
    try:
        found = look_up(_versions(store), wanted, check=check)
        size_bytes = sum(each.version.size for each in found)
        require_space(wanted[0].place.parent, size_bytes, what=what)
        download(found, check=check)
    except NotFound as error:
        where = Location(wanted[0].where.bucket, error.name)
        missing = absence(was_there=any(each.etag for each in wanted))
        raise CannotRun(f"The object {where} of {what} {missing}.", FailureKind.BAD_INPUT) from error
    except Replaced as error:
        raise CannotRun(
            f"The object {error.where} of {what} was replaced since the job began to read it; start the job again "
            "when nobody writes there.",
            FailureKind.BAD_INPUT,
        ) from error
    except Unavailable as error:
        raise CannotRun(f"The download of {what} failed: {error.message}", FailureKind.INTERNAL) from error
    except OSError as error:
        if error.errno not in _FULL:
            raise
        full = _too_small(wanted[0].place.parent, size_bytes, what=what)
        for each in wanted:  # what is no use any more; the yard needs some space to tell what happened
            each.place.unlink(missing_ok=True)
        raise full from error


def bring_newest(store: ObjectAccess, wanted: Sequence[Wanted], *, what: str, check: Callable[[], None]) -> list[Found]:
    """Download what is there now, whatever others do meanwhile: what is deleted is passed over.

    Unavailable when an object cannot be read, also because it is replaced all the time; CannotRun when the disk is too
    small.
    """
    brought: list[Found] = []
    replaced: dict[Wanted, Replaced] = {}

    def missed(each: Wanted, error: Exception) -> None:
        if isinstance(error, Replaced):
            replaced[each] = error

    for _ in range(_ROUNDS):
        found = look_up(_versions(store), wanted, check=check, missed=missed)
        for each in found[:1]:
            require_space(each.wanted.place.parent, sum(one.version.size for one in found), what=what)
        brought += download(found, check=check, missed=missed)
        wanted = list(replaced)
        if not wanted:
            return brought
        last = replaced[wanted[0]]
        replaced.clear()
    raise last


def require_space(folder: Path, size_bytes: int, *, what: str) -> None:
    """CannotRun when the disk of a folder cannot take so much.

    What is kept free for the yard is not for a job either, unless it is so little that it does no harm.
    """
    free, kept = _free_bytes(folder), reserve_of(folder).bytes
    if size_bytes > free or size_bytes > max(free - kept, kept):
        raise _too_small(folder, size_bytes, what=what)


def _versions(store: ObjectAccess) -> ObjectVersions:
    assert isinstance(store, IsFar), "a store that is not of this machine is a remote one"
    return store.versions


def _make_folders(wanted: Sequence[Wanted]) -> None:
    for folder in {each.place.parent for each in wanted}:
        folder.mkdir(parents=True, exist_ok=True)


def _too_small(folder: Path, size_bytes: int, *, what: str) -> CannotRun:
    needed = f"{_shown(size_bytes)} of space" if size_bytes else "more space than there is"
    return CannotRun(
        f"The disk of this machine is too full: {what} needs {needed}, and {_shown(_free_bytes(folder))} are free, of "
        f"which {_shown(reserve_of(folder).bytes)} are kept for the yard. Free some, or use FastFile or Pipe channels.",
        FailureKind.DISK_FULL,
    )


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1024**3:.1f} GiB" if size_bytes >= 1024**3 else f"{size_bytes / 1024**2:.1f} MiB"
