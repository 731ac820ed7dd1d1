from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.wire.fault import Fault
from trainyard.wire.percent import decode_parameters, decode_path


@given(st.text())
def test_a_quoted_path_decodes_to_itself(text: str) -> None:
    assert decode_path(quote(text, safe="/")) == text


@given(st.lists(st.tuples(st.text(), st.text())))
def test_a_quoted_query_decodes_to_its_pairs(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)
    assert decode_parameters(query) == pairs


@pytest.mark.parametrize(
    ("path", "key"),
    [("a+b", "a+b"), ("a%2Fb", "a/b"), ("a%252F", "a%2F"), ("../..//", "../..//"), ("100%", "100%"), ("%zz", "%zz")],
)
def test_a_path_keeps_what_it_says(path: str, key: str) -> None:
    assert decode_path(path) == key


def test_bytes_that_a_client_forgot_to_encode_are_read_as_the_utf8_they_are() -> None:
    assert decode_path("ü".encode().decode("latin-1")) == "ü"


def test_a_bare_name_has_an_empty_value_and_blank_pieces_are_nothing() -> None:
    assert decode_parameters("&acl&&prefix=a=b&") == [("acl", ""), ("prefix", "a=b")]


@pytest.mark.parametrize("text", ["%FF", "a%C3", "%ED%A0%80", "\xff"])
def test_what_is_not_utf8_is_an_invalid_uri(text: str) -> None:
    with pytest.raises(Fault) as caught:
        decode_path(text)
    assert (caught.value.code, caught.value.status) == ("InvalidURI", 400)
