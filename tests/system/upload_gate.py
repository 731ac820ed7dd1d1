"""A proxy to a yard that counts uploaded objects and can hold them up in the middle of an upload."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import unquote, urlsplit

from trainyard.testing.eventually import eventually

_REQUEST = re.compile(rb"(?P<method>[A-Z]+) (?P<target>\S+) HTTP/1\.1\r\n(?P<headers>.*?)\r\n\r\n", re.DOTALL)
_S3 = re.compile(rb"(?im)^authorization:.*/s3/aws4_request")
_OWNER = re.compile(rb"(?im)^x-amz-expected-bucket-owner:")
_COPY = re.compile(rb"(?i)^x-amz-copy-source:", re.MULTILINE)


class UploadGate:
    """Forwards bytes in both directions. `sent` are the paths of uploaded objects, without the yard's own copies;
    `ownerless` are the S3 calls that do not name the bucket's expected owner.

    Once `closes_after` of those below "/trees/" or "/input/" have passed, the next ones wait until `open`.
    """

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.port is not None, "the yard has no port"
        self._yard = (address.hostname or "", address.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_open = threading.Event()
        self._is_open.set()
        self._lock = threading.Lock()
        self.closes_after: int | None = None
        self.sent: list[str] = []
        self.ownerless: list[str] = []
        self.waiting = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def files_sent(self) -> list[str]:
        """The objects that are input files."""
        return [path for path in self.sent if _is_input(path)]

    def close_after(self, count: int) -> None:
        self._is_open.clear()
        self.closes_after = count

    def open(self) -> None:
        self.closes_after = None
        self._is_open.set()

    def wait_for(self, count: int) -> None:
        """Wait until this many objects are held at the gate."""
        eventually(lambda: self.waiting >= count)

    def end(self) -> None:
        self.open()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._yard) as yard:
            answers = self._start(_pass_on, yard, client, lambda _: None)
            _pass_on(client, yard, self._look_at)
            answers.join()

    def _look_at(self, data: bytes) -> None:
        # Our clients send the headers of a request at once and wait for the answer before the next.
        request = _REQUEST.match(data)
        if request is not None and _S3.search(request["headers"]) and not _OWNER.search(request["headers"]):
            self.ownerless.append(f"{request['method'].decode()} {request['target'].decode()}")
        if request is None or request["method"] != b"PUT" or _COPY.search(request["headers"]):
            return
        path = unquote(request["target"].decode()).partition("?")[0]
        with self._lock:
            self.sent.append(path)
            limit = self.closes_after
            waits = limit is not None and _is_input(path) and len(self.files_sent) > limit
            self.waiting += waits
        if waits:
            self._is_open.wait()


def _pass_on(source: socket.socket, target: socket.socket, look_at: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            look_at(data)
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _is_input(path: str) -> bool:
    return "/trees/" in path or "/input/" in path


@contextlib.contextmanager
def upload_gate(url: str) -> Iterator[UploadGate]:
    gate = UploadGate(url)
    try:
        yield gate
    finally:
        gate.end()
