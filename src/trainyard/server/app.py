"""The yard's ASGI app. Each request passes through three lists of handlers, the table of contents of this module.

REQUEST ends with the result of the operation. If a step raises, the first handler in FAULT that knows the error turns
it into an AWS fault. RESPONSE completes the response in both cases.
"""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from typing import Any, cast

from trainyard import __version__
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import Corrupt, TrainyardError
from trainyard.server.http.body import BodyIntake, ParserThread, Receive, RequestBody, read_whole
from trainyard.server.http.connections import EXTENSION, Connection
from trainyard.server.identity import Caller, Credential, InvalidCredential
from trainyard.server.services.contract import Call, Operation, PlainOperation, Shape, Yard
from trainyard.server.services.registry import service
from trainyard.wire.fault import Fault
from trainyard.wire.http import ClosableBytes, FileSlice, Headers, HttpRequest, HttpResponse
from trainyard.wire.limits import DEFAULT_LIMITS, check_address, limits_of, too_large
from trainyard.wire.link_headers import with_link_headers
from trainyard.wire.payload import VerifiedStream
from trainyard.wire.refusal import Family, Reason, RequestRefused
from trainyard.wire.routing import Route, Router
from trainyard.wire.signature import check_signed_request, parse_authorization, verify, verify_body
from trainyard.wire.signed_request import SignedRequest
from trainyard.wire.validation import validator

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

# Addresses of the yard itself. The name of a bucket starts with neither an underscore nor a dash.
# Answered without a signature. A client that logs in compares the fingerprint of the authority before it trusts it.
HEALTH, AUTHORITY = "/_trainyard/health", "/_trainyard/ca.pem"
PAGES = "/-/"

_READ_BYTES = 256 * 1024
# A body up to this size is parsed on the loop, in 2 ms at worst.
_INLINE_PARSE_BYTES = 16 * 1024


@dataclass(slots=True)
class Exchange:
    """One request and what the steps have found out about it."""

    http: HttpRequest
    body: RequestBody
    connection: Connection | None = None
    # The address of the client.
    address: str = ""
    request_id: str = ""
    signed: SignedRequest | None = None
    credential: Credential | None = None
    route: Route | None = None
    operation: Operation | None = None
    caller: Caller | None = None
    region: str = ""
    stream: VerifiedStream | None = None
    shape: Shape = field(default_factory=dict)
    result: Shape = field(default_factory=dict)
    fault: Fault | None = None
    response: HttpResponse = field(default_factory=lambda: HttpResponse(500))

    @property
    def matched_route(self) -> Route:
        assert self.route is not None, "match_operation runs first"
        return self.route


@dataclass(frozen=True, slots=True)
class AboutYard:
    """What anyone may know of a yard: its region, and the certificate of its authority."""

    region: str = ""
    authority: bytes = b""


@dataclass(frozen=True, slots=True)
class App:
    """The ASGI callable. Blocking work runs in the default executor of its loop."""

    yard: Yard
    router: Router
    clock: Clock
    body_limit_bytes: int
    bodies: BodyIntake = field(default_factory=BodyIntake)
    parsing: ParserThread = field(default_factory=ParserThread)
    about: AboutYard = field(default_factory=AboutYard)
    # The pages for browsers; None if the yard has none.
    pages: AsgiApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the listeners use neither lifespan nor websockets"
        if scope["path"] == HEALTH:
            await _send_response(scope, send, health(self.about), receive=receive)
            return
        if scope["path"] == AUTHORITY:
            await _send_response(scope, send, _content("application/x-pem-file", self.about.authority), receive=receive)
            return
        if self.pages is not None and _is_for_pages(scope):
            await self.pages(scope, receive, send)
            return
        http = _http_request(scope)
        connection = _connection(scope)
        wake = connection.wake if connection is not None else _do_nothing
        body = RequestBody(receive, http.headers, intake=self.bodies, wake=wake)
        exchange = Exchange(http, body, connection, (scope.get("client") or ("",))[0])
        try:
            for step in REQUEST:
                await step(self, exchange)
        except Exception as error:
            exchange.fault = next(fault for handle in FAULT if (fault := handle(exchange, error)))
        self.bodies.release(body)
        for finish in RESPONSE:
            finish(self, exchange)
        await _send_response(scope, send, exchange.response, receive=receive)


async def assign_request_id(_app: App, exchange: Exchange) -> None:
    exchange.request_id = secrets.token_hex(8).upper()


async def match_operation(app: App, exchange: Exchange) -> None:
    check_address(exchange.http.path, exchange.http.query)
    exchange.http = with_link_headers(exchange.http)
    if not app.router.needs_body(exchange.http):
        exchange.route = app.router.match(exchange.http)


async def check_caller(app: App, exchange: Exchange) -> None:
    """Reject a request that no body could make valid: unsigned, with an unknown key, or signed at another time."""
    signed = parse_authorization(exchange.http)
    if signed is None:
        raise RequestRefused(Reason.UNSIGNED)
    now = app.clock()
    check_signed_request(signed, exchange.http, now=now, family=_family(exchange.route))
    identities = app.yard.identities
    credential = identities.resolve_cached(signed.access_key_id, signed.session_token, now=now)
    if credential is None:
        credential = await asyncio.to_thread(identities.resolve, signed.access_key_id, signed.session_token, now=now)
    exchange.signed, exchange.credential = signed, credential


async def match_operation_in_form(app: App, exchange: Exchange) -> None:
    """Match the operation of the query protocol, whose requests name it in the body."""
    if exchange.route is None:
        await _read_unauthenticated_body(app, exchange)
        exchange.route = app.router.match(exchange.http)


async def verify_signature(app: App, exchange: Exchange) -> None:
    signed, credential = exchange.signed, exchange.credential
    assert signed is not None, "the caller is checked before"
    assert credential is not None, "the caller is checked before"
    family = _family(exchange.matched_route)
    is_declared = family is Family.S3 or signed.declares_body
    if not is_declared:
        await _read_unauthenticated_body(app, exchange)
    seed = verify(
        signed,
        exchange.http,
        secret=credential.secret,
        now=app.clock(),
        family=family,
        labels=exchange.matched_route.labels,
    )
    _hold_for_account(app, exchange, credential.caller.account)
    if exchange.connection is not None:
        exchange.connection.mark_authenticated()
    exchange.caller, exchange.region = credential.caller, signed.region
    if family is Family.S3:
        exchange.stream = VerifiedStream(exchange.body, signed=signed, seed=seed, headers=exchange.http.headers)
    elif is_declared:
        await _read_body(app, exchange, exchange.body)
        verify_body(signed, exchange.http.body)


async def find_operation(_app: App, exchange: Exchange) -> None:
    route = exchange.matched_route
    exchange.operation = service(route.service).operations.get(route.operation.name)
    if exchange.operation is None:
        raise _not_served_fault(route)


async def read_authenticated_body(app: App, exchange: Exchange) -> None:
    """Read the body of an S3 request unless it is a stream. S3 bodies are verified while they are read."""
    if exchange.stream is None or exchange.matched_route.codec.takes_stream(exchange.matched_route.operation):
        return
    await _read_body(app, exchange, exchange.stream)


async def parse_shape(app: App, exchange: Exchange) -> None:
    """Parse and validate the request. A long body is parsed in another thread, so that other requests do not wait."""
    assert exchange.caller is not None, "the signature is verified before"
    if len(exchange.http.body) <= _INLINE_PARSE_BYTES and "content-encoding" not in exchange.http.headers:
        _parse_and_validate(exchange)
    else:
        await app.parsing.run(exchange.caller.account, lambda: _parse_and_validate(exchange))


async def dispatch(app: App, exchange: Exchange) -> None:
    assert exchange.caller is not None, "the signature is verified before"
    assert exchange.operation is not None, "the operation is found before"
    call = Call(app.yard, exchange.caller, exchange.region, exchange.request_id, app.clock(), exchange.http)
    if inspect.iscoroutinefunction(exchange.operation):
        exchange.result = await exchange.operation(call, exchange.shape)
    else:
        exchange.result = await asyncio.to_thread(cast(PlainOperation, exchange.operation), call, exchange.shape)


async def serialise_shape(_app: App, exchange: Exchange) -> None:
    route = exchange.matched_route
    exchange.response = route.codec.serialise(route, exchange.result, request_id=exchange.request_id)


def refusal_to_fault(exchange: Exchange, error: Exception) -> Fault | None:
    if isinstance(error, InvalidCredential):
        error = RequestRefused(Reason[error.problem.name])
    if not isinstance(error, RequestRefused):
        return None
    return error.fault(_family(exchange.route))


def known_error_to_fault(exchange: Exchange, error: Exception) -> Fault | None:
    if not isinstance(error, TrainyardError):
        return None
    return service(exchange.route.service if exchange.route else "").faults.fault(error)


def unknown_error_to_internal_failure(exchange: Exchange, error: Exception) -> Fault | None:
    operation = exchange.route.operation.name if exchange.route else exchange.http.path
    log.error("operation broke", exc_info=error, extra={"operation": operation, "request": exchange.request_id})
    message = f"The yard failed in {operation}; find the cause in its log under request {exchange.request_id}."
    return Fault("InternalFailure", message, status=500)


def serialise_fault(app: App, exchange: Exchange) -> None:
    if exchange.fault is None:
        return
    codec = exchange.route.codec if exchange.route else app.router.fault_codec(exchange.http)
    exchange.response = codec.serialise_fault(
        exchange.fault,
        request_id=exchange.request_id,
        route=exchange.route,
        is_head=exchange.http.method == "HEAD",
    )


def close_when_body_is_unread(_app: App, exchange: Exchange) -> None:
    # A client that waits for "100 Continue" never sends the body of a refused request, and the next request on the
    # connection would be taken for that body. After an aborted body, the rest does not come either.
    if ("expect" in exchange.http.headers and not exchange.body.is_begun) or exchange.body.is_aborted:
        exchange.response.headers.append(("connection", "close"))


def log_call(_app: App, exchange: Exchange) -> None:
    log.debug(
        "call answered",
        extra={
            "request": exchange.request_id,
            "operation": exchange.route.operation.name if exchange.route else None,
            "account": exchange.caller.account if exchange.caller else None,
            "status": exchange.response.status,
            "fault": exchange.fault.code if exchange.fault else None,
        },
    )


REQUEST = (
    assign_request_id,
    match_operation,
    check_caller,
    match_operation_in_form,
    verify_signature,
    find_operation,
    read_authenticated_body,
    parse_shape,
    dispatch,
    serialise_shape,
)
FAULT = (refusal_to_fault, known_error_to_fault, unknown_error_to_internal_failure)
RESPONSE = (serialise_fault, close_when_body_is_unread, log_call)


def health(about: AboutYard) -> HttpResponse:
    facts = {"service": "trainyard", "version": __version__, "pid": os.getpid(), "region": about.region}
    return _content("application/json", json.dumps(facts).encode())


def _content(kind: str, body: bytes) -> HttpResponse:
    return HttpResponse(200, [("content-type", kind), ("content-length", str(len(body)))], body)


def _is_for_pages(scope: Scope) -> bool:
    """Whether a browser asks for a page: one of the dashboard, or the yard's address itself without a signature."""
    path: str = scope["path"]
    if path.startswith(PAGES) or path == PAGES.rstrip("/"):
        return True
    if path != "/" or scope["method"] != "GET" or scope["query_string"]:
        return False
    headers = dict(scope["headers"])
    return b"authorization" not in headers and b"text/html" in headers.get(b"accept", b"")


def _http_request(scope: Scope) -> HttpRequest:
    return HttpRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        is_secure=scope["scheme"] == "https",
    )


def _connection(scope: Scope) -> Connection | None:
    found: Connection | None = scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    return found


def _do_nothing() -> None:
    """Stand in for `Connection.wake` when a request has no connection."""


def _hold_for_account(app: App, exchange: Exchange, account: str) -> None:
    """Count further pieces of the body to the account that signed the request."""
    body = exchange.body
    app.bodies.release(body)
    if not body.is_read:
        body.hold = lambda size_bytes: app.bodies.hold_for_account(body, account, size_bytes)


async def _read_body(app: App, exchange: Exchange, stream: AsyncIterable[bytes]) -> None:
    """Read the whole body into memory, up to the limit of its operation."""
    operation = exchange.route.operation if exchange.route else None
    limits = limits_of(operation) if operation is not None else DEFAULT_LIMITS
    limit_bytes = min(limits.size_bytes, app.body_limit_bytes)
    announced = exchange.body.announced_bytes
    if announced is not None and announced > limit_bytes:
        raise too_large(operation, limit_bytes, size_bytes=announced)
    exchange.http.body = await read_whole(stream, limit_bytes, route=exchange.route)


async def _read_unauthenticated_body(app: App, exchange: Exchange) -> None:
    body = exchange.body
    if not body.is_read:
        body.hold = lambda size_bytes: app.bodies.hold(body, exchange.address, size_bytes)
        await _read_body(app, exchange, body)


def _parse_and_validate(exchange: Exchange) -> None:
    route = exchange.matched_route
    exchange.shape = route.codec.parse(exchange.http, route, exchange.stream)
    validator(route.service, route.operation)(exchange.shape)


def _family(route: Route | None) -> Family:
    # Only a call of the query protocol has no route before its body arrives.
    if route is None:
        return Family.QUERY
    if route.service == "s3":
        return Family.S3
    return Family.QUERY if route.operation.service_model.protocol in ("query", "ec2") else Family.JSON


def _not_served_fault(route: Route) -> Fault:
    name = route.operation.name
    message = f"Trainyard does not serve the {route.service} operation {name}."
    if _family(route) is Family.S3:
        return Fault("NotImplemented", message, status=501)
    return Fault("InvalidAction" if _family(route) is Family.QUERY else "UnknownOperationException", message)


async def _send_response(scope: Scope, send: Send, response: HttpResponse, *, receive: Receive) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    body = response.body
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
        return
    connection = _connection(scope)
    if isinstance(body, FileSlice):
        with body.file:
            if connection and connection.sends_files:
                await connection.send_file(body)
            else:
                await _send_pieces(_read_pieces(body), send, connection=connection)
    elif any(name.lower() == "content-length" for name, _ in response.headers):
        await _send_pieces(body, send, connection=connection)
    else:
        await _send_until_disconnect(_send_pieces(body, send, connection=connection), receive)
    if connection is None or not connection.is_closed:
        await send({"type": "http.response.body", "body": b""})


async def _send_pieces(pieces: ClosableBytes, send: Send, *, connection: Connection | None) -> None:
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if connection and connection.is_closed:
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _send_until_disconnect(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Send a body that may pause for a long time. Stop as soon as the client disconnects."""
    tasks = [asyncio.create_task(sending), asyncio.create_task(_wait_for_disconnect(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(ends[0], Exception):
        raise ends[0]


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_pieces(slice_: FileSlice) -> AsyncGenerator[bytes, None]:
    offset, end = slice_.offset, slice_.offset + slice_.size
    while offset < end:
        piece = await asyncio.to_thread(os.pread, slice_.file.fileno(), min(_READ_BYTES, end - offset), offset)
        if not piece:
            raise Corrupt(f"A stored file ends after {offset} bytes instead of the announced {end}.")
        yield piece
        offset += len(piece)
