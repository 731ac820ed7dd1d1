"""One mounted channel: the kernel's requests, and our answers."""

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.instance.agent.remote_files import protocol
from trainyard.instance.agent.remote_files.blocks import BlockReader
from trainyard.instance.agent.remote_files.protocol import Code, Look, Request
from trainyard.instance.agent.remote_files.tree import RemoteFile, Tree
from trainyard.instance.sandbox.system_calls import MS_NODEV, MS_NOSUID, mount

DEVICE = "/dev/fuse"

_READ_ONLY, _NO_ACCESS_TIMES = 0x1, 0x400
_UNANSWERED = frozenset({Code.FORGET, Code.BATCH_FORGET})

log = logging.getLogger(__name__)


def mount_channel(device: int, folder: Path) -> None:
    """Mount an open FUSE device on a folder, for every user to read; OSError where that may not be."""
    options = f"fd={device},rootmode=40555,user_id=0,group_id=0,allow_other,default_permissions"
    flags = MS_NOSUID | MS_NODEV | _READ_ONLY | _NO_ACCESS_TIMES
    mount("trainyard", str(folder), kind="fuse.trainyard", flags=flags, options=options)
    _read_far_ahead(folder)


class Session:
    """Answers the requests of one mount until it is gone. Names and attributes never wait for the remote S3.

    `tell` hears, once for each file, why some of it cannot be read; the reader gets EIO.
    """

    def __init__(
        self, device: int, tree: Tree, reader: BlockReader, *, look: Look, tell: Callable[[RemoteFile, Exception], None]
    ) -> None:
        self._device = device
        self._tree = tree
        self._reader = reader
        self._look = look
        self._tell = tell
        self._told: set[int] = set()
        self._lock = threading.Lock()
        self._waiting: set[int] = set()  # requests to read that are not answered yet
        self._answers: dict[int, Callable[[Request], bytes]] = {
            Code.LOOKUP: self._find,
            Code.GETATTR: lambda request: protocol.attributes(tree.node(request.node), look),
            Code.STATFS: lambda _: protocol.space(len(tree.files), tree.size_bytes),
            Code.INIT: lambda request: protocol.welcome(protocol.read_features(request.body)),
            Code.READDIR: lambda request: self._list(request, None),
            Code.READDIRPLUS: lambda request: self._list(request, look),
        }

    def serve(self) -> None:
        while True:
            try:
                message = os.read(self._device, protocol.BUFFER_BYTES)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:  # its caller was killed before it was read
                    continue
                if error.errno != errno.ENODEV:  # which says that it is not mounted any more
                    log.error("a FUSE device cannot be read", extra={"why": error.strerror})
                return
            request = protocol.read_request(message)
            try:
                self._handle(request)
            except Exception:  # one request must not keep all others from being answered
                log.exception("a request failed", extra={"code": request.code})
                self._send(request.unique, (), error=errno.EIO)

    def _handle(self, request: Request) -> None:
        if request.code == Code.READ:
            self._read(request)
        elif request.code == Code.INTERRUPT:
            self._give_up(protocol.read_interrupted(request.body))
        elif request.code not in _UNANSWERED:
            answer = self._answers.get(request.code)
            if answer is None:
                self._send(request.unique, (), error=errno.ENOSYS)
            else:
                self._send(request.unique, (answer(request),))

    def _find(self, request: Request) -> bytes:
        node = self._tree.child(request.node, request.body.rstrip(b"\0"))
        return protocol.no_entry() if node is None else protocol.entry(node, self._look)

    def _list(self, request: Request, look: Look | None) -> bytes:
        span, told = protocol.read_span(request.body), b""
        for offset, (name, node) in enumerate(self._tree.children(request.node, span.offset), span.offset + 1):
            one = protocol.listed(name, node, next_offset=offset, look=look)
            if len(told) + len(one) > span.size:
                break
            told += one
        return told

    def _read(self, request: Request) -> None:
        file, unique = self._tree.file(request.node), request.unique
        if file is None:
            self._send(unique, (), error=errno.EISDIR)
            return
        span = protocol.read_span(request.body)
        with self._lock:
            self._waiting.add(unique)

        def answer(found: Sequence[bytes | memoryview] | Exception) -> None:
            with self._lock:
                if unique not in self._waiting:
                    return
                self._waiting.discard(unique)
            if isinstance(found, Exception):
                self._explain(file, found)
                self._send(unique, (), error=errno.EIO)
            else:
                self._send(unique, found)

        self._reader.read(file, span.offset, span.size, answer)

    def _give_up(self, unique: int) -> None:
        """Free a process that shall end and waits for a read."""
        with self._lock:
            if unique not in self._waiting:
                return
            self._waiting.discard(unique)
        self._send(unique, (), error=errno.EINTR)

    def _explain(self, file: RemoteFile, error: Exception) -> None:
        with self._lock:
            if file.number in self._told:
                return
            self._told.add(file.number)
        self._tell(file, error)

    def _send(self, unique: int, pieces: Sequence[bytes | memoryview], *, error: int = 0) -> None:
        size = sum(len(piece) for piece in pieces)
        with suppress(OSError):  # nobody waits for it any more, or it is not mounted any more
            os.writev(self._device, (protocol.head(unique, size, error=error), *pieces))


def _read_far_ahead(folder: Path) -> None:
    """Have the kernel ask for more at once than its 128 KiB, where it lets itself be told."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    device = next((fields[2] for fields in reversed(lines) if fields[4] == str(folder)), "")
    with suppress(OSError):
        Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(protocol.AHEAD_BYTES // 1024))
