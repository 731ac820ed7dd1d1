import gzip

import pytest

from trainyard.wire.compression import plain_body, plain_start
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.limits import DEFAULT_LIMITS
from trainyard.wire.models import Models

OPERATION = Models().service("sts").operation_model("GetCallerIdentity")


def _request(body: bytes, encoding: str = "gzip") -> HttpRequest:
    return HttpRequest("POST", "/", "", Headers([("Content-Encoding", encoding)]), body)


def test_a_gzip_body_is_unfolded_and_any_other_is_left_alone() -> None:
    assert plain_body(_request(gzip.compress(b"content")), OPERATION) == b"content"
    assert plain_body(_request(b"content", "identity"), OPERATION) == b"content"
    assert plain_body(HttpRequest("POST", "/", "", Headers(), b"content"), OPERATION) == b"content"
    assert plain_body(_request(b""), OPERATION) == b""


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"content")[:-9]], ids=["foreign", "torn"])
def test_a_body_that_is_not_the_gzip_it_claims_is_refused(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        plain_body(_request(body), OPERATION)
    assert caught.value.code == "SerializationException"


def test_a_body_that_would_decompress_beyond_its_limit_is_refused() -> None:
    limit = DEFAULT_LIMITS.size_bytes
    with pytest.raises(Fault) as caught:
        plain_body(_request(gzip.compress(bytes(limit + 1))), OPERATION)
    assert caught.value.status == 413
    assert len(plain_body(_request(gzip.compress(bytes(limit))), OPERATION)) == limit


def test_the_start_of_a_body_is_unfolded_no_further() -> None:
    assert plain_start(_request(gzip.compress(b"ab" * 1_000_000)), 3) == b"aba"
    assert plain_start(_request(b"content", "identity"), 3) == b"con"
