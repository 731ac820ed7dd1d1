"""Answers the kernel's requests for one mounted channel."""

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.instance.agent.data.remote_files import fuse
from trainyard.instance.agent.data.remote_files.blocks import BlockReader
from trainyard.instance.agent.data.remote_files.fuse import FileAttributes, FuseRequest, Opcode
from trainyard.instance.agent.data.remote_files.tree import ChannelTree, RemoteFile
from trainyard.instance.sandbox.system_calls import MS_NODEV, MS_NOSUID, mount

DEVICE = "/dev/fuse"

_READ_ONLY, _NO_ACCESS_TIMES = 0x1, 0x400
_UNANSWERED = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET})

log = logging.getLogger(__name__)


def mount_channel(device: int, folder: Path) -> None:
    """Mount an open FUSE device on a folder, readable for every user; OSError when that is not permitted."""
    options = f"fd={device},rootmode=40555,user_id=0,group_id=0,allow_other,default_permissions"
    flags = MS_NOSUID | MS_NODEV | _READ_ONLY | _NO_ACCESS_TIMES
    mount("trainyard", str(folder), kind="fuse.trainyard", flags=flags, options=options)
    _raise_read_ahead(folder)


class FuseSession:
    """Answers the requests of one mount until it is unmounted. Names and attributes never wait for the remote S3.

    When a file cannot be read, its reader gets EIO, and `report` is called once per file with the error.
    """

    def __init__(
        self,
        device: int,
        tree: ChannelTree,
        reader: BlockReader,
        *,
        common: FileAttributes,
        report: Callable[[RemoteFile, Exception], None],
    ) -> None:
        self._device = device
        self._tree = tree
        self._reader = reader
        self._common = common
        self._report = report
        self._reported: set[int] = set()
        self._lock = threading.Lock()
        # Reads that are not answered yet.
        self._waiting: set[int] = set()
        self._answers: dict[int, Callable[[FuseRequest], bytes]] = {
            Opcode.LOOKUP: self._look_up,
            Opcode.GETATTR: lambda request: fuse.attributes_reply(tree.node(request.node), common),
            Opcode.STATFS: lambda _: fuse.statfs_reply(len(tree.files), tree.size_bytes),
            Opcode.INIT: lambda request: fuse.init_reply(fuse.read_features(request.body)),
            Opcode.READDIR: lambda request: self._list(request, None),
            Opcode.READDIRPLUS: lambda request: self._list(request, common),
        }

    def serve(self) -> None:
        while True:
            try:
                message = os.read(self._device, fuse.BUFFER_BYTES)
            except InterruptedError:
                continue
            except OSError as error:
                # The process that made the request was killed before it was read.
                if error.errno == errno.ENOENT:
                    continue
                # ENODEV means that the channel was unmounted.
                if error.errno != errno.ENODEV:
                    log.error("a FUSE device cannot be read", extra={"why": error.strerror})
                return
            request = fuse.read_request(message)
            try:
                self._handle(request)
            except Exception:
                # One bad request must not block all others.
                log.exception("a request failed", extra={"code": request.code})
                self._send(request.unique, (), error=errno.EIO)

    def _handle(self, request: FuseRequest) -> None:
        if request.code == Opcode.READ:
            self._handle_read(request)
        elif request.code == Opcode.INTERRUPT:
            self._interrupt(fuse.read_interrupted(request.body))
        elif request.code not in _UNANSWERED:
            answer = self._answers.get(request.code)
            if answer is None:
                self._send(request.unique, (), error=errno.ENOSYS)
            else:
                self._send(request.unique, (answer(request),))

    def _look_up(self, request: FuseRequest) -> bytes:
        node = self._tree.child(request.node, request.body.rstrip(b"\0"))
        return fuse.no_entry_reply() if node is None else fuse.entry_reply(node, self._common)

    def _list(self, request: FuseRequest, common: FileAttributes | None) -> bytes:
        span, entries = fuse.read_span(request.body), b""
        for offset, (name, node) in enumerate(self._tree.children(request.node, span.offset), span.offset + 1):
            one = fuse.directory_entry(name, node, next_offset=offset, common=common)
            if len(entries) + len(one) > span.size:
                break
            entries += one
        return entries

    def _handle_read(self, request: FuseRequest) -> None:
        file, unique = self._tree.file(request.node), request.unique
        if file is None:
            self._send(unique, (), error=errno.EISDIR)
            return
        span = fuse.read_span(request.body)
        with self._lock:
            self._waiting.add(unique)

        def answer(result: Sequence[bytes | memoryview] | Exception) -> None:
            with self._lock:
                if unique not in self._waiting:
                    return
                self._waiting.discard(unique)
            if isinstance(result, Exception):
                self._report_error(file, result)
                self._send(unique, (), error=errno.EIO)
            else:
                self._send(unique, result)

        self._reader.read_span(file, span.offset, span.size, answer)

    def _interrupt(self, unique: int) -> None:
        """Release a process that must end while it waits for a read."""
        with self._lock:
            if unique not in self._waiting:
                return
            self._waiting.discard(unique)
        self._send(unique, (), error=errno.EINTR)

    def _report_error(self, file: RemoteFile, error: Exception) -> None:
        with self._lock:
            if file.number in self._reported:
                return
            self._reported.add(file.number)
        self._report(file, error)

    def _send(self, unique: int, pieces: Sequence[bytes | memoryview], *, error: int = 0) -> None:
        size = sum(len(piece) for piece in pieces)
        # Fails when the request was interrupted or the channel unmounted.
        with suppress(OSError):
            os.writev(self._device, (fuse.reply_header(unique, size, error=error), *pieces))


def _raise_read_ahead(folder: Path) -> None:
    """Raise the kernel's read-ahead above its 128 KiB, if the machine permits it."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    device = next((fields[2] for fields in reversed(lines) if fields[4] == str(folder)), "")
    with suppress(OSError):
        Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(fuse.AHEAD_BYTES // 1024))
