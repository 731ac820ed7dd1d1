"""File and FastFile channels: the objects of a channel as files.

The files are hard links of the store's own, so nothing is copied; those of a remote S3 are downloaded. They lie in a
folder that no program sees: a sandbox shows it copy-on-write, or read-only, as `placing.py` has it. So a program can do
with its channels what it likes and never change a stored object.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.failure import CannotRun, FailureKind, absence
from trainyard.link.contract import ChannelSpec
from trainyard.objects.contract import ObjectAccess, Replaced
from trainyard.objects.filesystem import FilesystemObjects, StoredFile

_NAME_BYTES = 255
_AT_ONCE = 1000  # objects that are looked up together
_NO_PATH = "its key is not a path that a file can have"
_CLASH = "another object of the channel has a part of its key as its own"
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP})
_CANNOT_COPY_IN_KERNEL = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


def bring_channels(
    store: ObjectAccess, channels: Sequence[ChannelSpec], *, account: str, root: Path, check: Callable[[], None]
) -> None:
    """Fill the folders of channels, one for each below `root`. CannotRun, also when the disk is too small for all."""
    if channels and not isinstance(store, FilesystemObjects):
        from trainyard.instance.agent.downloads import require_space

        root.mkdir(parents=True, exist_ok=True)
        names = ", ".join(channel.name for channel in channels)
        size_bytes = sum(sum(channel.sizes) for channel in channels)
        require_space(root, size_bytes, what=f"the data of {'channels' if len(channels) > 1 else 'channel'} {names}")
    for channel in channels:
        bucket = BucketRef(account, channel.bucket)
        bring_channel(store, channel, bucket=bucket, folder=root / channel.name, check=check)


def bring_channel(
    store: ObjectAccess, channel: ChannelSpec, *, bucket: BucketRef, folder: Path, check: Callable[[], None]
) -> None:
    """Fill the folder of a channel, which is made. `check` is called now and then and may raise to end it.

    CannotRun when an object is gone or another than when the channel was listed, cannot be read, or has a key that
    cannot be the name of a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(store, FilesystemObjects):
        _download(store, channel, bucket=bucket, folder=folder, check=check)
        return
    farm = _Farm(store, str(folder))
    for first in range(0, len(channel.keys), _AT_ONCE):
        keys = channel.keys[first : first + _AT_ONCE]
        etags = channel.etags[first : first + _AT_ONCE] or [""] * len(keys)
        files = store.stored_files(bucket, keys)
        for key, etag, file in zip(keys, etags, files, strict=True):
            check()
            _bring(farm, channel, Location(bucket, key), etag=etag, file=file)


def require_folders(channels: Sequence[ChannelSpec], *, node: str) -> None:
    """CannotRun where a folder that a channel shows is not on this machine, which of a cluster only the node knows."""
    for channel in channels:
        place, is_there = Path(channel.folder, channel.directory), False
        with suppress(PermissionError):
            is_there = place.is_dir()
        if channel.folder and not is_there:
            where = f"on node {node}" if node else "on this machine"
            raise CannotRun(
                f"Channel {channel.name} is the folder {place} of a file system, which is not there {where}, or "
                f"is closed to the yard's user. Mount it "
                f"{'at the same path on every node' if node else 'there again'}, or correct file_systems.toml.",
                FailureKind.BAD_INPUT,
            )


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


def gets_nothing(channel: ChannelSpec) -> bool:
    """Whether this instance has no part in a channel that is shared out among more instances than it has objects."""
    is_shared_out = channel.distribution == "ShardedByS3Key" and not channel.folder
    return is_shared_out and (not channel.keys or (channel.is_shared_out_anew and channel.part >= len(channel.keys)))


def link_file(source: str | Path, place: str | Path, *, folder: int | None = None) -> bool:
    """Whether a file could be given another name, in an open folder if one is given.

    It cannot when it has lost its first one meanwhile.
    """
    try:
        os.link(source, place, dst_dir_fd=folder)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def copy_file(descriptor: int, target: FileIO) -> None:
    """Copy an open file to a new one, by the file system without copying where it can."""
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

    def put(self, where: Location, path: str, *, etag: str, file: StoredFile | None) -> None:
        """Only a file that this user may write can be shown as one that the program may; any other is copied.

        Replaced when the object is not the one with the ETag, if there is one.
        """
        place = f"{self._folder}/{path}"
        if file is not None and _is_own(file.path):
            _require_same(where, etag, file.etag)
            if link_file(file.path, place):
                return
        with self._store.open(where) as reader:
            _require_same(where, etag, reader.info.etag)
            with Path(place).open("xb", buffering=0) as copy:
                copy_file(reader.file.fileno(), copy)


def _require_same(where: Location, wanted: str, found: str) -> None:
    if wanted and wanted != found:
        raise Replaced(where)


def _bring(farm: _Farm, channel: ChannelSpec, where: Location, *, etag: str, file: StoredFile | None) -> None:
    path = file_path(where.key, channel.prefix)
    if path is None:
        raise _unusable(where, channel, _NO_PATH)
    folder, _, name = path.rpartition("/")
    try:
        farm.make_folder(folder)
        if name:  # otherwise an empty object by which some tools show a folder
            farm.put(where, path, etag=etag, file=file)
    except NotFound as error:
        raise _unusable(where, channel, f"it {absence(was_there=bool(etag))}") from error
    except Replaced as error:
        raise _unusable(where, channel, "it was replaced since the job began to read the channel") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _unusable(where, channel, _CLASH) from error


def _download(
    store: ObjectAccess, channel: ChannelSpec, *, bucket: BucketRef, folder: Path, check: Callable[[], None]
) -> None:
    from trainyard.instance.agent.downloads import bring_files
    from trainyard.objects.remote.downloading import Wanted

    wanted: list[Wanted] = []
    etags, sizes = channel.etags or [""] * len(channel.keys), channel.sizes or [0] * len(channel.keys)
    for where, path, position in _remote_files(channel, bucket):
        if path.endswith("/"):  # an empty object by which some tools show a folder
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            wanted.append(Wanted(where, folder / path, etags[position], sizes[position]))
    if wanted:
        bring_files(store, wanted, what=f"channel {channel.name}", check=check)


def _remote_files(channel: ChannelSpec, bucket: BucketRef) -> Iterator[tuple[Location, str, int]]:
    """What is to become a file or a folder, its path, and its position among the keys."""
    from trainyard.instance.agent.downloads import FileTree

    tree = FileTree()
    for position, key in enumerate(channel.keys):
        where = Location(bucket, key)
        path = file_path(key, channel.prefix)
        if path is None:
            raise _unusable(where, channel, _NO_PATH)
        if not tree.take(path):
            raise _unusable(where, channel, _CLASH)
        if path:
            yield where, path, position


def _is_own(file: str) -> bool:
    try:
        found = os.stat(file)  # noqa: PTH116 - there are many, and a Path costs more than this
    except FileNotFoundError:  # another object has taken its place
        return False
    return found.st_uid == os.geteuid() and bool(found.st_mode & stat.S_IWUSR)


def _unusable(where: Location, channel: ChannelSpec, why: str) -> CannotRun:
    return CannotRun(f"The object {where} of channel {channel.name} cannot be brought: {why}.", FailureKind.BAD_INPUT)
