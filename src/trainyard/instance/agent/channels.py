"""File and FastFile channels: the objects of a channel as files.

The files are hard links of the store's own, so nothing is copied. They lie in a folder that no program sees: a sandbox
shows it copy-on-write, or read-only, as `placing.py` has it. So a program can do with its channels what it likes and
never change a stored object.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.link.contract import ChannelSpec
from trainyard.objects.filesystem import FilesystemObjects

_NAME_BYTES = 255
_AT_ONCE = 1000  # objects that are looked up together
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP})
_CANNOT_COPY_IN_KERNEL = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


def bring_channel(
    store: FilesystemObjects, channel: ChannelSpec, *, bucket: BucketRef, folder: Path, check: Callable[[], None]
) -> None:
    """Fill the folder of a channel, which is made. `check` is called now and then and may raise to end it.

    CannotRun when an object is gone, or its key cannot be the name of a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    farm = _Farm(store, str(folder))
    for first in range(0, len(channel.keys), _AT_ONCE):
        keys = channel.keys[first : first + _AT_ONCE]
        files = _files_of(store, bucket, keys)
        for key in keys:
            check()
            _bring(farm, channel, Location(bucket, key), file=files.get(key))


def file_path(key: str, prefix: str) -> str | None:
    """Where an object lies in its channel: what comes after the prefix, or from the name on that the prefix begins.

    A key that ends in a slash gives the path of a folder, with the slash. None when no file can have it.
    """
    rest = key.removeprefix(prefix)
    if prefix and not prefix.endswith("/") and not rest.startswith("/"):
        rest = key[prefix.rfind("/") + 1 :]
    parts = [part for part in rest.split("/") if part]
    if (
        ".." in parts
        or "." in parts
        or "\0" in rest
        or (len(rest) * 4 > _NAME_BYTES and any(len(part.encode()) > _NAME_BYTES for part in parts))
    ):
        return None
    return "/".join(parts) + ("/" if rest.endswith("/") and parts else "")


def link_file(source: str | Path, place: str | Path) -> bool:
    """Whether a file could be given another name; not when it has lost its first one meanwhile."""
    try:
        os.link(source, place)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def copy_file(descriptor: int, place: Path) -> None:
    """Copy an open file, by the file system without copying where it can."""
    with place.open("xb", buffering=0) as target:
        try:
            left = os.fstat(descriptor).st_size
            while left > 0 and (copied := os.copy_file_range(descriptor, target.fileno(), left)):
                left -= copied
        except OSError as error:
            if error.errno not in _CANNOT_COPY_IN_KERNEL:
                raise
        with open(descriptor, "rb", buffering=0, closefd=False) as source:
            shutil.copyfileobj(source, target, 1 << 20)  # what the kernel did not copy


class _Farm:
    """A folder that is filled with the objects of a channel. Paths are plain text: there are many of them."""

    def __init__(self, store: FilesystemObjects, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._made = {""}

    def make_folder(self, path: str) -> None:
        if path in self._made:
            return
        self.make_folder(path.rpartition("/")[0])
        Path(self._folder, path).mkdir()
        self._made.add(path)

    def put(self, where: Location, path: str, file: str | None) -> None:
        """Only a file that this user may write can be shown as one that the program may; any other is copied."""
        place = f"{self._folder}/{path}"
        if file is not None and _is_own(file) and link_file(file, place):
            return
        with self._store.open(where) as reader:
            copy_file(reader.file.fileno(), Path(place))


def _files_of(store: FilesystemObjects, bucket: BucketRef, keys: Sequence[str]) -> Mapping[str, str]:
    try:
        return store.data_files(bucket, keys)
    except NotFound:
        return {}  # the bucket is gone, which is told of its first object


def _bring(farm: _Farm, channel: ChannelSpec, where: Location, *, file: str | None) -> None:
    path = file_path(where.key, channel.prefix)
    if path is None:
        raise _unusable(where, channel, "its key is not a path that a file can have")
    folder, _, name = path.rpartition("/")
    try:
        farm.make_folder(folder)
        if name:  # otherwise an empty object by which some tools show a folder
            farm.put(where, path, file)
    except NotFound as error:
        raise _unusable(where, channel, "it does not exist any more") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _unusable(where, channel, "another object of the channel has a part of its key as its own") from error


def _is_own(file: str) -> bool:
    try:
        found = os.stat(file)  # noqa: PTH116 - there are many, and a Path costs more than this
    except FileNotFoundError:  # another object has taken its place
        return False
    return found.st_uid == os.geteuid() and bool(found.st_mode & stat.S_IWUSR)


def _unusable(where: Location, channel: ChannelSpec, why: str) -> CannotRun:
    return CannotRun(f"The object {where} of channel {channel.name} cannot be brought: {why}.", FailureKind.BAD_INPUT)
