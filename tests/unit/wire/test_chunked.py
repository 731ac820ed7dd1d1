import hmac
import io
from collections.abc import Sequence
from random import Random

import pytest
from botocore.httpchecksum import AwsChunkedWrapper, Crc32Checksum
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wire.streams import signed_body
from trainyard.wire.chunked import MAX_TRAILER_BYTES, ChunkedDecoder
from trainyard.wire.fault import Fault
from trainyard.wire.signed_request import Seed

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SCOPE = "20130524/us-east-1/s3/aws4_request"


def _signing_key() -> bytes:
    key = f"AWS4{SECRET}".encode()
    for part in SCOPE.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def example_seed(signature: str) -> Seed:
    return Seed(signing_key=_signing_key(), timestamp="20130524T000000Z", scope=SCOPE, signature=signature)


SEED = example_seed("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9")


def unsigned_body(chunks: Sequence[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"


def decode(decoder: ChunkedDecoder, body: bytes, piece_size: int = 65536) -> tuple[bytes, dict[str, str]]:
    data = b""
    for start in range(0, len(body), piece_size):
        data += b"".join(decoder.feed(body[start : start + piece_size]))
    return data, dict(decoder.finish())


def fault_of(decoder: ChunkedDecoder, body: bytes, piece_size: int = 65536) -> Fault:
    with pytest.raises(Fault) as caught:
        decode(decoder, body, piece_size)
    return caught.value


def test_the_chunks_of_the_s3_documentation_are_accepted() -> None:
    # https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
    body = (
        b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n"
        + b"a" * 65536
        + b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n"
        + b"a" * 1024
        + b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
    )
    assert decode(ChunkedDecoder(SEED, decoded_length=66560), body) == (b"a" * 66560, {})


def test_the_trailer_of_the_s3_documentation_is_accepted() -> None:
    # https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html; its fields end in "\n\r\n".
    seed = example_seed("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e")
    body = (
        b"10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n"
        + b"a" * 65536
        + b"\r\n400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n"
        + b"a" * 1024
        + b"\r\n0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n"
        + b"x-amz-checksum-crc32c:sOO8/Q==\n\r\n"
        + b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"
    )
    decoder = ChunkedDecoder(seed, decoded_length=66560, trailers=["x-amz-checksum-crc32c"])
    assert decode(decoder, body) == (b"a" * 66560, {"x-amz-checksum-crc32c": "sOO8/Q=="})


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 3_000_000])
def test_what_botocore_sends_over_https_is_decoded(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    body = AwsChunkedWrapper(io.BytesIO(data), Crc32Checksum, "x-amz-checksum-crc32").read()
    decoder = ChunkedDecoder(None, decoded_length=size, trailers=["x-amz-checksum-crc32"])
    expected = Crc32Checksum()
    expected.update(data)
    assert decode(decoder, body) == (data, {"x-amz-checksum-crc32": expected.b64digest()})


@given(
    sizes=st.lists(st.integers(8192, 9000), max_size=3),
    last_size=st.integers(0, 300),
    piece_size=st.integers(1, 20000),
    is_signed=st.booleans(),
    has_trailers=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_body_decodes_alike_wherever_it_is_cut(
    sizes: list[int], last_size: int, piece_size: int, is_signed: bool, has_trailers: bool
) -> None:
    data = Random(piece_size)
    chunks = [data.randbytes(size) for size in [*sizes, last_size] if size]
    fields = [("x-amz-checksum-a", "1=="), ("x-amz-checksum-b", "two words")] if has_trailers else None
    if is_signed:
        body = signed_body(SEED, chunks, fields)
    else:
        body = unsigned_body(chunks, b"".join(f"{name}:{value}\r\n".encode() for name, value in fields or []))
    decoder = ChunkedDecoder(
        SEED if is_signed else None,
        decoded_length=sum(map(len, chunks)),
        trailers=[name for name, _ in fields] if fields else None,
    )
    assert decode(decoder, body, piece_size) == (b"".join(chunks), dict(fields or {}))


@given(body=st.binary(max_size=200), length=st.integers(0, 50), is_signed=st.booleans())
@settings(max_examples=200)
def test_garbage_gives_a_fault_and_nothing_else(body: bytes, length: int, is_signed: bool) -> None:
    decoder = ChunkedDecoder(SEED if is_signed else None, decoded_length=length, trailers=["x-amz-checksum-crc32"])
    assert fault_of(decoder, body, 7).status in (400, 403)


def test_large_data_passes_through_as_it_comes() -> None:
    decoder = ChunkedDecoder(None, decoded_length=1 << 30)
    decoder.feed(b"40000000\r\n")
    piece = bytes(65536)
    [passed] = decoder.feed(piece)
    assert passed is piece


@pytest.mark.parametrize("position", [5000, 9000, 30, 12000, -10], ids=str)
def test_a_changed_chunk_or_signature_breaks_the_chain(position: int) -> None:
    body = bytearray(signed_body(SEED, [b"a" * 9000, b"b" * 9000]))
    body[position] = ord("0") if body[position] != ord("0") else ord("1")
    fault = fault_of(ChunkedDecoder(SEED, decoded_length=18000), bytes(body))
    assert (fault.code, fault.status) == ("SignatureDoesNotMatch", 403)


def test_a_chunk_that_claims_fewer_bytes_than_were_signed_is_noticed() -> None:
    body = signed_body(SEED, [b"a" * 9000]).replace(b"2328;", b"2327;", 1)
    assert fault_of(ChunkedDecoder(SEED, decoded_length=9000), body).code == "SignatureDoesNotMatch"


def test_chunks_cannot_change_places() -> None:
    first, second = b"a" * 9000, b"b" * 9000
    body = signed_body(SEED, [first, second])
    header = len(b"2328;chunk-signature=") + 64 + 2
    frame = header + 9000 + 2
    swapped = body[frame : 2 * frame] + body[:frame] + body[2 * frame :]
    assert fault_of(ChunkedDecoder(SEED, decoded_length=18000), swapped).code == "SignatureDoesNotMatch"


def test_a_changed_trailer_is_noticed() -> None:
    body = signed_body(SEED, [b"data"], [("x-amz-checksum-crc32", "AAAAAA==")]).replace(b"AAAAAA==", b"BAAAAA==")
    fault = fault_of(ChunkedDecoder(SEED, decoded_length=4, trailers=["x-amz-checksum-crc32"]), body)
    assert (fault.code, fault.status) == ("SignatureDoesNotMatch", 403)


def test_a_signed_trailer_without_its_signature_is_refused() -> None:
    body = signed_body(SEED, [b"data"], [("x-amz-checksum-crc32", "AAAAAA==")])
    body = body[: body.index(b"x-amz-trailer-signature")] + b"\r\n"
    decoder = ChunkedDecoder(SEED, decoded_length=4, trailers=["x-amz-checksum-crc32"])
    assert fault_of(decoder, body).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize("cut", [1, 5, 50, 5000, 9080])
def test_a_body_that_ends_early_is_incomplete(cut: int) -> None:
    fault = fault_of(ChunkedDecoder(SEED, decoded_length=9000), signed_body(SEED, [b"a" * 9000])[:-cut])
    assert (fault.code, fault.status) in {("IncompleteBody", 400), ("SignatureDoesNotMatch", 403)}
    unsigned = unsigned_body([b"a" * 9000])[: -cut - 2]
    assert fault_of(ChunkedDecoder(None, decoded_length=9000), unsigned).code == "IncompleteBody"


@pytest.mark.parametrize("announced", [8, 10])
def test_the_announced_length_is_enforced(announced: int) -> None:
    fault = fault_of(ChunkedDecoder(None, decoded_length=announced), unsigned_body([b"123456789"]))
    assert fault.code == "IncompleteBody"


def test_bytes_after_the_last_chunk_are_refused() -> None:
    fault = fault_of(ChunkedDecoder(None, decoded_length=1), unsigned_body([b"1"]) + b"GET / HTTP/1.1")
    assert fault.code == "IncompleteBody"


def test_only_the_last_signed_chunk_may_be_small() -> None:
    decode(ChunkedDecoder(SEED, decoded_length=8193), signed_body(SEED, [b"a" * 8192, b"b"]))
    fault = fault_of(ChunkedDecoder(SEED, decoded_length=8193), signed_body(SEED, [b"b", b"a" * 8192]))
    assert (fault.code, fault.status) == ("InvalidChunkSizeError", 403)


@pytest.mark.parametrize(
    "body",
    [
        b"xyz\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x1\r\na\r\n",
        b"1\na\r\n",
        b"1\r\nab\r\n",
        b"1" * 2000,
        b"1 \r\na\r\n",
        b"1_0\r\n",
    ],
)
@pytest.mark.parametrize("piece_size", [1, 4096])
def test_invalid_framing_is_refused(body: bytes, piece_size: int) -> None:
    assert fault_of(ChunkedDecoder(None, decoded_length=100), body, piece_size).code == "InvalidRequest"


@pytest.mark.parametrize(
    "trailer",
    [
        b"",
        b"x-amz-checksum-crc32\r\n",
        b"x-amz-checksum-crc32c:AAAAAA==\r\n",
        b"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-checksum-crc32:AAAAAA==\r\n",
        b"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-meta-sly:1\r\n",
        b"x-amz-checksum-crc32:" + b"A" * MAX_TRAILER_BYTES,
    ],
)
def test_trailers_that_were_not_announced_so_are_refused(trailer: bytes) -> None:
    decoder = ChunkedDecoder(None, decoded_length=1, trailers=["X-Amz-Checksum-CRC32"])
    assert fault_of(decoder, unsigned_body([b"1"], trailer)).code == "MalformedTrailerError"


def test_a_signed_body_must_carry_signatures() -> None:
    fault = fault_of(ChunkedDecoder(SEED, decoded_length=1), unsigned_body([b"1"]))
    assert fault.code == "InvalidRequest"


@pytest.mark.parametrize("piece_size", [100, 4096])
def test_a_chunk_header_has_a_longest_length(piece_size: int) -> None:
    longest = b"1;" + b"x" * (1024 - 4) + b"\r\n"
    end = b"a\r\n0\r\n\r\n"
    assert decode(ChunkedDecoder(None, decoded_length=1), longest + end, piece_size) == (b"a", {})
    longer = b"1;x" + longest[2:]
    assert fault_of(ChunkedDecoder(None, decoded_length=1), longer + end, piece_size).code == "InvalidRequest"


@pytest.mark.parametrize("piece_size", [1000, 65536])
def test_trailing_fields_have_a_longest_length(piece_size: int) -> None:
    name = "x-amz-checksum-crc32"
    trailer = f"{name}:".encode().ljust(16 * 1024 - 4, b"A") + b"\r\n"
    decoder = ChunkedDecoder(None, decoded_length=1, trailers=[name])
    decode(decoder, unsigned_body([b"1"], trailer), piece_size)
    decoder = ChunkedDecoder(None, decoded_length=1, trailers=[name])
    assert fault_of(decoder, unsigned_body([b"1"], b"A" + trailer), piece_size).code == "MalformedTrailerError"


def test_a_size_can_have_sixteen_digits_in_either_case() -> None:
    for size in (b"0000000000000A", b"a"):
        body = size.rjust(16, b"0") + b"\r\n" + b"x" * 10 + b"\r\n0\r\n\r\n"
        assert decode(ChunkedDecoder(None, decoded_length=10), body) == (b"x" * 10, {})
        fault = fault_of(ChunkedDecoder(None, decoded_length=10), b"0" + body)
        assert (fault.code, fault.status) == ("InvalidRequest", 400)


def test_a_signed_chunk_a_byte_short_of_the_least_must_be_the_last() -> None:
    body = signed_body(SEED, [b"a" * 8191, b"b"])
    assert fault_of(ChunkedDecoder(SEED, decoded_length=8192), body).code == "InvalidChunkSizeError"


def test_a_body_may_end_with_its_last_chunk() -> None:
    body = unsigned_body([b"1"]).removesuffix(b"\r\n")
    assert decode(ChunkedDecoder(None, decoded_length=1), body) == (b"1", {})


def test_how_many_bytes_are_missing_is_said() -> None:
    fault = fault_of(ChunkedDecoder(None, decoded_length=10), unsigned_body([b"123456789"]))
    assert "lacks 1 of the bytes" in fault.message


def test_trailing_fields_are_signed_in_one_order_however_they_were_sent() -> None:
    body = signed_body(SEED, [b"data"], [("x-amz-a", "1"), ("x-amz-b", "2")])
    swapped = body.replace(b"x-amz-a:1\r\nx-amz-b:2\r\n", b"x-amz-b:2\r\nx-amz-a:1\r\n")
    assert swapped != body
    decoder = ChunkedDecoder(SEED, decoded_length=4, trailers=["x-amz-a", "x-amz-b"])
    assert decode(decoder, swapped) == (b"data", {"x-amz-a": "1", "x-amz-b": "2"})
