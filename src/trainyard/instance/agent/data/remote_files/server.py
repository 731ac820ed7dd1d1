"""The process that serves the FastFile channels of one instance: `python -I -c … PACKAGE FOLDER CHANNEL…`.

It writes lines of JSON to its standard output: that it is `ready`, or why mounting was `refused` or `cannot` work, and
later each `trouble` of a reader. Its standard input is a pipe from the agent: when that closes, however the agent
ended, it unmounts the channels and exits. So a slow remote S3 never blocks the agent, and nothing stays mounted.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.journal import write_journal
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.channels import channel_file_path
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.remote_files.blocks import BlockReader
from trainyard.instance.agent.data.remote_files.cache import BlockCache
from trainyard.instance.agent.data.remote_files.fuse import FileAttributes
from trainyard.instance.agent.data.remote_files.session import DEVICE, FuseSession, mount_channel
from trainyard.instance.agent.data.remote_files.tree import ChannelTree, PathTaken, RemoteFile
from trainyard.instance.sandbox.system_calls import unmount
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec
from trainyard.objects.contract import IsRemote, ObjectInfo, ObjectReplaced

READY, REFUSED, CANNOT, TROUBLE = "ready", "refused", "cannot", "trouble"

_THREADS = 16
# A cache takes at most one part in this many of the free disk space.
_FREE_SHARE = 4

log = logging.getLogger(__name__)


def main() -> NoReturn:
    """Mount the channels and serve them until standard input closes."""
    write_journal(sys.stderr, "info")
    os.set_blocking(sys.stdout.fileno(), False)
    _, _, instance, *names = sys.argv
    folder = InstanceFolder.at(instance)
    spec = read_spec(folder.root)
    channels = [each for each in spec.channels if each.name in names]
    mounted: list[Path] = []
    try:
        sessions = _ChannelServer(folder, spec).open(channels, mounted)
        for session in sessions:
            threading.Thread(target=session.serve, daemon=True).start()
        for mount_point in mounted:
            _open_a_file(mount_point)
        send_message(READY, "")
        while os.read(sys.stdin.fileno(), 1):
            pass
    except _MountRefused as error:
        send_message(REFUSED, str(error))
    except TrainyardError as error:
        send_message(CANNOT, error.message)
    finally:
        for mount_point in mounted:
            # The agent may have unmounted it already.
            with suppress(OSError):
                unmount(str(mount_point))
        # Does not wait for threads that are still fetching.
        os._exit(0)


def send_message(kind: str, text: str) -> None:
    """Send a message to the agent, but never wait for it."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps({"kind": kind, "text": text[:1000]}).encode() + b"\n")


def _open_a_file(folder: Path) -> None:
    """Open and close a file once, so that the kernel learns not to send requests for that.

    Otherwise the first program that ends with an open file would wait for this process, and could not be killed.
    """
    for parent, _, names in os.walk(folder):
        if names:
            os.close(os.open(f"{parent}/{names[0]}", os.O_RDONLY | os.O_CLOEXEC))
            return


class _MountRefused(Exception):
    """The machine does not permit mounting."""


class _ChannelServer:
    """Mounts the channels of one instance and reads their objects."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._pool = ThreadPoolExecutor(_THREADS)
        store = open_store(spec.objects)
        assert isinstance(store, IsRemote), "objects on this machine are files already"
        self._versions = store.versions

    def open(self, channels: Sequence[ChannelSpec], mounted: list[Path]) -> list[FuseSession]:
        """Mount all channels and add their folders to `mounted`; _MountRefused when that is not permitted."""
        trees = [self._tree(channel) for channel in channels]
        return [self._session(channel, tree, mounted) for channel, tree in zip(channels, trees, strict=True)]

    def _session(self, channel: ChannelSpec, tree: ChannelTree, mounted: list[Path]) -> FuseSession:
        cache = BlockCache(self._cache_folder(channel), self._cache_bytes())
        reader = BlockReader(tree.files, self._fetch, cache=cache, pool=self._pool)
        common = FileAttributes(os.geteuid(), os.getegid(), int(time.time()))
        mount_point = self._folder.channels / channel.name
        try:
            device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
            mount_channel(device, mount_point)
        except OSError as error:
            raise _MountRefused(f"{error.filename}: {error.strerror}") from error
        mounted.append(mount_point)
        return FuseSession(device, tree, reader, common=common, report=_error_reporter(channel))

    def _fetch(self, file: RemoteFile, offset: int, size: int) -> bytes:
        return self._versions.from_listing(file.where, etag=file.etag, size=file.size).read(offset, size)

    def _cache_folder(self, channel: ChannelSpec) -> Path:
        return Path(channel.cache, "blocks") if channel.cache else self._folder.scratch / "remote" / channel.name

    def _cache_bytes(self) -> int:
        disk = os.statvfs(self._folder.root)
        return min(self._spec.objects.cache_bytes, disk.f_bavail * disk.f_frsize // _FREE_SHARE)

    def _tree(self, channel: ChannelSpec) -> ChannelTree:
        tree = ChannelTree()
        for where, size, etag in self._objects(channel):
            path = channel_file_path(where.key, channel.prefix)
            if path is None:
                raise _unusable(where, channel, "its key is not a path that a file can have")
            try:
                tree.add(path, where, size=size, etag=etag)
            except PathTaken as error:
                why = "the key of another object in the channel is a part of its key"
                raise _unusable(where, channel, why) from error
        return tree

    def _objects(self, channel: ChannelSpec) -> Iterator[tuple[Location, int, str]]:
        bucket = BucketRef(self._spec.account, channel.bucket)
        locations = [Location(bucket, key) for key in channel.keys]
        if channel.etags:
            yield from zip(locations, channel.sizes, channel.etags, strict=True)
            return
        for where, info in zip(locations, self._pool.map(self._info, locations), strict=True):
            if info is None:
                raise _unusable(where, channel, "it does not exist")
            yield where, info.size, info.etag

    def _info(self, where: Location) -> ObjectInfo | None:
        try:
            return self._versions.newest(where).info
        except NotFound:
            return None


def _error_reporter(channel: ChannelSpec) -> Callable[[RemoteFile, Exception], None]:
    def report(file: RemoteFile, error: Exception) -> None:
        log.warning("an object cannot be read", extra={"object": str(file.where), "why": str(error)})
        why = str(error).removesuffix(".")
        if isinstance(error, ObjectReplaced):
            why = "it was replaced after the job had begun"
        elif isinstance(error, NotFound):
            why = "it was deleted after the job had begun"
        send_message(TROUBLE, f"The object {file.where} of channel {channel.name} cannot be read: {why}.")

    return report


def _unusable(where: Location, channel: ChannelSpec, why: str) -> TrainyardError:
    return TrainyardError(f"The object {where} of channel {channel.name} cannot be staged: {why}.")
