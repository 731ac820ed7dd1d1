from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest, HttpResponse
from trainyard.wire.routing import Route, Router


class FixedStream:
    """An empty ByteStream."""

    trailers: Mapping[str, str] = {}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b""


XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"


def _request(method: str, uri: str, body: bytes = b"", headers: dict[str, str] | None = None) -> HttpRequest:
    path, _, query = uri.partition("?")
    return HttpRequest(method, path, query, Headers((headers or {}).items()), body)


def _parse(router: Router, request: HttpRequest) -> dict[str, Any]:
    route = router.match(request)
    return route.codec.parse(request, route)


def _answer(router: Router, method: str, uri: str, shape: dict[str, Any]) -> HttpResponse:
    route = router.match(_request(method, uri))
    return route.codec.serialise(route, shape, request_id="R1")


def _fault(router: Router, fault: Fault, route: Route | None = None) -> ElementTree.Element:
    codec = router.fault_codec(_request("GET", "/b/k"))
    response = codec.serialise_fault(fault, request_id="R1", route=route)
    assert isinstance(response.body, bytes)
    return ElementTree.fromstring(response.body)


@pytest.mark.parametrize("namespace", ["", f' xmlns="{XMLNS}"', ' xmlns="urn:other"'])
def test_a_batch_is_read_with_or_without_its_namespace(router: Router, namespace: str) -> None:
    body = (
        f"<Delete{namespace}><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key> b\n</Key></Object></Delete>"
    )
    assert _parse(router, _request("POST", "/b?delete", body.encode())) == {
        "Bucket": "b",
        "Delete": {"Quiet": True, "Objects": [{"Key": "a"}, {"Key": " b\n"}]},
    }


def test_an_element_that_the_model_does_not_know_is_nothing(router: Router) -> None:
    body = b"<Tagging><Odd><x/></Odd><TagSet><Tag><Key>a</Key><Odd/></Tag></TagSet></Tagging>"
    assert _parse(router, _request("PUT", "/b?tagging", body))["Tagging"] == {"TagSet": [{"Key": "a"}]}


def test_an_optional_body_can_be_missing(router: Router) -> None:
    assert _parse(router, _request("PUT", "/b", b"\n")) == {"Bucket": "b"}


def test_an_attribute_is_read_by_its_local_name(router: Router) -> None:
    body = (
        b"<AccessControlPolicy><AccessControlList><Grant>"
        b'<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>u</URI></Grantee>'
        b"</Grant></AccessControlList></AccessControlPolicy>"
    )
    shape = _parse(router, _request("PUT", "/b?acl", body))
    assert shape["AccessControlPolicy"] == {"Grants": [{"Grantee": {"Type": "Group", "URI": "u"}}]}


@pytest.mark.parametrize(
    "body",
    [
        b"<Delete><Object><Key>a</Object></Delete>",
        b"<Other/>",
        b"<Delete><Quiet>perhaps</Quiet></Delete>",
        b"<Delete><Quiet>true</Quiet><Quiet>true</Quiet></Delete>",
        b"<Delete><Object><Key><x/></Key></Object></Delete>",
        b"<Delete><Object><Size>many</Size></Object></Delete>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><Delete><Object><Key>&b;</Key></Object></Delete>',
        b"\x00",
    ],
)
def test_a_malformed_body_is_malformed_xml(router: Router, body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        _parse(router, _request("POST", "/b?delete", body))
    assert (caught.value.code, caught.value.status) == ("MalformedXML", 400)


def test_a_list_of_other_elements_is_malformed_xml(router: Router) -> None:
    with pytest.raises(Fault, match="Tag is expected"):
        _parse(router, _request("PUT", "/b/k?tagging", b"<Tagging><TagSet><Flag/></TagSet></Tagging>"))


@pytest.mark.parametrize(
    ("uri", "headers", "name"),
    [
        ("/b?list-type=2&max-keys=many", {}, "max-keys"),
        ("/b?list-type=2&max-keys=9999999999", {}, "max-keys"),
        ("/b?list-type=2&fetch-owner=perhaps", {}, "fetch-owner"),
        ("/b/k", {"if-modified-since": "yesterday"}, "If-Modified-Since"),
    ],
)
def test_a_malformed_parameter_is_an_invalid_argument_that_names_it(
    router: Router, uri: str, headers: dict[str, str], name: str
) -> None:
    with pytest.raises(Fault) as caught:
        _parse(router, _request("GET", uri, headers=headers))
    assert (caught.value.code, caught.value.members["ArgumentName"]) == ("InvalidArgument", name)


def test_text_that_is_a_payload_is_read_and_answered_as_it_is(router: Router) -> None:
    assert _parse(router, _request("PUT", "/b?policy", '{"ü": 1}'.encode()))["Policy"] == '{"ü": 1}'
    response = _answer(router, "GET", "/b?policy", {"Policy": '{"ü": 1}'})
    assert response.body == '{"ü": 1}'.encode()
    assert ("Content-Type", "application/json") in response.headers


def test_expires_is_any_text_and_a_moment_is_an_http_date(router: Router) -> None:
    put = router.match(_request("PUT", "/b/k"))
    shape = put.codec.parse(_request("PUT", "/b/k", headers={"expires": "never"}), put, FixedStream())
    assert shape["Expires"] == "never"
    assert ("Expires", "never") in _answer(router, "GET", "/b/k", {"Expires": "never", "Body": b""}).headers
    moment = datetime(2026, 1, 31, 12, 34, 56, tzinfo=UTC)
    answer = _answer(router, "GET", "/b/k", {"Expires": moment, "Body": b""})
    assert ("Expires", "Sat, 31 Jan 2026 12:34:56 GMT") in answer.headers


def test_a_listing_has_the_root_and_the_namespace_of_s3(router: Router) -> None:
    moment = datetime(2026, 1, 31, 12, 34, 56, tzinfo=UTC)
    contents = [{"Key": "a<b", "LastModified": moment, "Size": 3, "Owner": None}]
    shape = {"Name": "b", "Contents": contents, "IsTruncated": False}
    assert _answer(router, "GET", "/b?list-type=2", shape).body == (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<Name>b</Name><Contents><Key>a&lt;b</Key><LastModified>2026-01-31T12:34:56.000Z</LastModified>"
        b"<Size>3</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>"
    )


def test_a_grantee_has_its_type_as_an_attribute(router: Router) -> None:
    grant = {"Grantee": {"Type": "Group", "URI": 'u"'}, "Permission": "READ"}
    body = _answer(router, "GET", "/b?acl", {"Grants": [grant]}).body
    assert isinstance(body, bytes)
    assert b'<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>' in body
    ElementTree.fromstring(body)


def test_an_answer_without_content_says_so_by_its_status(router: Router) -> None:
    deleted = _answer(router, "DELETE", "/b/k", {})
    assert (deleted.status, deleted.body) == (204, b"")
    assert "Content-Length" not in dict(deleted.headers)


def test_a_head_has_the_length_of_what_it_describes(router: Router) -> None:
    head = _answer(router, "HEAD", "/b/k", {"ContentLength": 7, "Metadata": {"a": "b"}})
    assert (head.status, head.body) == (200, b"")
    assert [value for name, value in head.headers if name == "Content-Length"] == ["7"]
    assert ("x-amz-meta-a", "b") in head.headers


def test_a_body_in_bytes_has_one_length(router: Router) -> None:
    for shape in ({"Body": b"abc"}, {"Body": b"abc", "ContentLength": 3}):
        lengths = [value for name, value in _answer(router, "GET", "/b/k", shape).headers if name == "Content-Length"]
        assert lengths == ["3"]


def test_a_fault_has_the_resource_the_request_and_its_members(router: Router) -> None:
    route = router.match(_request("GET", "/b/k%01"))
    root = _fault(router, Fault("NoSuchKey", "No <key>.", status=404, members={"Key": "k\x01"}), route)
    assert [(element.tag, element.text) for element in root] == [
        ("Code", "NoSuchKey"),
        ("Message", "No <key>."),
        ("Resource", "/b/k\ufffd"),
        ("Key", "k\ufffd"),
        ("RequestId", "R1"),
        ("HostId", "R1"),
    ]


def test_a_fault_without_a_route_is_well_formed_too(router: Router) -> None:
    assert _fault(router, Fault("InvalidURI", "x")).findtext("Resource") == "/"


def test_an_operation_with_a_streaming_body_takes_the_stream(router: Router) -> None:
    for method, uri, takes in [("PUT", "/b/k", True), ("PUT", "/b/k?tagging", False), ("GET", "/b/k", False)]:
        route = router.match(_request(method, uri))
        assert route.codec.takes_stream(route.operation) is takes
