import pytest

from trainyard.server.services.s3.paging import encoding_of, page_limit, read_token, write_token
from trainyard.wire.fault import Fault


@pytest.mark.parametrize("text", ["a", "ü/😀", "a\nb\x01", "k" * 1024])
def test_a_token_is_read_as_it_was_written(text: str) -> None:
    token = write_token(text)
    assert token.isascii()
    assert read_token(token) == text


@pytest.mark.parametrize("token", ["a", "%%%", "ü", "a b", "_w=="])
def test_what_was_never_a_token_is_an_invalid_argument(token: str) -> None:
    with pytest.raises(Fault) as caught:
        read_token(token)
    assert caught.value.members == {"ArgumentName": "continuation-token", "ArgumentValue": token}


@pytest.mark.parametrize(("asked", "given"), [(None, 1000), (0, 0), (7, 7), (1000, 1000), (2**31 - 1, 1000)])
def test_a_page_is_as_long_as_asked_for_but_no_longer_than_full(asked: int | None, given: int) -> None:
    shape = {} if asked is None else {"MaxKeys": asked}
    assert page_limit(shape, "MaxKeys", name="max-keys") == given


def test_names_are_encoded_only_on_demand() -> None:
    assert encoding_of({})("a b/+ü\r") == "a b/+ü\r"
    assert encoding_of({"EncodingType": "url"})("a b/+ü\r") == "a%20b/%2B%C3%BC%0D"
