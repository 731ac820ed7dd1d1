"""One request for a page: who asks, for what, and the kinds of answers to it."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from trainyard.server.dashboard.api import YardApi
from trainyard.server.dashboard.events import Events
from trainyard.server.dashboard.rendering import to_json
from trainyard.server.dashboard.sessions import Session
from trainyard.server.http.body import RequestBody, read_whole
from trainyard.server.http.connections import EXTENSION
from trainyard.server.identity import Caller
from trainyard.wire.http import FileSlice, Headers

if TYPE_CHECKING:
    from trainyard.server.dashboard.app import Dashboard

MAX_BODY_BYTES = 4 * 1024 * 1024
# Before anybody is signed in.
MAX_SIGN_IN_BYTES = 16 * 1024
_PIECE_BYTES = 256 * 1024


class BadRequest(Exception):
    """The body or a parameter of a request is invalid; the message says how."""


@dataclass(frozen=True)
class Visit:
    """A request for a page. Only a public route may be visited without a session."""

    dashboard: "Dashboard"
    request: Request
    now: datetime
    session: Session | None

    @cached_property
    def api(self) -> YardApi:
        """The public API as the user who is signed in."""
        return self.dashboard.api_of(self.user)

    @property
    def user(self) -> Caller:
        assert self.session is not None, "public routes do not ask"
        return self.session.caller

    @property
    def path(self) -> Mapping[str, str]:
        """The parameters in the path, such as the name of a job."""
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def wants_page(self) -> bool:
        """Whether a person's browser asks, not a page's script."""
        return "text/html" in self.request.headers.get("accept", "")

    def query_int(self, name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
        """Return a number of the query, within its limits. BadRequest if it is no number."""
        given = self.query.get(name, "")
        if not given:
            return default
        try:
            return min(most, max(least, int(given)))
        except ValueError:
            raise BadRequest(f'{name} must be a whole number, not "{given[:100]}".') from None

    async def read_json(self) -> dict[str, Any]:
        """Return the JSON object in the body. BadRequest if it is something else."""
        try:
            value = json.loads(await self._read_body(MAX_BODY_BYTES))
        except (ValueError, RecursionError):
            raise BadRequest("The body of the request is not JSON.") from None
        if not isinstance(value, dict):
            raise BadRequest("The body of the request is not a JSON object.")
        return value

    async def read_form(self) -> dict[str, str]:
        """Return the fields of a form; of repeated ones, the last."""
        limit_bytes = MAX_BODY_BYTES if self.session else MAX_SIGN_IN_BYTES
        body = (await self._read_body(limit_bytes)).decode("utf-8", "replace")
        return {name: values[-1] for name, values in parse_qs(body, keep_blank_values=True).items()}

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a template, such as "jobs/jobs.html". What the frame of every page shows is added."""
        page = self.dashboard.templates.get_template(template)
        return HTMLResponse(page.render(visit=self, dashboard=self.dashboard, **values), status)

    def json(self, value: Any, *, status: int = 200) -> Response:
        return Response(to_json(value), status, media_type="application/json")

    def redirect(self, address: str) -> Response:
        """Send the browser to another page, with a GET."""
        return RedirectResponse(quote(address, safe="/?&=:%#,+-_.~@"), 303)

    def events(self, events: Events) -> Response:
        """Answer with server-sent events, until they end, the browser leaves, or the session ends."""
        return self.dashboard.streams.answer(events, is_allowed=lambda: self.dashboard.has_session(self.request))

    @property
    def last_event_id(self) -> str:
        """The id of the last event that the browser got before it lost its connection."""
        return self.request.headers.get("last-event-id", "") or self.query.get("last-event-id", "")

    def download(self, body: bytes | FileSlice | AsyncIterable[bytes], name: str, *, size_bytes: int = -1) -> Response:
        """Answer with a file to save. It is never shown in the browser as a page of the yard."""
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
        if size_bytes >= 0:
            headers["content-length"] = str(size_bytes)
        content = _pieces(body) if isinstance(body, FileSlice) else body
        if isinstance(content, bytes):
            return Response(content, headers=headers, media_type="application/octet-stream")
        return StreamingResponse(content, headers=headers, media_type="application/octet-stream")

    def error(self, message: str, *, status: int, code: str = "", title: str = "") -> Response:
        """Answer with an error: a page for a person, JSON for a script."""
        if not self.wants_page:
            return JSONResponse({"error": {"code": code, "message": message}}, status)
        return self.render("error.html", status=status, title=title or _TITLES.get(status, "Error"), message=message)

    async def _read_body(self, limit_bytes: int) -> bytes:
        scope = self.request.scope
        connection = scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
        headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        wake = connection.wake if connection is not None else _do_nothing
        body = RequestBody(self.request.receive, headers, intake=self.dashboard.bodies, wake=wake)
        if self.session is None:
            address = self.request.client.host if self.request.client else ""
            body.hold = lambda size_bytes: self.dashboard.bodies.hold(body, address, size_bytes)
        try:
            return await read_whole(body, limit_bytes, route=None)
        finally:
            self.dashboard.bodies.release(body)


_TITLES = {
    400: "This request cannot be answered",
    401: "You are not signed in",
    403: "You may not see this",
    404: "There is nothing here",
    409: "This cannot be done now",
    500: "The yard failed",
    503: "Not available now",
}


def _do_nothing() -> None:
    """Stand in for `Connection.wake` when a request has no connection."""


async def _pieces(body: FileSlice) -> AsyncIterator[bytes]:
    with body.file as file:
        file.seek(body.offset)
        left = body.size
        while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
            left -= len(piece)
            yield piece
