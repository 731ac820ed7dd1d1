from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.wire.addressing import Hosts, decode_parameters, decode_path
from trainyard.wire.fault import Fault

HOSTS = Hosts(["yard.example.com", "127.0.0.1", "[::1]"])


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:9000",
        "localhost",
        "LOCALHOST:80",
        "yard.example.com.",
        "[::1]:9000",
        "elsewhere.net",
        "s3.amazonaws.com",
        "s3.eu-west-1.amazonaws.com",
        "s3-eu-west-1.amazonaws.com",
        "sts.amazonaws.com",
    ],
)
def test_a_host_without_a_bucket_leaves_it_to_the_path(host: str) -> None:
    assert HOSTS.bucket(host) is None


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        ("data.localhost:9000", "data"),
        ("my.data.yard.example.com:443", "my.data"),
        ("Data.Yard.Example.Com", "data"),
        ("data.s3.amazonaws.com", "data"),
        ("my.data.s3.eu-west-1.amazonaws.com", "my.data"),
        ("data.s3-eu-west-1.amazonaws.com", "data"),
        ("data.s3.dualstack.eu-west-1.amazonaws.com", "data"),
        ("data.s3.cn-north-1.amazonaws.com.cn", "data"),
        ("s3.data.s3.amazonaws.com", "s3.data"),
    ],
)
def test_a_bucket_before_a_served_name_is_the_bucket(host: str, bucket: str) -> None:
    assert HOSTS.bucket(host) == bucket


def test_the_longest_served_name_decides() -> None:
    assert Hosts(["example.com", "yard.example.com"]).bucket("data.yard.example.com") == "data"


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
def test_a_path_is_decoded_exactly_once(path: str, key: str) -> None:
    assert decode_path(path) == key


def test_bytes_that_a_client_did_not_encode_are_read_as_utf8() -> None:
    assert decode_path("ü".encode().decode("latin-1")) == "ü"


def test_a_bare_name_has_an_empty_value_and_blank_pieces_are_ignored() -> None:
    assert decode_parameters("&acl&&prefix=a=b&") == [("acl", ""), ("prefix", "a=b")]


@pytest.mark.parametrize("text", ["%FF", "a%C3", "%ED%A0%80", "\xff"])
def test_invalid_utf8_is_an_invalid_uri(text: str) -> None:
    with pytest.raises(Fault) as caught:
        decode_path(text)
    assert (caught.value.code, caught.value.status) == ("InvalidURI", 400)
