from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from botocore.auth import HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.refusal import Family, Reason, Refused
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
    """What a server receives from who follows a link of botocore's."""
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
    with pytest.raises(Refused) as caught:
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
    # The host is not signed; sent to other.localhost the same path is a key of the bucket "other".
    assert refusal(link("GET", "/b/k"), {"Bucket": "other", "Key": "b/k"}) is Reason.MISMATCH


def test_a_content_type_is_checked_where_the_link_names_one() -> None:
    named = link("PUT", "/b/k", headers={"Content-Type": "text/plain"})
    accept(named)
    assert refusal(replace(named, query=named.query.replace("plain", "html"))) is Reason.MISMATCH
    unnamed = link("PUT", "/b/k")
    accept(replace(unnamed, headers=Headers([("host", HOST), ("content-type", "application/x-www-form-urlencoded")])))


def test_any_change_of_what_was_signed_is_noticed() -> None:
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
def test_a_time_that_is_none_is_refused(expires: str) -> None:
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
        with pytest.raises(Refused, match="s3v4") as caught:
            verify(signed, request, secret=SECRET, now=datetime.now(UTC), family=family, labels=labels)
        assert caught.value.reason is Reason.UNSUPPORTED
