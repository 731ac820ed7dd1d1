"""A package index with a password, served on this machine."""

import base64
import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, PASSWORD = "yard", "opensesame"


class PrivateIndex:
    """`url` contains the password; `asked` lists the answered requests with their status."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[tuple[str, str, int]] = []

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@{self.address}/private/simple"


@contextlib.contextmanager
def private_index(files: Sequence[Path], *, link: str = "/packages/{name}") -> Iterator[PrivateIndex]:
    """Serve some wheels; `link` builds the link to one on its pages, from its name and digest."""
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    stored = {file.name: file.read_bytes() for file in files}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self._answer(401, b"")
            elif self.path.startswith("/packages/") and (name := self.path.rpartition("/")[2]) in stored:
                self._answer(200, stored[name], kind="application/octet-stream")
            elif self.path.startswith("/private/simple/"):
                wanted = self.path.removeprefix("/private/simple/").strip("/")
                names = [name for name in stored if name.partition("-")[0] == wanted]
                address = index.address
                links = "".join(
                    f'<a href="{link.format(name=name, address=address, digest=_digest(stored[name]))}">{name}</a>'
                    for name in names
                )
                self._answer(200 if names else 404, f"<html><body>{links}</body></html>".encode())
            else:
                self._answer(200, b"the secret of the index")

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, status: int, body: bytes, *, kind: str = "text/html") -> None:
            index.asked.append((self.command, self.path, status))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = PrivateIndex(f"127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
