"""File channels: the objects of a channel as files under /opt/ml/input/data.

A program may write into its channels, but can never change a stored object. Where it runs as another user than the one
who owns the store, its files are hard links: they cost nothing, and only their owner could change what they share with
the store. Where it runs as the same user, they are copies, made by the file system without copying where it can.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.layout import Owner
from trainyard.link.contract import ChannelSpec
from trainyard.objects.filesystem import FileReader, FilesystemObjects

# Modes in which a program finds files; FastFile differs only in when the bytes come, and here they are there already.
_FILE_MODES = ("File", "FastFile")
_NAME_BYTES = 255
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP})
_CANNOT_COPY_IN_KERNEL = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


def bring_channel(
    store: FilesystemObjects,
    channel: ChannelSpec,
    *,
    bucket: BucketRef,
    folder: Path,
    owner: Owner,
    check: Callable[[], None],
) -> None:
    """Fill the folder of a channel, which is made. `check` is called now and then and may raise to end it.

    CannotRun when an object is gone, or its key cannot be the name of a file.
    """
    if channel.mode not in _FILE_MODES:
        raise CannotRun(
            f"Channel {channel.name} asks for the input mode {channel.mode}, which this version does not serve; "
            "use File.",
            FailureKind.USER_ERROR,
        )
    folder.mkdir(parents=True, exist_ok=True)
    owner.take(folder)
    made: set[PurePosixPath] = {PurePosixPath()}
    for key in channel.keys:
        check()
        where = Location(bucket, key)
        path = file_path(key, channel.prefix)
        if path is None:
            raise _unusable(where, channel, "its key is not a path that a file can have")
        try:
            _bring(store, where, folder=folder, path=path, made=made, owner=owner)
        except NotFound as error:
            raise _unusable(where, channel, "it does not exist any more") from error
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _unusable(where, channel, "another object of the channel has a part of its key as its own") from error


def file_path(key: str, prefix: str) -> PurePosixPath | None:
    """Where an object lies in its channel: what comes after the prefix, or from the name on that the prefix begins.

    A key that ends in a slash gives the path of a folder. None when no file can have it.
    """
    rest = key.removeprefix(prefix)
    if prefix and not prefix.endswith("/") and not rest.startswith("/"):
        rest = key[prefix.rfind("/") + 1 :]
    parts = [part for part in rest.split("/") if part]
    if ".." in parts or "." in parts or "\0" in rest or any(len(part.encode()) > _NAME_BYTES for part in parts):
        return None
    return PurePosixPath(*parts)


def _unusable(where: Location, channel: ChannelSpec, why: str) -> CannotRun:
    return CannotRun(f"The object {where} of channel {channel.name} cannot be brought: {why}.", FailureKind.BAD_INPUT)


def _bring(
    store: FilesystemObjects,
    where: Location,
    *,
    folder: Path,
    path: PurePosixPath,
    made: set[PurePosixPath],
    owner: Owner,
) -> None:
    is_marker = where.key.endswith("/")  # an empty object by which some tools show a folder
    _make_folders(folder, path / "_" if is_marker else path, made=made, owner=owner)
    if is_marker or not path.parts:
        return
    with store.open(where) as reader:
        place = folder / path
        if not (owner.is_another and _link(reader, place)):
            _copy(reader, place)
            owner.take(place)


def _make_folders(folder: Path, path: PurePosixPath, *, made: set[PurePosixPath], owner: Owner) -> None:
    for parent in reversed(path.parents):
        if parent not in made:
            (folder / parent).mkdir()
            owner.take(folder / parent)
            made.add(parent)


def _link(reader: FileReader, place: Path) -> bool:
    """Whether the file could be given a second name; not when it has lost its first one meanwhile."""
    descriptor = reader.file.fileno()
    try:
        # With a folder named, Python follows the link in /proc; without, it would make a link to the link.
        os.link(f"/proc/self/fd/{descriptor}", place, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def _copy(reader: FileReader, place: Path) -> None:
    with place.open("xb", buffering=0) as target:
        try:
            left = reader.info.size
            while left > 0 and (copied := os.copy_file_range(reader.file.fileno(), target.fileno(), left)):
                left -= copied
        except OSError as error:
            if error.errno not in _CANNOT_COPY_IN_KERNEL:
                raise
        shutil.copyfileobj(reader.file, target, 1 << 20)  # what the kernel did not copy
