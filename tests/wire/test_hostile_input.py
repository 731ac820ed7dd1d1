"""Any input gives a shape or a fault, and the fault is well formed."""

import json
from typing import Any
from xml.etree import ElementTree

import cbor2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.conversations import FixedStream, written_by_botocore
from tests.wire.samples import Sampler
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.routing import Router
from trainyard.wire.validation import validator

MODELS = Models()
ROUTER = Router(MODELS, ["127.0.0.1"])
PROTOCOLS = {
    "s3": ["rest-xml"],
    "sts": ["query"],
    "iam": ["query"],
    "logs": ["json"],
    "resourcegroupstaggingapi": ["json"],
    "cloudwatch": ["json", "query", "smithy-rpc-v2-cbor"],
    "sagemaker": ["json"],
    "sagemaker-metrics": ["rest-json"],
    "sagemaker-runtime": ["rest-json"],
}
CALLS = [
    (MODELS.service(service).operation_model(name), protocol)
    for service, protocols in PROTOCOLS.items()
    for protocol in protocols
    for name in MODELS.service(service).operation_names
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def _handle(request: HttpRequest) -> None:
    route = None
    try:
        route = ROUTER.match(request)
        stream = FixedStream(request.body) if route.codec.takes_stream(route.operation) else None
        validator(route.service, route.operation)(route.codec.parse(request, route, stream))
    except Fault as fault:
        codec = route.codec if route is not None else ROUTER.fault_codec(request)
        response = codec.serialise_fault(fault, request_id="R1", route=route)
        assert 400 <= response.status < 500
        assert isinstance(response.body, bytes)
        _assert_well_formed(response.body, dict(response.headers)["Content-Type"])


def _assert_well_formed(body: bytes, content_type: str) -> None:
    if "xml" in content_type:
        ElementTree.fromstring(body)
    elif "cbor" in content_type:
        assert isinstance(cbor2.loads(body), dict)
    else:
        assert isinstance(json.loads(body), dict)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(CALLS), st.binary(max_size=12), st.floats(0, 1), st.integers(0, 8))
def test_a_request_with_some_of_its_bytes_replaced(call: tuple[Any, str], junk: bytes, place: float, cut: int) -> None:
    operation, protocol = call
    sent = Sampler().sample(operation.input_shape) if operation.input_shape else {}
    request = written_by_botocore(operation, sent, protocol=protocol)
    at = int(place * len(request.body))
    request.body = request.body[:at] + junk + request.body[at + cut :]
    _handle(request)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CALLS), st.data())
def test_a_request_with_any_values_in_its_members(call: tuple[Any, str], data: st.DataObject) -> None:
    operation, protocol = call
    members = list(operation.input_shape.members) if operation.input_shape else []
    document = data.draw(st.dictionaries(st.sampled_from(members), VALUES, max_size=5)) if members else {}
    request = written_by_botocore(operation, {}, protocol=protocol) if protocol in ("json", "query") else None
    if request is not None and protocol == "json":
        request.body = json.dumps(document).encode()
        _handle(request)
    elif protocol == "smithy-rpc-v2-cbor":
        path = f"/service/GraniteServiceVersion20100801/operation/{operation.name}"
        body = cbor2.dumps(document)
        _handle(HttpRequest("POST", path, "", Headers([("smithy-protocol", "rpc-v2-cbor")]), body))
    elif request is not None:
        request.body += "".join(f"&{name}.1.{value}={value}" for name, value in document.items()).encode()
        _handle(request)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"]),
    st.text(st.characters(max_codepoint=255), max_size=20),
    st.text(st.characters(max_codepoint=255), max_size=30),
    st.dictionaries(
        st.sampled_from(
            ["host", "authorization", "x-amz-target", "content-type", "x-amz-copy-source", "smithy-protocol"]
        )
        | st.sampled_from(["content-length", "if-modified-since", "x-amz-meta-a", "content-encoding"]),
        st.text(st.characters(max_codepoint=255), max_size=30),
    ),
)
def test_a_request_of_any_path_query_and_headers(method: str, path: str, query: str, headers: dict[str, str]) -> None:
    _handle(HttpRequest(method, f"/{path}", query, Headers(headers.items()), b""))
