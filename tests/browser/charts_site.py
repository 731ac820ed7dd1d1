"""A page with nothing but places for charts, served under the content security policy of the dashboard."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trainyard

STATIC = Path(trainyard.__file__).parent / "server" / "dashboard" / "static"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'"

_PAGE = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Charts</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
<div id="one"></div><div id="two"></div><div id="three"></div>
"""
_STYLES = b"""
:root { --text: rgb(20, 24, 31); --text-faint: #5d6877; --line: #dfe3e9; --surface: #ffffff; --accent: #2f5fde;
  --chart-1: rgb(0, 0, 255); --chart-2: rgb(255, 0, 0); }
:root[data-theme=dark] { --text: #e6e9ee; --text-faint: #98a2b1; --line: #2b323d; --surface: #14181f;
  --chart-1: rgb(0, 255, 0); --chart-2: rgb(255, 255, 0); }
body { margin: 16px; font: 14px ui-sans-serif, system-ui, sans-serif; color: var(--text); background: var(--surface); }
body > div { margin-bottom: 16px; }
"""


class _Site(SimpleHTTPRequestHandler):
    """The static files of the dashboard, and the page at `/`."""

    def do_GET(self) -> None:
        pages = {"/": ("text/html; charset=utf-8", _PAGE), "/page.css": ("text/css", _STYLES)}
        if self.path not in pages:
            super().do_GET()
            return
        kind, body = pages[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serve_charts() -> Iterator[str]:
    """Serve the page, and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Site, directory=str(STATIC)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
