import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

import pytest

from tests.unit.wire.streams import signed_body
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers
from trainyard.wire.payload import VerifiedStream
from trainyard.wire.signed_request import Seed, SignedRequest

SEED = Seed(signing_key=b"k" * 32, timestamp="20260101T000000Z", scope="20260101/r/s3/aws4_request", signature="0" * 64)


def claim(payload_hash: str | None) -> SignedRequest:
    return SignedRequest(
        access_key_id="AKIA",
        date="20260101",
        region="r",
        service="s3",
        signed_headers=("host",),
        signature="0" * 64,
        timestamp="20260101T000000Z",
        signed_at=datetime(2026, 1, 1, tzinfo=UTC),
        expires_in=None,
        session_token=None,
        payload_hash=payload_hash,
        is_presigned=False,
    )


async def pieces(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


def stream(payload_hash: str | None, body: Iterable[bytes], **headers: str) -> VerifiedStream:
    fields = Headers((name.replace("_", "-"), value) for name, value in headers.items())
    return VerifiedStream(pieces(body), signed=claim(payload_hash), seed=SEED, headers=fields)


def read(verified: VerifiedStream) -> bytes:
    async def collect() -> bytes:
        return b"".join([piece async for piece in verified])

    return asyncio.run(collect())


def fault_of(verified: VerifiedStream) -> Fault:
    with pytest.raises(Fault) as caught:
        read(verified)
    return caught.value


@pytest.mark.parametrize("piece_size", [10, 1 << 20])
def test_a_body_with_the_declared_hash_is_passed_on(piece_size: int) -> None:
    body = [b"a" * piece_size, b"b" * piece_size]
    digest = hashlib.sha256(b"".join(body)).hexdigest()
    assert read(stream(digest, body, content_length=str(2 * piece_size))) == b"".join(body)


def test_a_tampered_body_raises_at_its_end() -> None:
    digest = hashlib.sha256(b"meant").hexdigest()
    fault = fault_of(stream(digest, [b"other"]))
    assert (fault.code, fault.status) == ("XAmzContentSHA256Mismatch", 400)
    assert fault.members == {
        "ClientComputedContentSHA256": digest,
        "S3ComputedContentSHA256": hashlib.sha256(b"other").hexdigest(),
    }


@pytest.mark.parametrize("payload_hash", [None, "UNSIGNED-PAYLOAD"])
def test_only_the_length_of_an_unsigned_payload_is_checked(payload_hash: str | None) -> None:
    assert read(stream(payload_hash, [b"any", b"thing"], content_length="8")) == b"anything"
    assert fault_of(stream(payload_hash, [b"any"], content_length="8")).code == "IncompleteBody"
    assert fault_of(stream(payload_hash, [b"any" * 9], content_length="8")).code == "IncompleteBody"


def test_trailers_are_known_after_the_end() -> None:
    verified = stream(
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        [b"3\r\nab", b"c\r\n0\r\nx-amz-checksum-crc32:", b"NSRBwg==\r\n\r\n"],
        x_amz_decoded_content_length="3",
        x_amz_trailer="x-amz-checksum-crc32",
    )
    assert verified.length == 3
    assert verified.trailers == {}
    assert read(verified) == b"abc"
    assert verified.trailers == {"x-amz-checksum-crc32": "NSRBwg=="}


def test_a_large_piece_of_a_streamed_body_is_decoded_too() -> None:
    data = b"z" * (1 << 20)
    verified = stream(
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        [b"100000\r\n" + data + b"\r\n0\r\n\r\n"],
        x_amz_decoded_content_length=str(len(data)),
    )
    assert read(verified) == data


@pytest.mark.parametrize("kind", ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"])
def test_a_signed_stream_is_checked_against_the_seed(kind: str) -> None:
    body = b"3;chunk-signature=" + b"0" * 64 + b"\r\nabc\r\n"
    assert fault_of(stream(kind, [body], x_amz_decoded_content_length="3")).code == "SignatureDoesNotMatch"


def test_a_streamed_body_must_announce_its_decoded_length() -> None:
    with pytest.raises(Fault) as caught:
        stream("STREAMING-UNSIGNED-PAYLOAD-TRAILER", [])
    assert (caught.value.code, caught.value.status) == ("MissingContentLength", 411)


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "9" * 30, "²"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    with pytest.raises(Fault, match="must be a number of bytes"):
        stream("STREAMING-UNSIGNED-PAYLOAD-TRAILER", [], x_amz_decoded_content_length=length)


@pytest.mark.parametrize("word", ["garbage", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "A" * 64])
def test_a_payload_hash_that_means_nothing_is_refused(word: str) -> None:
    with pytest.raises(Fault) as caught:
        stream(word, [])
    assert caught.value.code == "InvalidArgument"
    assert caught.value.members == {"ArgumentName": "x-amz-content-sha256", "ArgumentValue": word}


def test_a_signed_stream_is_passed_on_with_and_without_trailers() -> None:
    plain = stream(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", [signed_body(SEED, [b"abc"])], x_amz_decoded_content_length="3"
    )
    assert read(plain) == b"abc"
    trailed = stream(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        [signed_body(SEED, [b"abc"], [("x-amz-a", "1"), ("x-amz-b", "2")])],
        x_amz_decoded_content_length="3",
        x_amz_trailer=" x-amz-a, x-amz-b ,",
    )
    assert read(trailed) == b"abc"
    assert trailed.trailers == {"x-amz-a": "1", "x-amz-b": "2"}


def test_a_length_can_have_sixteen_digits() -> None:
    assert stream("UNSIGNED-PAYLOAD", [], content_length="1" * 16).length == int("1" * 16)
    with pytest.raises(Fault, match="must be a number of bytes") as caught:
        stream("UNSIGNED-PAYLOAD", [], content_length="1" * 17)
    assert caught.value.code == "InvalidArgument"
    assert stream("UNSIGNED-PAYLOAD", []).length is None
