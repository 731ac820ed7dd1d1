import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.link_headers import with_link_headers

LINK = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=KEY%2F20260701%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20260701T120000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t&X-Amz-Signature=abc"
)
LEGACY = "AWSAccessKeyId=KEY&Signature=abc&Expires=1794724703"


def carried(query: str, **sent: str) -> dict[str, str]:
    """Return the headers that the link adds."""
    headers = Headers([("host", "yard.test"), *((name.replace("_", "-"), value) for name, value in sent.items())])
    request = with_link_headers(HttpRequest("PUT", "/b/k", query, headers))
    assert {*request.headers} == {*headers} | request.from_link
    return {name: request.headers[name] for name in request.from_link}


@pytest.mark.parametrize("link", [LINK, LEGACY])
def test_a_link_carries_headers_in_its_query(link: str) -> None:
    query = f"{link}&x-amz-meta-a=b%20c&X-Amz-Tagging=x%3D1&x-amz-checksum-mode=ENABLED&partNumber=2"
    assert carried(query) == {"x-amz-meta-a": "b c", "x-amz-tagging": "x=1", "x-amz-checksum-mode": "ENABLED"}


def test_non_ascii_text_is_carried_as_in_headers() -> None:
    assert carried(f"{LINK}&x-amz-meta-a=%C3%BC") == {"x-amz-meta-a": "ü".encode().decode("latin-1")}


def test_a_header_that_was_sent_is_left_as_it_was_sent() -> None:
    assert carried(f"{LINK}&x-amz-meta-a=linked", x_amz_meta_a="sent") == {}


@pytest.mark.parametrize(
    "name",
    [
        "x-amz-checksum-crc32",
        "X-Amz-Checksum-Sha256",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-trailer",
        "x-amz-decoded-content-length",
    ],
)
def test_fields_that_describe_a_future_body_are_ignored(name: str) -> None:
    assert carried(f"{LINK}&{name}=AAAAAA%3D%3D") == {}


@pytest.mark.parametrize("name", ["x-amz-checksum-mode", "x-amz-checksum-algorithm", "x-amz-checksum-type"])
def test_checksum_options_are_carried(name: str) -> None:
    assert carried(f"{LINK}&{name}=SHA256") == {name: "SHA256"}


def test_signature_parameters_are_not_headers() -> None:
    assert carried(f"{LINK}&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD") == {}


def test_only_an_old_link_carries_the_type_of_its_content() -> None:
    assert carried(f"{LEGACY}&content-type=text%2Fcsv") == {"content-type": "text/csv"}
    assert carried(f"{LEGACY}&content-md5=abc") == {"content-md5": "abc"}
    assert carried(f"{LEGACY}&content-length=3") == {}
    assert carried(f"{LINK}&content-type=text%2Fcsv") == {}


@pytest.mark.parametrize(
    "query",
    [
        "",
        "x-amz-meta-a=b",
        LINK.replace("s3%2F", "sts%2F") + "&x-amz-target=a.b",
        "Signature=abc&x-amz-meta-a=b",
        "AWSAccessKeyId=KEY&X-Amz-Signature=abc&x-amz-meta-a=b",
    ],
)
def test_only_links_of_s3_carry_headers(query: str) -> None:
    assert carried(query) == {}


@pytest.mark.parametrize("link", [LINK, LEGACY])
@pytest.mark.parametrize(
    "parameter",
    [
        "x-amz-meta-a%0D%0Ab=c",
        "x-amz-meta-a%20b=c",
        "x-amz-meta-=%0D%0ASet-Cookie:x",
        "x-amz-meta-a=%01",
        "x-amz-meta-%C3%BC=c",
        "x-amz-website-redirect-location=/%0A",
    ],
)
def test_a_link_carries_nothing_that_could_not_be_sent_as_a_header(link: str, parameter: str) -> None:
    with pytest.raises(Fault) as caught:
        carried(f"{link}&{parameter}")
    assert caught.value.code == "InvalidArgument"


def test_a_link_carries_a_header_once_because_the_order_of_two_is_not_signed() -> None:
    with pytest.raises(Fault, match="only once"):
        carried(f"{LINK}&x-amz-acl=private&X-Amz-Acl=public-read")
