"""Real gateways: a mail server and an HTTP server on this machine, which keep what they receive."""

import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Mail:
    sender: str
    recipients: list[str]
    text: str


@dataclass
class Mailbox:
    """The mail that a server received, and its address. It refuses the first `refusals` connections temporarily."""

    port: int = 0
    refusals: int = 0
    mails: list[Mail] = field(default_factory=list)


class _Smtp(socketserver.StreamRequestHandler):
    """Speaks enough SMTP to receive a mail."""

    def handle(self) -> None:
        mailbox: Mailbox = self.server.mailbox  # type: ignore[attr-defined]  # set below
        if mailbox.refusals:
            mailbox.refusals -= 1
            self._say("421 busy, come again")
            return
        self._say("220 test")
        mail = Mail("", [], "")
        while line := self.rfile.readline().decode().strip():
            verb = line.upper()
            if verb.startswith("MAIL FROM:"):
                mail = Mail(line[10:].split("<")[1].split(">")[0], [], "")
            elif verb.startswith("RCPT TO:"):
                address = line[8:].split("<")[1].split(">")[0]
                if address.startswith("nobody"):
                    self._say("550 no such user")
                    continue
                mail.recipients.append(address)
            elif verb == "DATA":
                self._say("354 go on")
                mail.text = self._data()
                mailbox.mails.append(mail)
            elif verb == "QUIT":
                self._say("221 bye")
                return
            self._say("250 fine")

    def _data(self) -> str:
        lines: list[str] = []
        while (line := self.rfile.readline().decode()) not in (".\r\n", ""):
            lines.append(line.rstrip("\r\n"))
        return "\n".join(lines)

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())


@dataclass
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def values(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.body)
        return found


@dataclass
class Hook:
    """The requests that an HTTP server received. It answers with `statuses` in turn, and then with the last one."""

    statuses: Sequence[int] = (200,)
    port: int = 0
    posted: list[Posted] = field(default_factory=list)


class _Http(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hook: Hook = self.server.hook  # type: ignore[attr-defined]  # set below
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = hook.statuses[min(len(hook.posted), len(hook.statuses) - 1)]
        hook.posted.append(Posted(self.path, dict(self.headers), body))
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"heard")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base class names it so
        """Log nothing; the test reads the requests."""


@contextmanager
def mail_server(refusals: int = 0) -> Iterator[Mailbox]:
    mailbox = Mailbox(refusals=refusals)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp) as server:
        server.daemon_threads = True
        server.mailbox = mailbox  # type: ignore[attr-defined]  # for the handler
        mailbox.port = server.server_address[1]
        with _serving(server):
            yield mailbox


@contextmanager
def http_server(*statuses: int) -> Iterator[Hook]:
    hook = Hook(statuses or (200,))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Http) as server:
        server.daemon_threads = True
        server.hook = hook  # type: ignore[attr-defined]  # for the handler
        hook.port = server.server_address[1]
        with _serving(server):
            yield hook


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
