"""The process that serves the FastFile channels of one instance: `python -I -c … PACKAGES FOLDER CHANNEL…`.

It says on its standard output, in lines of JSON, that it is `ready`, or why it `refused` or `cannot`, and then each
`trouble` that a reader gets. Its standard input is a pipe from the agent: when that ends, however the agent did, it
takes its mounts away and ends too. So nothing that a remote S3 does can hold the agent up, and nothing stays mounted.
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
from trainyard.instance.agent.channels import file_path
from trainyard.instance.agent.remote_files.blocks import BlockReader
from trainyard.instance.agent.remote_files.cache import BlockCache
from trainyard.instance.agent.remote_files.protocol import Look
from trainyard.instance.agent.remote_files.session import DEVICE, Session, mount_channel
from trainyard.instance.agent.remote_files.tree import PathTaken, RemoteFile, Tree
from trainyard.instance.agent.store import open_store
from trainyard.instance.sandbox.system_calls import unmount
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec
from trainyard.objects.contract import IsFar, ObjectInfo, Replaced

READY, REFUSED, CANNOT, TROUBLE = "ready", "refused", "cannot", "trouble"

_THREADS = 16  # each with a request under way
_FREE_SHARE = 4  # of what is free on the disk, a cache takes at most one in so many

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> NoReturn:
    write_journal(sys.stderr, "info")
    os.set_blocking(sys.stdout.fileno(), False)
    folder = InstanceFolder.at(arguments[0])
    spec = read_spec(folder.root)
    channels = [each for each in spec.channels if each.name in arguments[1:]]
    mounted: list[Path] = []
    try:
        sessions = _Yard(folder, spec).open(channels, mounted)
        for session in sessions:
            threading.Thread(target=session.serve, daemon=True).start()
        for place in mounted:
            _close_a_file(place)
        say(READY, "")
        while os.read(sys.stdin.fileno(), 1):
            pass
    except _Refused as error:
        say(REFUSED, str(error))
    except TrainyardError as error:
        say(CANNOT, error.message)
    finally:
        for place in mounted:
            with suppress(OSError):  # the agent may have been faster
                unmount(str(place))
        os._exit(0)  # without waiting for those that still fetch


def say(kind: str, text: str) -> None:
    """Tell the agent, if it listens: a reader must not wait for that."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps({"kind": kind, "text": text[:1000]}).encode() + b"\n")


def _close_a_file(folder: Path) -> None:
    """Have the kernel learn that it need not tell us when files are opened and closed.

    Otherwise the first program that ends with an open file would wait for us, and nothing could end it before.
    """
    for parent, _, names in os.walk(folder):
        if names:
            os.close(os.open(f"{parent}/{names[0]}", os.O_RDONLY | os.O_CLOEXEC))
            return


class _Refused(Exception):
    """The machine does not let us mount."""


class _Yard:
    """Makes what the channels need of the store."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._pool = ThreadPoolExecutor(_THREADS)
        store = open_store(spec.objects)
        assert isinstance(store, IsFar), "objects of this machine are shown as the files that they are"
        self._versions = store.versions

    def open(self, channels: Sequence[ChannelSpec], mounted: list[Path]) -> list[Session]:
        """Mount all, each of which is added to `mounted`; _Refused where that may not be."""
        trees = [self._tree(channel) for channel in channels]
        return [self._session(channel, tree, mounted) for channel, tree in zip(channels, trees, strict=True)]

    def _session(self, channel: ChannelSpec, tree: Tree, mounted: list[Path]) -> Session:
        cache = BlockCache(self._cache_folder(channel), self._cache_bytes())
        reader = BlockReader(tree.files, self._fetch, cache=cache, pool=self._pool)
        look = Look(os.geteuid(), os.getegid(), int(time.time()))
        place = self._folder.channels / channel.name
        try:
            device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
            mount_channel(device, place)
        except OSError as error:
            raise _Refused(f"{error.filename}: {error.strerror}") from error
        mounted.append(place)
        return Session(device, tree, reader, look=look, tell=_teller(channel))

    def _fetch(self, file: RemoteFile, offset: int, size: int) -> bytes:
        return self._versions.known(file.where, etag=file.etag, size=file.size).read(offset, size)

    def _cache_folder(self, channel: ChannelSpec) -> Path:
        return Path(channel.cache, "blocks") if channel.cache else self._folder.scratch / "remote" / channel.name

    def _cache_bytes(self) -> int:
        disk = os.statvfs(self._folder.root)
        return min(self._spec.objects.cache_bytes, disk.f_bavail * disk.f_frsize // _FREE_SHARE)

    def _tree(self, channel: ChannelSpec) -> Tree:
        tree = Tree()
        for where, size, etag in self._objects(channel):
            path = file_path(where.key, channel.prefix)
            if path is None:
                raise _unusable(where, channel, "its key is not a path that a file can have")
            try:
                tree.add(path, where, size=size, etag=etag)
            except PathTaken as error:
                why = "another object of the channel has a part of its key as its own"
                raise _unusable(where, channel, why) from error
        return tree

    def _objects(self, channel: ChannelSpec) -> Iterator[tuple[Location, int, str]]:
        bucket = BucketRef(self._spec.account, channel.bucket)
        places = [Location(bucket, key) for key in channel.keys]
        if channel.etags:
            yield from zip(places, channel.sizes, channel.etags, strict=True)
            return
        for where, found in zip(places, self._pool.map(self._info, places), strict=True):
            if found is None:
                raise _unusable(where, channel, "it does not exist")
            yield where, found.size, found.etag

    def _info(self, where: Location) -> ObjectInfo | None:
        try:
            return self._versions.newest(where).info
        except NotFound:
            return None


def _teller(channel: ChannelSpec) -> Callable[[RemoteFile, Exception], None]:
    def tell(file: RemoteFile, error: Exception) -> None:
        log.warning("an object cannot be read", extra={"object": str(file.where), "why": str(error)})
        why = str(error).removesuffix(".")
        if isinstance(error, Replaced):
            why = "it was replaced after the job had begun"
        elif isinstance(error, NotFound):
            why = "it was deleted after the job had begun"
        say(TROUBLE, f"The object {file.where} of channel {channel.name} cannot be read: {why}.")

    return tell


def _unusable(where: Location, channel: ChannelSpec, why: str) -> TrainyardError:
    return TrainyardError(f"The object {where} of channel {channel.name} cannot be brought: {why}.")
