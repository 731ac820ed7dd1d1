"""Clients that misuse connections harm neither the yard nor other clients."""

import socket
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainyard.testing.yard import RunningYard, running_yard

HEALTH = b"GET /_trainyard/health HTTP/1.1\r\nHost: yard\r\n"
FORM = (
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 43\r\n\r\n"
    b"Action=GetCallerIdentity&Version=2011-06-15"
)
MEBIBYTE = 1024 * 1024


def connect(yard: RunningYard, *, timeout_s: float = 20.0) -> "closing[socket.socket]":
    address = urlsplit(yard.http)
    assert address.hostname is not None
    assert address.port is not None
    return closing(socket.create_connection((address.hostname, address.port), timeout=timeout_s))


def answer(yard: RunningYard, request: bytes) -> bytes:
    """Return everything that the yard sends on a new connection, until it closes it."""
    with connect(yard) as connection:
        connection.sendall(request)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:  # closed while more was on its way
        pass
    return b"".join(pieces)


def test_headers_of_usual_length_are_taken_however_they_are_cut(yard: RunningYard) -> None:
    head = HEALTH + b"X-Long: " + b"a" * 60_000 + b"\r\nConnection: close\r\n\r\n"
    assert answer(yard, head).startswith(b"HTTP/1.1 200 OK")
    with connect(yard) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(head), 7000):
            connection.sendall(head[start : start + 7000])
            # Once the yard answers on another connection, it has read what was sent on this one.
            assert answer(yard, HEALTH + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
        assert received(connection).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "head",
    [
        HEALTH + b"X-Long: " + b"a" * 70_000 + b"\r\n\r\n",
        HEALTH + b"".join(b"X-%d: %s\r\n" % (number, b"b" * 100) for number in range(700)) + b"\r\n",
        HEALTH + b"".join(b"X-%d:\r\n" % number for number in range(700)) + b"\r\n",
        b"GET /" + b"c" * 70_000 + b" HTTP/1.1\r\nHost: yard\r\n\r\n",
    ],
    ids=["one long header", "many headers", "many short headers", "a long path"],
)
def test_a_head_that_is_too_long_is_refused(yard: RunningYard, head: bytes) -> None:
    assert answer(yard, head).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("start", [b"X-Endless: ", b"GET /"], ids=["a header", "a path"])
def test_a_head_without_an_end_is_cut_off_and_not_kept(yard: RunningYard, start: bytes) -> None:
    sent = 0
    before = resident_bytes(yard)
    with connect(yard) as connection:
        try:
            connection.sendall(HEALTH + start if start.startswith(b"X") else start)
            for _ in range(64):
                connection.sendall(b"d" * MEBIBYTE)
                sent += MEBIBYTE
        except ConnectionError:
            pass
    assert sent < 32 * MEBIBYTE, "the yard takes no more after the limit"
    assert resident_bytes(yard) - before < 8 * MEBIBYTE


def test_a_long_body_after_a_short_head_is_no_long_head(yard: RunningYard) -> None:
    body = b"e" * (2 * MEBIBYTE)
    request = b"POST /_trainyard/health HTTP/1.1\r\nHost: yard\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    last = HEALTH + b"Connection: close\r\n\r\n"
    assert answer(yard, request + last).count(b"HTTP/1.1 200 OK") == 2


def test_a_client_that_does_not_finish_its_head_is_let_go(tmp_path: Path) -> None:
    with running_yard(tmp_path / "yard", environment={"TRAINYARD_SERVER_KEEP_ALIVE": "1s"}) as impatient:
        with connect(impatient) as silent, connect(impatient) as slow:
            slow.sendall(HEALTH)
            assert received(silent) == b""
            assert received(slow) == b""
        assert answer(impatient, HEALTH + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 OK")


@pytest.mark.flow
def test_requests_in_a_row_without_waiting_are_answered_in_order(yard: RunningYard) -> None:
    unsigned = b"GET /?Action=GetUser&Version=2010-05-08 HTTP/1.1\r\nHost: yard\r\n\r\n"
    answers = answer(yard, HEALTH + b"\r\n" + unsigned + HEALTH + b"Connection: close\r\n\r\n")
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]


@pytest.mark.parametrize("rest", [b"no request at all\r\n\r\n", HEALTH + b"X-Long: " + b"f" * 70_000 + b"\r\n\r\n"])
def test_nonsense_after_a_request_does_not_tear_its_answer_apart(yard: RunningYard, rest: bytes) -> None:
    told = answer(yard, HEALTH + b"\r\n" + rest)
    assert told.startswith(b"HTTP/1.1 200 OK")
    assert told.count(b"HTTP/1.1") == 1


def test_a_body_that_cannot_be_read_ends_its_request(yard: RunningYard) -> None:
    told = answer(yard, b"POST / HTTP/1.1\r\nHost: yard\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n")
    assert told.startswith(b"HTTP/1.1 400 ")


def test_a_body_of_tiny_chunks_is_refused(yard: RunningYard) -> None:
    head = b"POST / HTTP/1.1\r\nHost: yard\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(yard) as connection:
        connection.sendall(head)
        try:
            for _ in range(100):
                connection.sendall(b"1\r\nx\r\n" * 50_000)
        except ConnectionError:
            return
    pytest.fail("the yard took five million chunks")


@pytest.mark.parametrize(
    "target",
    [b"/" + b"a/" * 20_000, b"/b?" + b"a&" * 20_000, b"/b?Signature=x&" + b"x-amz-meta-a&" * 3000],
    ids=["a long path", "many parameters", "many headers of a link"],
)
def test_an_address_that_nobody_means_is_refused_before_it_is_read(yard: RunningYard, target: bytes) -> None:
    told = answer(yard, b"GET %s HTTP/1.1\r\nHost: yard\r\nConnection: close\r\n\r\n" % target)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"<Code>InvalidURI</Code>" in told


def test_a_client_of_1996_gets_its_answer_and_the_end_of_the_connection(yard: RunningYard) -> None:
    told = answer(yard, b"POST / HTTP/1.0\r\n" + FORM)
    assert b"<Code>MissingAuthenticationToken</Code>" in told


def test_an_offer_of_http_2_is_ignored_and_costs_no_body(yard: RunningYard) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings, %s\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    told = answer(
        yard, b"POST / HTTP/1.1\r\nHost: yard\r\n" + offer % b"x" + FORM + HEALTH + b"Connection: close\r\n\r\n"
    )
    assert b"<Code>MissingAuthenticationToken</Code>" in told, "which operation it is stands in the body"
    assert b"HTTP/1.1 200 OK" in told
    with connect(yard) as connection:
        request = b"POST / HTTP/1.1\r\nHost: yard\r\n" + offer % b"close" + FORM
        for start in range(0, len(request), 40):
            connection.sendall(request[start : start + 40])
        assert b"MissingAuthenticationToken" in received(connection)


def test_the_yard_is_no_proxy(yard: RunningYard) -> None:
    assert answer(yard, b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_preflight_of_a_browser_is_refused_without_permission(yard: RunningYard) -> None:
    preflight = b"OPTIONS /bucket HTTP/1.1\r\nHost: yard\r\nOrigin: http://x\r\nAccess-Control-Request-Method: PUT\r\n"
    told = answer(yard, preflight + b"Connection: close\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 4")
    assert b"access-control-allow" not in told.lower()


def resident_bytes(yard: RunningYard) -> int:
    pages = int(Path(f"/proc/{yard.process.pid}/statm").read_text().split()[1])
    return pages * 4096
