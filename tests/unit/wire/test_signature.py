import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.refusal import Family, Reason, RequestRefused
from trainyard.wire.signature import check_signed_request, parse_authorization, verify, verify_body
from trainyard.wire.signed_request import Seed, SignedRequest

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
HOST = "127.0.0.1:4400"


def sign(
    method: str,
    target: str,
    *,
    service: str = "s3",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    token: str | None = None,
    link_s: int | None = None,
    secret: str = SECRET,
) -> HttpRequest:
    """Return the request that a server receives from botocore."""
    unsigned = AWSRequest(method=method, url=f"http://{HOST}{target}", headers=headers or {}, data=body)
    credentials = Credentials(KEY, secret, token)
    signer: Any
    if link_s is not None:
        signer = (S3SigV4QueryAuth if service == "s3" else SigV4QueryAuth)(
            credentials, service, "eu-west-3", expires=link_s
        )
    else:
        signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(credentials, service, "eu-west-3")
    signer.add_auth(unsigned)
    sent = urlsplit(unsigned.url)
    fields = [("Host", HOST), *((name, str(value)) for name, value in unsigned.headers.items() if name != "host")]
    # For a link, botocore moves the form from the body to the query.
    return HttpRequest(method, sent.path, sent.query, Headers(fields), bytes(unsigned.body or b""))


def accept(request: HttpRequest, *, family: Family = Family.S3, now: datetime | None = None) -> Seed:
    signed = parse_authorization(request)
    assert signed is not None, "the request is signed"
    seed = verify(signed, request, secret=SECRET, now=now or datetime.now(UTC), family=family)
    if family is not Family.S3:
        verify_body(signed, request.body)
    return seed


def refusal(request: HttpRequest, *, family: Family = Family.S3, now: datetime | None = None) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        accept(request, family=family, now=now)
    return caught.value


def with_header(request: HttpRequest, name: str, value: str) -> HttpRequest:
    return replace(request, headers=Headers({**dict(request.headers.items()), name: value}.items()))


ODD_S3_TARGETS = [
    "/",
    "/bucket",
    "/bucket/key",
    "/bucket/a%20b/%C3%A9%F0%9F%9A%82.txt",
    "/bucket/a%2Bb%3D%26%3F%23",
    "/bucket//double//slash/",
    "/bucket/./dot/../segments",
    "/bucket/tilde~and-_.txt",
    "/bucket/%25percent",
    "/bucket?list-type=2&prefix=a%2Fb%20c&delimiter=%2F",
    "/bucket/key?uploads",
    "/bucket/key?uploadId=abc%3D%3D&partNumber=7",
    "/bucket?prefix=&list-type=2&continuation-token=1%2BZ%2F%3D",
    "/bucket?a=2&a=1&A=3",
]


@pytest.mark.parametrize("target", ODD_S3_TARGETS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_what_botocore_signs_for_s3_is_accepted(target: str, method: str) -> None:
    seed = accept(sign(method, target, body=b"data" if method == "PUT" else b""))
    assert seed.scope.endswith("/eu-west-3/s3/aws4_request")


@pytest.mark.parametrize("target", ODD_S3_TARGETS)
def test_links_that_botocore_makes_for_s3_are_accepted(target: str) -> None:
    accept(sign("GET", target, link_s=60, token="session/token=="))


@pytest.mark.parametrize(
    "target",
    ["/", "/endpoints/my-model/invocations", "/a%20b/c", "/a//b/../c/./d/", "/..", "/?Action=GetCallerIdentity"],
)
@pytest.mark.parametrize("link_s", [None, 60])
def test_what_botocore_signs_for_other_services_is_accepted(target: str, link_s: int | None) -> None:
    request = sign("POST", target, service="sagemaker", body=b'{"a": 1}', link_s=link_s)
    accept(request, family=Family.JSON)


@given(
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    parameters=st.dictionaries(
        st.sampled_from(["prefix", "marker", "x y", "é"]), st.text(st.characters(codec="utf-8"))
    ),
)
@settings(max_examples=150, deadline=None)
def test_any_key_and_any_parameters_are_signed_alike_on_both_sides(key: str, parameters: dict[str, str]) -> None:
    from botocore.utils import percent_encode, percent_encode_sequence

    query = percent_encode_sequence(parameters)
    accept(sign("GET", "/bucket/" + percent_encode(key, safe="/~") + (f"?{query}" if query else "")))


def test_all_claims_of_a_signed_request_are_parsed() -> None:
    request = sign("GET", "/bucket/key", token="token", headers={"x-amz-meta-a": "b"})
    signed = parse_authorization(request)
    assert signed is not None
    assert (signed.access_key_id, signed.region, signed.service) == (KEY, "eu-west-3", "s3")
    assert signed.signed_headers == (
        "host",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-meta-a",
        "x-amz-security-token",
    )
    assert signed.session_token == "token"
    assert signed.timestamp == request.headers["x-amz-date"]
    assert signed.signed_at == datetime.strptime(signed.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert (signed.expires_in, signed.is_presigned) == (None, False)


def test_a_link_carries_its_lifetime_and_token() -> None:
    signed = parse_authorization(sign("GET", "/bucket/key", link_s=90, token="a+b/c="))
    assert signed is not None
    assert (signed.expires_in, signed.is_presigned, signed.session_token) == (timedelta(seconds=90), True, "a+b/c=")
    assert signed.payload_hash is None


def test_an_unsigned_request_claims_nothing() -> None:
    assert parse_authorization(HttpRequest("GET", "/", "prefix=Signature", Headers([("host", HOST)]))) is None


def test_the_example_of_the_s3_documentation_is_accepted() -> None:
    # https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, "Example: GET Object"
    request = HttpRequest(
        "GET",
        "/test.txt",
        "",
        Headers(
            [
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
                ("x-amz-date", "20130524T000000Z"),
                (
                    "authorization",
                    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                    "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
                    "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
                ),
            ]
        ),
    )
    accept(request, now=datetime(2013, 5, 24, tzinfo=UTC))


def test_the_link_of_the_s3_documentation_is_accepted() -> None:
    # https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
    query = (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    request = HttpRequest("GET", "/test.txt", query, Headers([("host", "examplebucket.s3.amazonaws.com")]))
    accept(request, now=datetime(2013, 5, 24, 23, 59, tzinfo=UTC))
    assert refusal(request, now=datetime(2013, 5, 25, 0, 1, tzinfo=UTC)).reason is Reason.LINK_EXPIRED


def test_folded_repeated_and_padded_headers_are_signed_in_their_trimmed_form() -> None:
    signed = sign("GET", "/b/k", headers={"x-amz-meta-a": "one   two", "x-amz-meta-list": "1,2"})
    fields = [(name, value) for name, value in signed.headers.items() if not name.startswith("x-amz-meta")]
    received = Headers([*fields, ("X-Amz-Meta-A", "  one \t two "), ("x-amz-meta-list", "1"), ("X-Amz-Meta-List", "2")])
    accept(replace(signed, headers=received))


def test_headers_that_were_not_signed_may_be_added_on_the_way() -> None:
    request = sign("GET", "/b/k")
    for name in ("user-agent", "x-forwarded-for", "via", "amz-sdk-invocation-id"):
        request = with_header(request, name, "anything")
    accept(request)


def test_a_plus_sign_in_a_query_is_the_blank_that_was_signed() -> None:
    request = sign("GET", "/b?prefix=a%20b")
    accept(replace(request, query="prefix=a+b"))


@pytest.mark.parametrize("family", list(Family))
def test_a_wrong_secret_does_not_match(family: Family) -> None:
    service = "s3" if family is Family.S3 else "sts"
    refused = refusal(sign("POST", "/", service=service, body=b"Action=X", secret="other"), family=family)
    assert refused.reason is Reason.MISMATCH


def tampered(request: HttpRequest) -> list[tuple[str, HttpRequest]]:
    return [
        ("method", replace(request, method="DELETE")),
        ("path", replace(request, path=request.path + "x")),
        ("query", replace(request, query=request.query + "&acl")),
        ("a dropped parameter", replace(request, query=request.query.removeprefix("versionId=1&"))),
        ("host", with_header(request, "host", "elsewhere")),
        ("a signed header", with_header(request, "x-amz-meta-a", "2")),
    ]


@pytest.mark.parametrize("link_s", [None, 60])
def test_any_change_to_the_signed_text_is_detected(link_s: int | None) -> None:
    request = sign("GET", "/b/k?versionId=1&x=y", headers={"x-amz-meta-a": "1"}, link_s=link_s)
    accept(request)
    for what, changed in tampered(request):
        assert refusal(changed).reason is Reason.MISMATCH, what


def test_a_changed_body_is_noticed_where_the_body_is_whole() -> None:
    request = sign("POST", "/", service="sagemaker", body=b'{"a": 1}')
    assert refusal(replace(request, body=b'{"a": 2}'), family=Family.JSON).reason is Reason.MISMATCH


def test_a_declared_hash_does_not_stand_in_for_the_body_outside_s3() -> None:
    digest = "2" * 64
    request = sign("POST", "/", service="sagemaker", body=b"{}", headers={"X-Amz-Content-SHA256": digest})
    assert refusal(request, family=Family.JSON).reason is Reason.PAYLOAD_MISMATCH


def test_a_signature_that_declares_its_body_is_verified_before_the_body_has_come() -> None:
    body = b'{"a": 1}'
    headers = {"X-Amz-Content-SHA256": hashlib.sha256(body).hexdigest()}
    request = sign("POST", "/", service="sagemaker", body=body, headers=headers)
    signed = parse_authorization(request)
    assert signed is not None
    verify(signed, replace(request, body=b""), secret=SECRET, now=datetime.now(UTC), family=Family.JSON)
    accept(request, family=Family.JSON)
    assert refusal(replace(request, body=b'{"a": 2}'), family=Family.JSON).reason is Reason.PAYLOAD_MISMATCH


def test_a_digest_that_is_not_signed_declares_nothing() -> None:
    request = sign("POST", "/", service="sagemaker", body=b"{}")
    declared = with_header(request, "x-amz-content-sha256", hashlib.sha256(b"[]").hexdigest())
    assert refusal(replace(declared, body=b"[]"), family=Family.JSON).reason is Reason.MISMATCH


def test_an_old_signature_is_refused_before_its_body_has_come() -> None:
    request = sign("POST", "/", service="sagemaker", body=b"{}")
    signed = parse_authorization(request)
    assert signed is not None
    check_signed_request(signed, request, now=datetime.now(UTC), family=Family.JSON)
    with pytest.raises(RequestRefused) as caught:
        check_signed_request(signed, request, now=datetime.now(UTC) + timedelta(hours=1), family=Family.JSON)
    assert caught.value.reason is Reason.SKEWED


def test_an_unsigned_payload_is_accepted_if_its_declaration_is_signed() -> None:
    headers = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    accept(sign("POST", "/", service="sagemaker", body=b"{}", headers=headers), family=Family.JSON)


def test_signing_an_amz_header_is_not_optional_for_s3() -> None:
    refused = refusal(with_header(sign("PUT", "/b/k"), "x-amz-copy-source", "/b/secret"))
    assert refused.reason is Reason.HEADERS_NOT_SIGNED
    assert refused.members == {"HeadersNotSigned": "x-amz-copy-source"}


def test_the_target_of_a_json_call_must_be_signed() -> None:
    request = with_header(sign("POST", "/", service="sagemaker", body=b"{}"), "x-amz-target", "SageMaker.DeleteModel")
    assert refusal(request, family=Family.JSON).reason is Reason.HEADERS_NOT_SIGNED


def test_the_host_must_be_signed() -> None:
    request = sign("GET", "/b/k")
    authorization = request.headers["authorization"].replace("SignedHeaders=host;", "SignedHeaders=")
    assert refusal(with_header(request, "authorization", authorization)).reason is Reason.HEADERS_NOT_SIGNED


def test_s3_demands_the_payload_hash() -> None:
    request = sign("GET", "/", service="ec2")  # sends no payload hash, unlike S3
    assert refusal(request).reason is Reason.PAYLOAD_NOT_DECLARED


@pytest.mark.parametrize("minutes", [-14, 0, 14])
def test_clocks_can_differ_by_15_minutes(minutes: int) -> None:
    accept(sign("GET", "/b/k"), now=datetime.now(UTC) + timedelta(minutes=minutes))


@pytest.mark.parametrize("minutes", [-16, 16])
def test_clocks_that_differ_more_are_refused(minutes: int) -> None:
    refused = refusal(sign("GET", "/b/k"), now=datetime.now(UTC) + timedelta(minutes=minutes))
    assert refused.reason is Reason.SKEWED
    assert refused.members["MaxAllowedSkewMilliseconds"] == "900000"


def test_a_link_works_for_its_lifetime_and_not_before_it_is_signed() -> None:
    request, now = sign("GET", "/b/k", link_s=3600), datetime.now(UTC)
    accept(request, now=now + timedelta(minutes=59))
    assert refusal(request, now=now + timedelta(minutes=61)).reason is Reason.LINK_EXPIRED
    assert refusal(request, now=now - timedelta(minutes=16)).reason is Reason.LINK_NOT_YET_VALID


@pytest.mark.parametrize("link_s", [1, 60, 899, 901, 604_800])
def test_a_link_lives_to_its_last_second_and_no_longer(link_s: int) -> None:
    """Even lifetimes shorter than the allowed clock skew expire."""
    request = sign("GET", "/b/k", link_s=link_s)
    (written,) = parse_qs(request.query)["X-Amz-Date"]
    last = datetime.strptime(written, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) + timedelta(seconds=link_s)
    accept(request, now=last)
    assert refusal(request, now=last + timedelta(seconds=1)).reason is Reason.LINK_EXPIRED


@pytest.mark.parametrize("written", ["604801", "-1", "x", "", "9" * 5000, "٣"])
def test_a_lifetime_that_is_no_number_up_to_a_week_is_refused(written: str) -> None:
    request = sign("GET", "/b/k", link_s=60)
    changed = replace(request, query=request.query.replace("X-Amz-Expires=60", f"X-Amz-Expires={written}"))
    assert refusal(changed).reason is Reason.MALFORMED_QUERY


def test_the_error_for_a_link_names_the_missing_parameter() -> None:
    request = sign("GET", "/b/k", link_s=60)
    changed = replace(request, query=request.query.replace("X-Amz-Date", "X-Amz-Dat"))
    assert "X-Amz-Date missing" in refusal(changed).message


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request,Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/20130524/us east/s3/aws4_request,SignedHeaders=host,Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws3_request,SignedHeaders=host,Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/20130523/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0,More=1",
        "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request,SignedHeaders=host:x,Signature=0",
        pytest.param(
            "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request,Signature=0,SignedHeaders=a"
            + ";a" * 9999,
            id="many signed headers",
        ),
        pytest.param("AWS4-HMAC-SHA256 " + "a=b," * 9999, id="many fields"),
    ],
)
def test_a_malformed_header_is_called_that(authorization: str) -> None:
    request = HttpRequest(
        "GET", "/", "", Headers([("authorization", authorization), ("x-amz-date", "20130524T000000Z")])
    )
    with pytest.raises(RequestRefused) as caught:
        parse_authorization(request)
    assert caught.value.reason is Reason.MALFORMED_HEADER


@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ([("authorization", "AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=")], ""),
        ([("authorization", "AWS4-ECDSA-P256-SHA256 Credential=A/20130524/s3/aws4_request")], ""),
        ([("authorization", "Bearer abc")], ""),
        ([], "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Signature=00"),
    ],
)
def test_other_ways_to_sign_are_refused_by_name(fields: list[tuple[str, str]], query: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_authorization(HttpRequest("POST", "/", query, Headers(fields)))
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "AWS4-HMAC-SHA256" in caught.value.message


def test_a_request_signed_by_header_and_link_is_refused() -> None:
    link = sign("GET", "/b/k", link_s=60)
    both = with_header(link, "authorization", sign("GET", "/b/k").headers["authorization"])
    assert refusal(both).reason is Reason.AMBIGUOUS


def test_a_request_without_a_readable_date_is_refused() -> None:
    request = sign("GET", "/b/k")
    for date in ("", "yesterday", "20131301T000000Z"):
        fields = [(name, date if name == "x-amz-date" else value) for name, value in request.headers.items()]
        assert refusal(replace(request, headers=Headers(fields))).reason in (Reason.UNDATED, Reason.MALFORMED_HEADER)


def test_the_error_for_a_request_without_a_date_names_the_possible_headers() -> None:
    request = sign("GET", "/b/k")
    fields = [(name, value) for name, value in request.headers.items() if name != "x-amz-date"]
    refused = refusal(replace(request, headers=Headers(fields)))
    assert refused.reason is Reason.UNDATED
    assert "existence of either a 'X-Amz-Date' or a 'Date' header" in str(refused)


def test_an_empty_token_is_none() -> None:
    for request in (
        with_header(sign("GET", "/b/k"), "x-amz-security-token", ""),
        documented(more="&X-Amz-Security-Token="),
    ):
        signed = parse_authorization(request)
        assert signed is not None
        assert signed.session_token is None


@pytest.mark.parametrize(
    "written",
    [
        "Fri, 31 Dec 9999 23:59:59 -1200",
        "Mon, 01 Jan 0001 00:00:00 +1200",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2020 00:00:00 +99999999999",
        "00010101T000000Z",
        "99991231T235959Z",
        "00000000T000000Z",
    ],
)
def test_a_date_at_the_end_of_the_calendar_is_refused_and_breaks_nothing(written: str) -> None:
    signed = sign("GET", "/b/k")
    today = signed.headers["x-amz-date"][:8]
    authorization = signed.headers["authorization"].replace(today, written[:8] if written[:8].isdigit() else today)
    dated = with_header(with_header(signed, "x-amz-date", written), "authorization", authorization)
    assert refusal(dated).reason in (Reason.UNDATED, Reason.SKEWED, Reason.MALFORMED_HEADER)
    if written.endswith("Z"):
        linked = sign("GET", "/b/k", link_s=604_800)
        today = dict(linked.parameters())["X-Amz-Date"]
        changed = replace(linked, query=linked.query.replace(today, written).replace(today[:8], written[:8]))
        refused = refusal(changed)
        assert refused.reason in (Reason.LINK_EXPIRED, Reason.LINK_NOT_YET_VALID, Reason.MALFORMED_QUERY)
        assert 400 <= refused.fault(Family.S3).status < 500


def test_the_date_header_may_be_the_one_that_is_signed() -> None:
    signed = parse_authorization(
        HttpRequest(
            "GET",
            "/",
            "",
            Headers(
                [
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    (
                        "authorization",
                        "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request,"
                        "SignedHeaders=host;date,Signature=00",
                    ),
                ]
            ),
        )
    )
    assert isinstance(signed, SignedRequest)
    assert (signed.timestamp, signed.signed_at) == ("20130524T000000Z", datetime(2013, 5, 24, tzinfo=UTC))


def test_a_mismatch_shows_s3_clients_what_was_compared() -> None:
    request = sign("GET", "/b/k?prefix=%2F", secret="other")
    fault = refusal(request).fault(Family.S3)
    assert (fault.code, fault.status) == ("SignatureDoesNotMatch", 403)
    assert fault.members["AWSAccessKeyId"] == KEY
    assert fault.members["CanonicalRequest"].startswith("GET\n/b/k\nprefix=%2F\nhost:127.0.0.1:4400\n")
    assert fault.members["StringToSign"].startswith("AWS4-HMAC-SHA256\n")
    assert SECRET not in str(fault.members)


def test_a_signature_beyond_ascii_is_a_mismatch_and_no_crash() -> None:
    request = sign("GET", "/b/k")
    authorization = request.headers["authorization"][:-1] + "é"
    assert refusal(with_header(request, "authorization", authorization)).reason is Reason.MISMATCH


def documented(
    *,
    algorithm: str = "AWS4-HMAC-SHA256",
    credential: str = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request",
    signed_headers: str = "host",
    date: str = "20130524T000000Z",
    expires: str = "86400",
    signature: str = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
    more: str = "",
    headers: tuple[tuple[str, str], ...] = (),
) -> HttpRequest:
    """Return the link of the S3 documentation with some parameters changed; empty ones are omitted."""
    parameters = {
        "X-Amz-Algorithm": algorithm,
        "X-Amz-Credential": credential.replace("/", "%2F"),
        "X-Amz-Date": date,
        "X-Amz-Expires": expires,
        "X-Amz-SignedHeaders": signed_headers,
        "X-Amz-Signature": signature,
    }
    query = "&".join(f"{name}={value}" for name, value in parameters.items() if value) + more
    return HttpRequest("GET", "/test.txt", query, Headers([("host", "examplebucket.s3.amazonaws.com"), *headers]))


MADE = datetime(2013, 5, 24, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def test_a_link_works_until_the_last_moment_of_its_lifetime() -> None:
    accept(documented(), now=MADE + timedelta(days=1))
    refused = refusal(documented(), now=MADE + timedelta(days=1) + MOMENT)
    assert refused.reason is Reason.LINK_EXPIRED
    assert refused.members == {
        "X-Amz-Expires": "86400",
        "Expires": "2013-05-25T00:00:00Z",
        "ServerTime": "2013-05-25T00:00:00Z",
    }


def test_a_link_of_a_minute_is_refused_after_that_minute() -> None:
    request, signed_at = sign("GET", "/b/k", link_s=60), datetime.now(UTC)
    assert refusal(request, now=signed_at + timedelta(seconds=62)).reason is Reason.LINK_EXPIRED


def test_a_clock_can_be_off_by_exactly_15_minutes() -> None:
    request = sign("GET", "/b/k")
    signed = parse_authorization(request)
    assert signed is not None
    quarter = timedelta(minutes=15)
    accept(request, now=signed.signed_at + quarter)
    accept(request, now=signed.signed_at - quarter)
    for late, now in ((True, signed.signed_at + quarter + MOMENT), (False, signed.signed_at - quarter - MOMENT)):
        refused = refusal(request, now=now)
        assert refused.reason is Reason.SKEWED
        assert refused.message.startswith("Signature expired" if late else "Signature not yet current")
        assert refused.members["RequestTime"] == signed.timestamp
        assert refused.members["ServerTime"] == now.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("expires", ["0", "604800"])
def test_a_lifetime_of_up_to_a_week_is_read(expires: str) -> None:
    signed = parse_authorization(documented(expires=expires))
    assert signed is not None
    assert signed.expires_in == timedelta(seconds=int(expires))


@pytest.mark.parametrize("expires", ["604801", "99999999", "100000000", "1.5", "+60"])
def test_a_longer_or_odd_lifetime_is_not_read(expires: str) -> None:
    assert refusal(documented(expires=expires)).reason is Reason.MALFORMED_QUERY


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (documented(credential=""), "X-Amz-Credential missing"),
        (documented(signed_headers=""), "X-Amz-SignedHeaders missing"),
        (documented(date=""), "X-Amz-Date missing"),
        (documented(expires=""), "X-Amz-Expires missing"),
        (documented(signature=""), "X-Amz-Signature missing"),
        (documented(signature="", date=""), "X-Amz-Signature and X-Amz-Date missing"),
    ],
)
def test_the_error_for_a_link_names_everything_that_is_missing(request_: HttpRequest, named: str) -> None:
    refused = refusal(request_)
    assert refused.reason is Reason.MALFORMED_QUERY
    assert named in refused.message


def test_a_link_without_an_algorithm_is_not_taken_for_an_unsigned_request() -> None:
    assert refusal(documented(algorithm="")).reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(
    "malformed",
    [
        documented(date="20130524T000000Zx"),
        documented(date="20130524000000"),
        documented(date="20130524T250000Z"),
        documented(signed_headers="host%0Ax-amz-date"),
        documented(credential="A/20130524/us-east-1/s3/aws4_request2"),
        documented(credential="A/20130525/us-east-1/s3/aws4_request"),
        documented(credential=f"A/20130524/{'r' * 65}/s3/aws4_request"),
        documented(credential=f"A/20130524/us-east-1/{'s' * 65}/aws4_request"),
        documented(credential="/20130524/us-east-1/s3/aws4_request"),
    ],
)
def test_a_malformed_link_is_called_that(malformed: HttpRequest) -> None:
    assert refusal(malformed).reason is Reason.MALFORMED_QUERY


def test_names_of_regions_and_services_may_have_64_characters() -> None:
    signed = parse_authorization(documented(credential=f"A/20130524/{'r' * 64}/{'s' * 64}/aws4_request"))
    assert signed is not None
    assert (signed.region, signed.service) == ("r" * 64, "s" * 64)


def test_the_time_of_a_signature_is_read_to_the_second() -> None:
    signed = parse_authorization(documented(date="20130524T112233Z"))
    assert signed is not None
    assert (signed.date, signed.signed_at) == ("20130524", datetime(2013, 5, 24, 11, 22, 33, tzinfo=UTC))


def test_a_link_declares_its_payload_in_its_query_or_else_in_a_header() -> None:
    in_header = (("x-amz-content-sha256", "b" * 64),)
    for request, declared in (
        (documented(), None),
        (documented(headers=in_header), "b" * 64),
        (documented(headers=in_header, more=f"&X-Amz-Content-Sha256={'a' * 64}"), "a" * 64),
    ):
        signed = parse_authorization(request)
        assert signed is not None
        assert signed.payload_hash == declared


@pytest.mark.parametrize("written", ["20130524T000000Zx", "x20130524T000000Z"])
def test_a_date_with_something_around_it_is_no_date(written: str) -> None:
    assert refusal(with_header(sign("GET", "/b/k"), "x-amz-date", written)).reason is Reason.UNDATED


@pytest.mark.parametrize("name", ["Credential", "SignedHeaders", "Signature"])
def test_the_error_for_a_header_names_the_missing_fields(name: str) -> None:
    request = sign("GET", "/b/k")
    authorization = request.headers["authorization"].replace(f"{name}=", "Other=")
    refused = refusal(with_header(request, "authorization", authorization))
    assert refused.reason is Reason.MALFORMED_HEADER
    assert f"it has no {name}." in refused.message


def test_the_seed_continues_the_signature_of_the_request() -> None:
    request = sign("PUT", "/b/k")
    signed = parse_authorization(request)
    assert signed is not None
    seed = accept(request)
    assert request.headers["authorization"].endswith(f"Signature={seed.signature}")
    assert seed.timestamp == request.headers["x-amz-date"]
    assert seed.scope == f"{signed.date}/eu-west-3/s3/aws4_request"


def test_headers_that_decide_nothing_need_no_signature_outside_s3() -> None:
    request = sign("POST", "/", service="sagemaker", body=b"{}")
    accept(with_header(request, "x-amz-user-agent", "aws-sdk-js"), family=Family.JSON)


def test_every_header_that_lacks_a_signature_is_named() -> None:
    request = sign("GET", "/b/k")
    authorization = request.headers["authorization"].replace("SignedHeaders=host;", "SignedHeaders=")
    request = with_header(with_header(request, "authorization", authorization), "x-amz-acl", "public-read")
    refused = refusal(request)
    assert refused.members == {"HeadersNotSigned": "host, x-amz-acl"}


def test_a_body_that_someone_else_declares_unsigned_is_still_proven() -> None:
    request = sign("POST", "/", service="sagemaker", body=b"{}")
    declared = with_header(request, "x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    accept(declared, family=Family.JSON)
    assert refusal(replace(declared, body=b"[]"), family=Family.JSON).reason is Reason.MISMATCH


def test_links_of_the_old_version_are_for_s3_with_a_known_bucket_only() -> None:
    query = "AWSAccessKeyId=A&Signature=x&Expires=2000000000"
    request = HttpRequest("GET", "/b/k", query, Headers([("host", HOST)]))
    signed = parse_authorization(request)
    assert signed is not None
    for family, labels in ((Family.S3, None), (Family.JSON, {"Bucket": "b"})):
        with pytest.raises(RequestRefused) as caught:
            verify(signed, request, secret=SECRET, now=MADE, family=family, labels=labels)
        assert caught.value.reason is Reason.UNSUPPORTED


def test_the_evidence_of_a_mismatch_is_all_that_was_compared_in_text_and_in_bytes() -> None:
    request = sign("GET", "/b/k", secret="other")
    members = refusal(request).members
    assert request.headers["authorization"].endswith(members["SignatureProvided"])
    for name in ("StringToSign", "CanonicalRequest"):
        assert bytes.fromhex(members[f"{name}Bytes"]).decode() == members[name]
