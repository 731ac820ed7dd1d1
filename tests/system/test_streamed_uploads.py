"""Uploads whose chunks are signed one by one, which no Python client sends, and bodies changed on the way."""

import base64
import hashlib
import http.client
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.unit.wire.streams import signed_body
from trainyard.testing.yard import RunningYard
from trainyard.wire.client import Client
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.refusal import Family
from trainyard.wire.signature import parse_authorization, verify
from trainyard.wire.signed_request import Seed

BUCKET = "streamed"
CHUNKS = [b"a" * 65536, b"b" * 65536, b"c" * 10]
WHOLE = b"".join(CHUNKS)
CRC32 = base64.b64encode(zlib.crc32(WHOLE).to_bytes(4, "big")).decode()


@pytest.fixture(scope="module")
def client(yard: RunningYard) -> Iterator[Client]:
    known = yard.credentials
    with closing(Client(yard.http, known.access_key_id, known.secret_access_key, known.region)) as client:
        client.call("s3", "CreateBucket", Bucket=BUCKET)
        yield client


def signed_put(yard: RunningYard, key: str, *, headers: dict[str, str], by_link: bool = False) -> AWSRequest:
    known = yard.credentials
    credentials = Credentials(known.access_key_id, known.secret_access_key)
    request = AWSRequest(method="PUT", url=f"{yard.http}/{BUCKET}/{key}", headers=headers)
    signer: Any = S3SigV4QueryAuth if by_link else _KeepsTheHash
    signer(credentials, "s3", known.region).add_auth(request)
    return request


class _KeepsTheHash(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    """Signs with the payload hash that the request declares; botocore's own would compute it from the body."""

    def payload(self, request: AWSRequest) -> str:
        return str(request.headers["x-amz-content-sha256"])

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        declared = request.headers["x-amz-content-sha256"]
        super()._modify_request_before_signing(request)
        del request.headers["x-amz-content-sha256"]
        request.headers["x-amz-content-sha256"] = declared


def seed_of(yard: RunningYard, request: AWSRequest) -> Seed:
    """The seed of the chain, read back from what was signed."""
    parts = urlsplit(request.url)
    fields = Headers([("host", parts.netloc), *request.headers.items()])
    http_request = HttpRequest("PUT", parts.path, parts.query, fields)
    signed = parse_authorization(http_request)
    assert signed is not None
    secret = yard.credentials.secret_access_key
    return verify(signed, http_request, secret=secret, now=signed.signed_at, family=Family.S3)


def send(request: AWSRequest, body: bytes) -> tuple[int, str]:
    """The status, and the code of the error if it is one."""
    parts = urlsplit(request.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    headers = {**dict(request.headers.items()), "Content-Length": str(len(body))}
    connection.request("PUT", f"{parts.path}?{parts.query}" if parts.query else parts.path, body=body, headers=headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, ElementTree.fromstring(answer).findtext("Code", "") if answer else ""


def streamed_put(yard: RunningYard, key: str, *, trailers: Sequence[tuple[str, str]] | None = None) -> AWSRequest:
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("" if trailers is None else "-TRAILER")
    headers = {
        "x-amz-content-sha256": kind,
        "x-amz-decoded-content-length": str(len(WHOLE)),
        "content-encoding": "aws-chunked",
    }
    if trailers is not None:
        headers["x-amz-trailer"] = ",".join(name for name, _ in trailers)
    return signed_put(yard, key, headers=headers)


def stored(client: Client, key: str) -> bytes:
    return bytes(client.call("s3", "GetObject", Bucket=BUCKET, Key=key)["Body"])


def is_absent(client: Client, key: str) -> bool:
    return not client.call("s3", "ListObjectsV2", Bucket=BUCKET, Prefix=key).get("Contents")


@pytest.mark.flow
def test_chunks_that_are_signed_are_joined(client: Client, yard: RunningYard) -> None:
    request = streamed_put(yard, "signed")
    assert send(request, signed_body(seed_of(yard, request), CHUNKS)) == (200, "")
    assert stored(client, "signed") == WHOLE
    assert "ContentEncoding" not in client.call("s3", "HeadObject", Bucket=BUCKET, Key="signed")


def test_a_signed_trailer_carries_the_checksum(client: Client, yard: RunningYard) -> None:
    trailers = [("x-amz-checksum-crc32", CRC32)]
    request = streamed_put(yard, "trailer", trailers=trailers)
    assert send(request, signed_body(seed_of(yard, request), CHUNKS, trailers)) == (200, "")
    assert stored(client, "trailer") == WHOLE


@pytest.mark.parametrize("position", [100, 70_000, -1000])
def test_a_chunk_changed_on_the_way_leaves_no_object(client: Client, yard: RunningYard, position: int) -> None:
    request = streamed_put(yard, "tampered")
    body = bytearray(signed_body(seed_of(yard, request), CHUNKS))
    body[position] ^= 1
    status, code = send(request, bytes(body))
    assert (status, code) == (403, "SignatureDoesNotMatch")
    assert is_absent(client, "tampered")


def test_a_wrong_checksum_in_a_trailer_leaves_no_object(client: Client, yard: RunningYard) -> None:
    trailers = [("x-amz-checksum-crc32", "AAAAAA==")]
    request = streamed_put(yard, "badly-summed", trailers=trailers)
    status, code = send(request, signed_body(seed_of(yard, request), CHUNKS, trailers))
    assert (status, code) == (400, "BadDigest")
    assert is_absent(client, "badly-summed")


def test_a_plain_body_changed_on_the_way_leaves_no_object(client: Client, yard: RunningYard) -> None:
    request = signed_put(yard, "plain", headers={"x-amz-content-sha256": hashlib.sha256(b"meant").hexdigest()})
    assert send(request, b"other") == (400, "XAmzContentSHA256Mismatch")
    assert is_absent(client, "plain")
    assert send(request, b"meant") == (200, "")
    assert stored(client, "plain") == b"meant"


def test_a_link_uploads_without_a_header(client: Client, yard: RunningYard) -> None:
    assert send(signed_put(yard, "linked", headers={}, by_link=True), b"by link") == (200, "")
    assert stored(client, "linked") == b"by link"
