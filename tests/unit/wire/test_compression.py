import gzip

import pytest

from trainyard.wire.compression import LIMIT_BYTES, plain_body
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest


def _request(body: bytes, encoding: str = "gzip") -> HttpRequest:
    return HttpRequest("POST", "/", "", Headers([("Content-Encoding", encoding)]), body)


def test_a_gzip_body_is_unfolded_and_any_other_is_left_alone() -> None:
    assert plain_body(_request(gzip.compress(b"content"))) == b"content"
    assert plain_body(_request(b"content", "identity")) == b"content"
    assert plain_body(HttpRequest("POST", "/", "", Headers(), b"content")) == b"content"
    assert plain_body(_request(b"")) == b""


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"content")[:-9]], ids=["foreign", "torn"])
def test_a_body_that_is_not_the_gzip_it_claims_is_refused(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        plain_body(_request(body))
    assert caught.value.code == "SerializationException"


def test_a_body_that_would_unfold_beyond_the_limit_is_refused() -> None:
    with pytest.raises(Fault) as caught:
        plain_body(_request(gzip.compress(bytes(LIMIT_BYTES + 1))))
    assert caught.value.status == 413
    assert len(plain_body(_request(gzip.compress(bytes(LIMIT_BYTES))))) == LIMIT_BYTES
