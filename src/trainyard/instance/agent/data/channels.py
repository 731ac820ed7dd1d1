"""Stages File and FastFile channels: their objects become files.

The files are hard links to the store's own, so nothing is copied; encrypted objects are decrypted into new files, and
those of a remote S3 are downloaded. They lie in a folder that no program sees: a sandbox shows it copy-on-write or
read-only, see `channel_paths.py`. So a program can change its channels as it likes and never changes a stored object.
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
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, absence
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import ChannelSpec
from trainyard.objects.contract import HasLocalFile, ObjectAccess, ObjectReader, ObjectReplaced
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.objects.filesystem import FilesystemObjects, StoredFile

_NAME_BYTES = 255
_BATCH_OBJECTS = 1000
_CHUNK_BYTES = 1 << 20
_NO_PATH = "its key is not a path that a file can have"
_CLASH = "the key of another object in the channel is a part of its key"
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP})
_CANNOT_COPY_IN_KERNEL = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


def stage_channels(
    store: ObjectAccess,
    channels: Sequence[ChannelSpec],
    *,
    account: str,
    root: Path,
    check: Callable[[], None],
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Fill a folder below `root` for each channel; CannotRun when one cannot be staged or the disk is too small.

    Threads call `on_bytes` with the size of each piece that has been downloaded.
    """
    if channels and not isinstance(store, FilesystemObjects):
        from trainyard.instance.agent.data.downloads import require_space

        root.mkdir(parents=True, exist_ok=True)
        names = ", ".join(channel.name for channel in channels)
        size_bytes = sum(sum(channel.sizes) for channel in channels)
        require_space(root, size_bytes, what=f"the data of {'channels' if len(channels) > 1 else 'channel'} {names}")
    # The folder of a channel may lie in that of another, which is made first.
    for channel in sorted(channels, key=lambda each: each.path):
        bucket = BucketRef(account, channel.bucket)
        folder = staged_folder(channel, root)
        stage_channel(store, channel, bucket=bucket, folder=folder, check=check, on_bytes=on_bytes)


def staged_folder(channel: ChannelSpec, root: Path) -> Path:
    """Return where the files of a channel are staged below a root: as below /opt/ml if the channel has a path."""
    return root / (channel.path.removeprefix(f"{ML}/") or channel.name)


def stage_channel(
    store: ObjectAccess,
    channel: ChannelSpec,
    *,
    bucket: BucketRef,
    folder: Path,
    check: Callable[[], None],
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Create and fill the folder of a channel. Calls `check` now and then, which may raise.

    Raises CannotRun when an object is gone, has changed since the channel was listed, cannot be read, or has a key that
    cannot be the name of a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(store, FilesystemObjects):
        _download(store, channel, bucket=bucket, folder=folder, check=check, on_bytes=on_bytes)
        return
    staging = _StagingFolder(store, str(folder), check)
    for first in range(0, len(channel.keys), _BATCH_OBJECTS):
        keys = channel.keys[first : first + _BATCH_OBJECTS]
        etags = channel.etags[first : first + _BATCH_OBJECTS] or [""] * len(keys)
        files = store.stored_files(bucket, keys)
        _require_space(channel, folder, files)
        for key, etag, file in zip(keys, etags, files, strict=True):
            check()
            _stage_object(staging, channel, Location(bucket, key), etag=etag, file=file)


def require_folders(channels: Sequence[ChannelSpec], *, node: str) -> None:
    """Raise CannotRun when a folder that a channel shows is not on this machine. In a cluster only the node knows."""
    for channel in channels:
        path, exists = Path(channel.folder, channel.directory), False
        with suppress(PermissionError):
            exists = path.is_dir()
        if channel.folder and not exists:
            where = f"on node {node}" if node else "on this machine"
            raise CannotRun(
                f"Channel {channel.name} is the folder {path} of a file system, which does not exist {where} or cannot "
                f"be read by the yard's user. Mount it "
                f"{'at the same path on every node' if node else 'there again'}, or correct file_systems.toml.",
                FailureKind.BAD_INPUT,
            )


def channel_file_path(key: str, prefix: str) -> str | None:
    """The path of an object in its channel: the rest of the key after the prefix.

    If the prefix ends inside a name, the path begins with that name. A key that ends in a slash gives the path of a
    folder, with the slash. None when no file can have the path.
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


def has_empty_shard(channel: ChannelSpec) -> bool:
    """Whether this instance gets no object of a sharded channel, because there are more instances than objects."""
    is_sharded = channel.distribution == "ShardedByS3Key" and not channel.folder
    return is_sharded and (not channel.keys or (channel.is_resharded_each_epoch and channel.part >= len(channel.keys)))


def link_file(source: str | Path, target: str | Path, *, folder: int | None = None) -> bool:
    """Make a hard link, in an open folder if one is given; False when the file system cannot or the source is gone."""
    try:
        os.link(source, target, dst_dir_fd=folder)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def copy_file(descriptor: int, target: FileIO) -> None:
    """Copy an open file to a new one, letting the file system share the data if it can."""
    try:
        left = os.fstat(descriptor).st_size
        while left > 0 and (copied := os.copy_file_range(descriptor, target.fileno(), left)):
            left -= copied
    except OSError as error:
        if error.errno not in _CANNOT_COPY_IN_KERNEL:
            raise
    # Copy what the kernel did not.
    with open(descriptor, "rb", buffering=0, closefd=False) as source:
        shutil.copyfileobj(source, target, 1 << 20)


def copy_object(reader: ObjectReader, target: FileIO, *, check: Callable[[], None]) -> None:
    """Copy an open object to a new file, decrypted if the store keeps it encrypted."""
    if isinstance(reader, HasLocalFile):
        copy_file(reader.file.fileno(), target)
        return
    for offset in range(0, reader.info.size, _CHUNK_BYTES):
        check()
        target.write(reader.read(offset, _CHUNK_BYTES))


class _StagingFolder:
    """Fills a folder with the objects of a channel. Paths are plain strings, because there are many."""

    def __init__(self, store: FilesystemObjects, folder: str, check: Callable[[], None]) -> None:
        self._store = store
        self._folder = folder
        self._check = check
        self._made = {""}

    def make_folder(self, path: str) -> None:
        if path in self._made:
            return
        self.make_folder(path.rpartition("/")[0])
        Path(self._folder, path).mkdir()
        self._made.add(path)

    def put(self, where: Location, path: str, *, etag: str, file: StoredFile | None) -> None:
        """Link or copy an object; Replaced when it does not have the given ETag.

        A file that this user may not write is copied, because the program could not write to a link to it either. An
        encrypted object is decrypted here: this folder is the job's own.
        """
        target = f"{self._folder}/{path}"
        if file is not None and not file.is_sealed and _is_own(file.path):
            _require_etag(where, etag, file.etag)
            if link_file(file.path, target):
                return
        with self._store.open(where) as reader:
            _require_etag(where, etag, reader.info.etag)
            with Path(target).open("xb", buffering=0) as copy:
                copy_object(reader, copy, check=self._check)


def _require_space(channel: ChannelSpec, folder: Path, files: Sequence[StoredFile | None]) -> None:
    """Raise CannotRun when the disk is too small for the decrypted copies of these files."""
    size_bytes = sum(file.size for file in files if file is not None and file.is_sealed)
    if size_bytes:
        from trainyard.instance.agent.data.downloads import require_space

        require_space(folder, size_bytes, what=f"the decrypted data of channel {channel.name}")


def _require_etag(where: Location, expected: str, actual: str) -> None:
    if expected and expected != actual:
        raise ObjectReplaced(where)


def _stage_object(
    staging: _StagingFolder, channel: ChannelSpec, where: Location, *, etag: str, file: StoredFile | None
) -> None:
    path = channel_file_path(where.key, channel.prefix)
    if path is None:
        raise _unusable(where, channel, _NO_PATH)
    folder, _, name = path.rpartition("/")
    try:
        staging.make_folder(folder)
        # Without a name it is an empty object by which some tools mark a folder.
        if name:
            staging.put(where, path, etag=etag, file=file)
    except NotFound as error:
        raise _unusable(where, channel, f"it {absence(was_listed=bool(etag))}") from error
    except KeyUnusable as error:
        raise _unusable(where, channel, f"it cannot be decrypted: {error.message.removesuffix('.')}") from error
    except ObjectReplaced as error:
        raise _unusable(where, channel, "it was replaced since the job began to read the channel") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _unusable(where, channel, _CLASH) from error


def _download(
    store: ObjectAccess,
    channel: ChannelSpec,
    *,
    bucket: BucketRef,
    folder: Path,
    check: Callable[[], None],
    on_bytes: Callable[[int], None] | None,
) -> None:
    from trainyard.instance.agent.data.downloads import download_files
    from trainyard.objects.remote.downloads import DownloadRequest

    wanted: list[DownloadRequest] = []
    etags, sizes = channel.etags or [""] * len(channel.keys), channel.sizes or [0] * len(channel.keys)
    for where, path, position in _remote_files(channel, bucket):
        if path.endswith("/"):
            # An empty object by which some tools mark a folder.
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            wanted.append(DownloadRequest(where, folder / path, etags[position], sizes[position]))
    if wanted:
        download_files(store, wanted, what=f"channel {channel.name}", check=check, on_bytes=on_bytes)


def _remote_files(channel: ChannelSpec, bucket: BucketRef) -> Iterator[tuple[Location, str, int]]:
    """Yield the location, path and position of every object that becomes a file or a folder."""
    from trainyard.instance.agent.data.downloads import FileTree

    tree = FileTree()
    for position, key in enumerate(channel.keys):
        where = Location(bucket, key)
        path = channel_file_path(key, channel.prefix)
        if path is None:
            raise _unusable(where, channel, _NO_PATH)
        if not tree.reserve_path(path):
            raise _unusable(where, channel, _CLASH)
        if path:
            yield where, path, position


def _is_own(file: str) -> bool:
    try:
        status = os.stat(file)  # noqa: PTH116 - there are many files, and creating a Path costs more than this
    except FileNotFoundError:
        # Another object has replaced it.
        return False
    return status.st_uid == os.geteuid() and bool(status.st_mode & stat.S_IWUSR)


def _unusable(where: Location, channel: ChannelSpec, why: str) -> CannotRun:
    return CannotRun(f"The object {where} of channel {channel.name} cannot be staged: {why}.", FailureKind.BAD_INPUT)
