from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.auth import HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.link_headers import with_link_headers
from trainyard.wire.models import Models
from trainyard.wire.refusal import Family, Reason, RequestRefused
from trainyard.wire.signature import parse_authorization, verify

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
HOST = "127.0.0.1:4400"
OBJECT = {"Bucket": "b", "Key": "k"}


def link(
    method: str,
    target: str,
    *,
    headers: dict[str, str] | None = None,
    token: str | None = None,
    auth_path: str | None = None,
) -> HttpRequest:
    """Return the request of a client that follows botocore's link."""
    request = AWSRequest(method=method, url=f"http://{HOST}{target}", headers=headers or {}, auth_path=auth_path)
    HmacV1QueryAuth(Credentials(KEY, SECRET, token), expires=60).add_auth(request)
    sent = urlsplit(request.url)
    return HttpRequest(method, sent.path, sent.query, Headers([("host", HOST)]))


def accept(request: HttpRequest, labels: dict[str, str] | None = None, *, now: datetime | None = None) -> None:
    signed = parse_authorization(request)
    assert signed is not None
    assert (signed.access_key_id, signed.is_presigned, signed.service) == (KEY, True, "s3")
    verify(
        signed,
        request,
        secret=SECRET,
        now=now or datetime.now(UTC),
        family=Family.S3,
        labels=OBJECT if labels is None else labels,
    )


def refusal(request: HttpRequest, labels: dict[str, str] | None = None, *, now: datetime | None = None) -> Reason:
    with pytest.raises(RequestRefused) as caught:
        accept(request, labels, now=now)
    return caught.value.reason


@pytest.mark.parametrize(
    ("method", "target", "labels"),
    [
        ("GET", "/b/k", OBJECT),
        ("PUT", "/b/k", OBJECT),
        ("GET", "/", {}),
        ("GET", "/b?list-type=2&prefix=p%2F&encoding-type=url", {"Bucket": "b"}),
        ("GET", "/b/?versions", {"Bucket": "b"}),
        ("GET", "/b/a%20b/%C3%A9%2B", {"Bucket": "b", "Key": "a b/é+"}),
        ("PUT", "/b/k?uploadId=x%3D%2F&partNumber=2", OBJECT),
        ("GET", "/b/k?response-content-type=text%2Fplain%3B%20charset%3Dutf-8&versionId=null", OBJECT),
    ],
)
@pytest.mark.parametrize("token", [None, "a+b/c=="])
def test_links_that_botocore_makes_are_accepted(
    method: str, target: str, labels: dict[str, str], token: str | None
) -> None:
    accept(link(method, target, token=token), labels)


def test_the_host_may_name_the_bucket_that_was_signed() -> None:
    request = link("GET", "/b/x", auth_path="/b/b/x")
    accept(request, {"Bucket": "b", "Key": "b/x"})


def test_a_bucket_may_be_signed_with_a_slash_that_is_not_sent() -> None:
    accept(link("GET", "/b?list-type=2", auth_path="/b/"), {"Bucket": "b"})
    assert refusal(link("GET", "/b/k", auth_path="/b/k/")) is Reason.MISMATCH


def test_another_host_does_not_lead_to_another_bucket() -> None:
    # The host is not signed: at other.localhost the same path is a key of the bucket "other".
    assert refusal(link("GET", "/b/k"), {"Bucket": "other", "Key": "b/k"}) is Reason.MISMATCH


def test_a_content_type_is_checked_where_the_link_names_one() -> None:
    named = link("PUT", "/b/k", headers={"Content-Type": "text/plain"})
    accept(named)
    assert refusal(replace(named, query=named.query.replace("plain", "html"))) is Reason.MISMATCH
    unnamed = link("PUT", "/b/k")
    accept(replace(unnamed, headers=Headers([("host", HOST), ("content-type", "application/x-www-form-urlencoded")])))


def test_any_change_to_the_signed_text_is_detected() -> None:
    request = link("GET", "/b/k?versionId=1", token="token")
    for what, changed in {
        "method": replace(request, method="DELETE"),
        "path": replace(request, path="/b/K"),
        "parameter": replace(request, query=request.query.replace("versionId=1", "versionId=2")),
        "dropped parameter": replace(request, query=request.query.replace("versionId=1&", "")),
        "added parameter": replace(request, query=request.query + "&acl"),
        "token": replace(request, query=request.query.replace("token=token", "token=other")),
        "header": replace(request, headers=Headers([("host", HOST), ("x-amz-copy-source", "/b/other")])),
        "expiry": replace(request, query=request.query.replace("Expires=", "Expires=9")),
    }.items():
        labels = {"Bucket": "b", "Key": "K"} if what == "path" else OBJECT
        assert refusal(changed, labels) is Reason.MISMATCH, what


@pytest.mark.parametrize("extra", ["tagging", "%74agging", "t%61gging=", "%61cl", "uploads", "%75ploadId=x"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_sub_resource_is_no_less_signed_for_being_spelled_with_escapes(extra: str, method: str) -> None:
    request = link(method, "/b/k")
    assert refusal(replace(request, query=f"{request.query}&{extra}")) is Reason.MISMATCH
    named = f"/b/k?{extra.replace('%74', 't').replace('%61', 'a').replace('%75', 'u')}"
    signed = link(method, named)
    accept(replace(signed, query=signed.query.replace(named.partition("?")[2], extra)))


def test_every_sub_resource_of_s3_is_signed_or_refused() -> None:
    model = Models().service("s3")
    uris = [model.operation_model(name).http["requestUri"] for name in model.operation_names]
    resources = {uri.partition("?")[2].partition("&")[0].partition("=")[0] for uri in uris} - {"", "x-id"}
    assert {"tagging", "acl", "uploads", "delete"} <= resources
    request = link("GET", "/b/k")
    for resource in resources - {"list-type"}:  # selects the version of the listing
        assert refusal(replace(request, query=f"{request.query}&{resource}")) in (Reason.MISMATCH, Reason.UNSUPPORTED)


def test_text_beyond_ascii_is_signed_by_its_bytes() -> None:
    request = link("GET", "/b/k?response-content-disposition=%E6%97%A5")
    accept(request)
    assert refusal(replace(request, query=request.query.replace("%E6%97%A5", "%E6%97%A6"))) is Reason.MISMATCH


def test_a_parameter_that_is_given_twice_is_refused_because_their_order_is_not_signed() -> None:
    request = link("GET", "/b/k?versionId=1&versionId=2")
    swapped = replace(request, query=request.query.replace("versionId=1&versionId=2", "versionId=2&versionId=1"))
    assert refusal(request) is Reason.MALFORMED_QUERY
    assert refusal(swapped) is Reason.MALFORMED_QUERY


def test_a_header_that_is_sent_does_not_stand_in_for_the_one_that_the_link_carries() -> None:
    request = link("PUT", "/b/k", headers={"Content-Type": "text/plain", "Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="})
    for name in ("content-type", "content-md5"):
        sent = replace(request, headers=Headers([("host", HOST), (name, "other")]))
        assert refusal(with_link_headers(sent)) is Reason.MISMATCH
    accept(with_link_headers(request))


def test_a_link_expires() -> None:
    request, now = link("GET", "/b/k"), datetime.now(UTC)
    accept(request, now=now + timedelta(seconds=58))
    assert refusal(request, now=now + timedelta(seconds=62)) is Reason.LINK_EXPIRED


def test_headers_moved_into_the_query_are_signed() -> None:
    request = link("PUT", "/b/k", headers={"x-amz-meta-a": "b", "x-amz-sdk-checksum-algorithm": "CRC32"})
    assert "x-amz-meta-a=b" in request.query
    accept(request)
    accept(replace(request, headers=Headers([("host", HOST), ("x-amz-meta-a", "b")])))
    for changed in (
        replace(request, query=request.query.replace("meta-a=b", "meta-a=c")),
        replace(request, query=f"{request.query}&x-amz-acl=public-read"),
        replace(request, headers=Headers([("host", HOST), ("x-amz-meta-a", "c")])),
    ):
        assert refusal(changed) is Reason.MISMATCH


@pytest.mark.parametrize("extra", ["attributes", "encryption"])
def test_a_parameter_that_is_neither_signed_nor_harmless_is_refused(extra: str) -> None:
    request = link("GET", "/b/k")
    assert refusal(replace(request, query=f"{request.query}&{extra}")) is Reason.UNSUPPORTED


@pytest.mark.parametrize("expires", ["", "soon", "9" * 40])
def test_an_invalid_time_is_refused(expires: str) -> None:
    query = f"AWSAccessKeyId={KEY}&Signature=x&Expires={expires}"
    assert refusal(HttpRequest("GET", "/b/k", query, Headers())) is Reason.MALFORMED_QUERY


def test_a_streamed_body_is_not_taken_for_the_object() -> None:
    headers = Headers([("host", HOST), ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")])
    assert refusal(replace(link("PUT", "/b/k"), headers=headers)) is Reason.UNSUPPORTED


def test_without_a_route_and_outside_s3_such_links_are_refused() -> None:
    request = link("GET", "/b/k")
    signed = parse_authorization(request)
    assert signed is not None
    for family, labels in ((Family.S3, None), (Family.QUERY, OBJECT)):
        with pytest.raises(RequestRefused, match="s3v4") as caught:
            verify(signed, request, secret=SECRET, now=datetime.now(UTC), family=family, labels=labels)
        assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("name", sorted(HmacV1QueryAuth.QSAOfInterest))
def test_every_parameter_that_botocore_signs_must_be_signed(name: str) -> None:
    accept(link("GET", f"/b/k?{name}=v"))
    request = link("GET", "/b/k")
    assert refusal(replace(request, query=f"{request.query}&{name}=v")) is Reason.MISMATCH


def _parameters_of_lists() -> set[str]:
    """Return the list parameters of botocore's S3 model, and the one that the JavaScript SDK adds."""
    model = botocore.session.get_session().get_service_model("s3")
    lists = ("ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads", "ListParts")
    members = [member for name in lists for member in model.operation_model(name).input_shape.members.values()]
    names = {
        member.serialization["name"] for member in members if member.serialization.get("location") == "querystring"
    }
    return (names | {"list-type", "x-id"}) - set(HmacV1QueryAuth.QSAOfInterest)


@pytest.mark.parametrize("name", sorted(_parameters_of_lists()))
def test_list_parameters_can_be_added_to_a_link(name: str) -> None:
    request = link("GET", "/b/k")
    accept(replace(request, query=f"{request.query}&{name}=1"))


def test_a_link_that_ended_when_time_began_has_ended() -> None:
    query = f"AWSAccessKeyId={KEY}&Signature=x&Expires=0"
    request = HttpRequest("GET", "/b/k", query, Headers())
    assert refusal(request, now=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) is Reason.LINK_EXPIRED


def test_parameters_and_headers_are_signed_in_one_order_however_they_were_sent() -> None:
    request = link("PUT", "/b/k?uploadId=u&partNumber=2", headers={"x-amz-meta-a": "1", "x-amz-meta-b": "ü"})
    backwards = "&".join(reversed(request.query.split("&")))
    assert backwards != request.query
    accept(replace(request, query=backwards))


def test_blanks_around_a_header_are_not_signed() -> None:
    request = link("PUT", "/b/k", headers={"x-amz-meta-a": "b"})
    accept(replace(request, headers=Headers([("host", HOST), ("x-amz-meta-a", "  b ")])))


def test_a_digest_of_the_content_is_signed_in_the_query_or_as_a_header() -> None:
    named = link("PUT", "/b/k", headers={"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="})
    accept(named)
    moved = "&".join(piece for piece in named.query.split("&") if not piece.lower().startswith("content-md5"))
    assert moved != named.query
    accept(replace(named, query=moved, headers=Headers([("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")])))
    assert refusal(replace(named, query=moved)) is Reason.MISMATCH


def test_a_link_works_until_the_second_it_names() -> None:
    request = link("GET", "/b/k")
    signed = parse_authorization(request)
    assert signed is not None
    end = datetime.fromtimestamp(int(signed.timestamp), UTC)
    accept(request, now=end)
    with pytest.raises(RequestRefused) as caught:
        accept(request, now=end + timedelta(microseconds=1))
    assert caught.value.reason is Reason.LINK_EXPIRED
    assert caught.value.members == {"Expires": signed.timestamp, "ServerTime": end.strftime("%Y-%m-%dT%H:%M:%SZ")}


def test_a_link_without_an_end_is_refused() -> None:
    query = f"AWSAccessKeyId={KEY}&Signature=x"
    with pytest.raises(RequestRefused, match="needs AWSAccessKeyId, Signature and Expires") as caught:
        parse_authorization(HttpRequest("GET", "/b/k", query, Headers()))
    assert caught.value.reason is Reason.MALFORMED_QUERY


def test_a_mismatch_shows_what_was_compared() -> None:
    request = replace(link("GET", "/b/k?versionId=1"), method="DELETE")
    signed = parse_authorization(request)
    assert signed is not None
    with pytest.raises(RequestRefused) as caught:
        accept(request)
    assert caught.value.members == {
        "AWSAccessKeyId": KEY,
        "StringToSign": f"DELETE\n\n\n{signed.timestamp}\n/b/k?versionId=1",
        "SignatureProvided": signed.signature,
    }


def test_the_claim_of_a_link_is_one_of_s3_in_its_first_region_with_its_token() -> None:
    signed = parse_authorization(link("GET", "/b/k", token="token"))
    assert signed is not None
    assert (signed.region, signed.session_token, signed.payload_hash) == ("us-east-1", "token", None)
