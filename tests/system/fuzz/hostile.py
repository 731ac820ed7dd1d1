"""Bodies that cost a server more than their sender, by protocol, and clients that send them badly."""

import gzip
import multiprocessing
import random
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.credentials import Credentials

from tests.system.fuzz.exchange import Answer, Connection, Draft, draft
from tests.system.fuzz.values import Target
from tests.system.fuzz.world import User
from trainyard.testing.yard import RunningYard

MEBIBYTE = 1024 * 1024

# Makes a body from the name of a member and an approximate size in bytes.
Make = Callable[[str, int], bytes]


def _repeated(unit: bytes, size: int, *, start: bytes = b"[", end: bytes = b"]", between: bytes = b",") -> bytes:
    return start + between.join([unit] * (size // (len(unit) + len(between)) + 1)) + end


def _json(value: Callable[[int], bytes]) -> Make:
    return lambda member, size: b'{"%s":%s}' % (member.encode(), value(size))


_JSON: dict[str, Make] = {
    "structures": _json(lambda size: _repeated(b"{}", size)),
    "lists": _json(lambda size: _repeated(b"[]", size)),
    "numbers": _json(lambda size: _repeated(b"1.5", size)),
    "giant integers": _json(lambda size: _repeated(b"9" * 4000, size)),
    "one giant integer": _json(lambda size: b"9" * size),
    "one giant fraction": _json(lambda size: b"0." + b"9" * size),
    "endless exponents": _json(lambda size: _repeated(b"1e999999", size)),
    "deep lists": _json(lambda size: b"[" * size),
    "deep structures": _json(lambda size: b'{"a":' * (size // 5)),
    "deep and closed": _json(lambda size: b"[" * (size // 2) + b"]" * (size // 2)),
    "one text": _json(lambda size: b'"' + b"x" * size + b'"'),
    "escapes": _json(lambda size: b'"' + b"\\n" * (size // 2) + b'"'),
    "surrogates": _json(lambda size: b'"' + b"\\ud83d\\ude00" * (size // 12) + b'"'),
    "half a surrogate": _json(lambda size: b'["\\ud800",' + _repeated(b"{}", size)[1:]),
    "text without an end": _json(lambda size: b'"' + b'\\"' * (size // 2)),
    "quotes": _json(lambda size: b'"' * size),
    "same names": _json(lambda size: _repeated(b'"a":1', size, start=b"{", end=b"}")),
    "many names": _json(lambda size: b"{" + b",".join(b'"%d":1' % number for number in range(size // 10)) + b"}"),
    "not UTF-8": _json(lambda size: b'"' + b"\xff" * size + b'"'),
    "no JSON": lambda _member, size: b"\0" * size,
}
_FORM: dict[str, Make] = {
    "parameters": lambda _member, size: b"&a=b" * (size // 4),
    "ampersands": lambda _member, size: b"&" * size,
    "deep names": lambda member, size: b"&%s%s=1" % (member.encode(), b".member.1" * (size // 9)),
    "items": lambda member, size: b"".join(b"&%s.member.%d=x" % (member.encode(), n) for n in range(size // 20)),
    "one value": lambda member, size: b"&%s=%s" % (member.encode(), b"x" * size),
    "escapes": lambda member, size: b"&%s=%s" % (member.encode(), b"%41" * (size // 3)),
    "broken escapes": lambda _member, size: b"&" + b"%" * size,
    "second action": lambda _member, _size: b"&Action=DeleteUser",
}
_CBOR: dict[str, Make] = {
    "lists": lambda _member, size: b"\x9f" + b"\x80" * size + b"\xff",
    "structures": lambda _member, size: b"\x9f" + b"\xa0" * size + b"\xff",
    "numbers": lambda _member, size: b"\x9f" + b"\x01" * size + b"\xff",
    "announced": lambda _member, size: b"\x9b\x00\x00\x00\x00\xff\xff\xff\xff" + b"\x01" * size,
    "announced text": lambda _member, size: b"\x7b\x00\x00\x00\xff\xff\xff\xff\xff" + b"x" * size,
    "deep": lambda _member, size: b"\x81" * size,
    "tags": lambda _member, size: b"\xc2" * size,
    "extreme moment": lambda _member, _size: b"\xa1\x69StartTime\xc1\xfb\x7f\xef\xff\xff\xff\xff\xff\xff",
    "names": lambda _member, size: (
        b"\xbf" + b"".join(b"\x1a" + n.to_bytes(4, "big") + b"\x01" for n in range(size // 6)) + b"\xff"
    ),
}
_XML: dict[str, Make] = {
    "attributes": lambda member, size: (
        b"<%s %s/>" % (member.encode(), b" ".join(b'a%d=""' % number for number in range(size // 10)))
    ),
    "attributes with signs": lambda member, size: (
        b"<%s %s/>" % (member.encode(), b" ".join(b'a%d=">"' % number for number in range(size // 10)))
    ),
    "elements": lambda member, size: b"<%s>%s</%s>" % (member.encode(), b"<b/>" * (size // 4), member.encode()),
    "deep": lambda _member, size: b"<a>" * (size // 7) + b"</a>" * (size // 7),
    "namespaces": lambda _member, size: (
        b"<a>" + b"".join(b'<b xmlns:n%d="u%d"/>' % (n, n) for n in range(size // 24)) + b"</a>"
    ),
    "one text": lambda _member, size: b"<a>" + b"x" * size + b"</a>",
    "references": lambda _member, size: b"<a>" + b"&amp;" * (size // 5) + b"</a>",
    "entities": lambda _member, _size: b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
    "without an end": lambda _member, size: b"<a" + b" " * size,
    "comments": lambda _member, size: b"<!---->" * (size // 7),
}
_BY_PROTOCOL: Mapping[str, dict[str, Make]] = {
    "json": _JSON,
    "rest-json": _JSON,
    "query": _FORM,
    "ec2": _FORM,
    "smithy-rpc-v2-cbor": _CBOR,
    "rest-xml": _XML,
}


def shapes_for(target: Target) -> Sequence[str]:
    return tuple(_BY_PROTOCOL[target.protocol])


def spoiled(request: Draft, shape: str, *, size: int, is_compressed: bool = False) -> Draft:
    """Return the request with a body of that shape and approximate size."""
    takes = request.target.operation.input_shape
    members = list(takes.members) if takes is not None else []
    body = _BY_PROTOCOL[request.target.protocol][shape](members[-1] if members else "a", size)
    # A form names its operation.
    request.body = (request.body or b"a=b") + body if request.target.protocol in ("query", "ec2") else body
    if is_compressed:
        request.body = gzip.compress(request.body)
        request.headers["content-encoding"] = "gzip"
    request.is_itself = request.is_well_formed = False
    return request


def named_request(target: Target, names: Mapping[str, str]) -> Draft:
    """Return a request that has only the names in its address and the members with a known name."""
    members = target.operation.input_shape.members if target.operation.input_shape else {}
    labels = {name: "x" for name, member in members.items() if member.serialization.get("location") == "uri"}
    return draft(target, labels | {name: value for name, value in names.items() if name in members})


def hostile_request(dice: random.Random, target: Target, names: Mapping[str, str], *, most_bytes: int) -> Draft:
    """Return a request with a body of some shape, usually as large as the limit or slightly larger."""
    request = named_request(target, names)
    size = min(most_bytes, dice.choice((1000, 15_000, 100_000, 900_000, MEBIBYTE + 1, 4 * MEBIBYTE, 9 * MEBIBYTE)))
    shape = dice.choice(shapes_for(target))
    is_compressed = target.protocol in ("json", "query") and dice.random() < 0.1
    return spoiled(request, shape, size=size, is_compressed=is_compressed)


class UnsignedConnection(Connection):
    """Sends without a signature, or with a forged one for a known key."""

    def _sign(self, request: Draft) -> dict[str, str]:
        if not self._credentials.secret_key:
            return {**request.headers, "host": self._address, "content-length": str(len(request.body))}
        return super()._sign(request)


def connection_of(user: User, kind: str) -> Connection:
    """Return a connection that signs as the user, guesses the secret, or does not sign."""
    secret = {"signed": user.secret_access_key, "guessed": "a guess", "unsigned": ""}[kind]
    made = Connection if kind == "signed" else UnsignedConnection
    return made(user.endpoint, Credentials(user.access_key_id, secret), user.region)


@dataclass
class Stalled:
    """Clients that announce a body, send part of it, and then wait."""

    user: User
    sockets: list[socket.socket] = field(default_factory=list)

    def open(self, count: int, *, size: int, sent: int, kind: str) -> None:
        for _ in range(count):
            address = urlsplit(self.user.endpoint)
            connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=60)
            self.sockets.append(connection)
            connection.setblocking(False)
            self._send(connection, self._head(size, kind) + b"{" + b" " * (sent - 1))

    def close(self) -> None:
        for connection in self.sockets:
            connection.close()

    def _send(self, connection: socket.socket, data: bytes) -> None:
        """Send as much as the yard accepts at once, for at most half a second."""
        deadline = time.monotonic() + 0.5
        while data and time.monotonic() < deadline:
            try:
                data = data[connection.send(data) :]
            except BlockingIOError:
                time.sleep(0.005)
            except ConnectionError:
                return

    def _head(self, size: int, kind: str) -> bytes:
        head = [b"POST / HTTP/1.1", b"Host: yard", b"X-Amz-Target: SageMaker.CreateTrainingJob"]
        head += [b"Content-Type: application/x-amz-json-1.1", b"Content-Length: %d" % size]
        if kind == "guessed":
            now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            scope = f"{self.user.access_key_id}/{now[:8]}/{self.user.region}/sagemaker/aws4_request"
            signed = f"SignedHeaders=host;x-amz-date;x-amz-target, Signature={'0' * 64}"
            head += [f"X-Amz-Date: {now}".encode()]
            head += [f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, {signed}".encode()]
        return b"\r\n".join(head) + b"\r\n\r\n"


def cut_off(user: User, request: Draft, *, after: float) -> None:
    """Send the head and this much of the body, signed, and close the connection."""
    signing = connection_of(user, "signed")
    with closing(signing):
        headers = signing._sign(request)
    lines = [f"{request.method} {request.url} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    address = urlsplit(user.endpoint)
    with closing(socket.create_connection((address.hostname or "", address.port or 0), timeout=30)) as connection:
        try:
            connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            connection.sendall(request.body[: int(len(request.body) * after)])
        except ConnectionError:
            return


class GoodCaller:
    """Another client, which makes ordinary calls throughout and measures each.

    It runs in its own process, so that it does not wait for the threads of this one.
    """

    def __init__(self, user: User) -> None:
        start = multiprocessing.get_context("spawn")
        self._is_done, self._told = start.Event(), start.SimpleQueue()
        self._process = start.Process(target=_make_calls, args=(user, self._is_done, self._told))
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> "GoodCaller":
        self._process.start()
        assert self._told.get() == "ready", "the caller did not create its bucket"
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self.seconds, self.failures = self._told.get()
        self._process.join()

    def percentile_ms(self, percent: int) -> float:
        return 1000 * statistics.quantiles(self.seconds, n=100)[percent - 1]


def _make_calls(user: User, is_done: Event, told: "SimpleQueue[Any]") -> None:
    s3, sagemaker, sts = (user.client(name) for name in ("s3", "sagemaker", "sts"))
    bucket, content = f"good-{user.account}", bytes(20 * 1024)
    s3.create_bucket(Bucket=bucket)
    calls: list[Callable[[], object]] = [
        sts.get_caller_identity,
        sagemaker.list_training_jobs,
        lambda: s3.put_object(Bucket=bucket, Key="key", Body=content),
        lambda: s3.get_object(Bucket=bucket, Key="key")["Body"].read(),
    ]
    # Warm up, so that no measurement includes lazy loading.
    for call in calls:
        call()
    told.put("ready")
    seconds: list[float] = []
    failures: list[str] = []
    while not is_done.is_set() and not failures:
        for call in calls:
            begun = time.perf_counter()
            try:
                call()
            except Exception as error:
                # Any error of botocore is a dropped call, which the test reports.
                failures.append(repr(error))
            seconds.append(time.perf_counter() - begun)
    told.put((seconds, failures))


def peak_bytes(yard: RunningYard) -> int:
    """Return the peak memory of the yard's process."""
    for line in Path(f"/proc/{yard.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not report the peak")


def is_fault(answer: Answer) -> bool:
    """Tell whether the yard failed rather than refused: 501 means that S3 lacks the operation, 503 asks to wait."""
    return answer.status >= 500 and not (answer.status == 501 or b"SlowDown" in answer.body)
