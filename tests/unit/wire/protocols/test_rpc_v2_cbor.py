from datetime import UTC, datetime
from typing import Any

import cbor2
import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.routing import Route, Router


def _request(body: bytes, operation: str = "PutMetricData") -> HttpRequest:
    path = f"/service/GraniteServiceVersion20100801/operation/{operation}"
    return HttpRequest("POST", path, "", Headers([("smithy-protocol", "rpc-v2-cbor")]), body)


@pytest.fixture
def route(router: Router) -> Route:
    return router.match(_request(b""))


def test_a_tagged_moment_is_read_whole_and_in_parts(route: Route) -> None:
    def parse(seconds: float) -> Any:
        body = cbor2.dumps({"MetricData": [{"Timestamp": cbor2.CBORTag(1, seconds)}]})
        return route.codec.parse(_request(body), route)["MetricData"][0]["Timestamp"]

    assert parse(1769862896) == datetime(2026, 1, 31, 12, 34, 56, tzinfo=UTC)
    assert parse(1769862896.5) == datetime(2026, 1, 31, 12, 34, 56, 500_000, UTC)


def test_no_body_is_an_empty_shape(route: Route) -> None:
    assert route.codec.parse(_request(b""), route) == {}


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"\xa1",
        b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x81" * 100_000,
        b"\xd8\x1c\x81\xd8\x1d\x00",
        b"\xd8\x23\x61(",
        b"\xc5\x82\x1a\x7f\xff\xff\xff\x01",
        b"\xa2\x69Namespace\x61a\x69Namespace\x61b",
        b"\xa1\x69Namespace\x62\xff\xff",
        cbor2.dumps(["list"]),
        cbor2.dumps({"Namespace": 1}),
        cbor2.dumps({"Namespace": b"bytes"}),
        cbor2.dumps({"MetricData": [{"Value": float("nan")}]}),
        cbor2.dumps({"MetricData": [{"Value": "1"}]}),
        cbor2.dumps({"MetricData": [{"StorageResolution": 2**31}]}),
        cbor2.dumps({"MetricData": [{"Timestamp": 1769862896}]}),
        cbor2.dumps({"MetricData": [{"Timestamp": cbor2.CBORTag(1, 1e300)}]}),
    ],
    ids=lambda body: body[:24],
)
def test_invalid_cbor_is_a_serialization_exception(route: Route, body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        route.codec.parse(_request(body), route)
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)


def test_a_fault_is_a_map_with_its_type(route: Route) -> None:
    response = route.codec.serialise_fault(Fault("InvalidFormat", "No."), request_id="R1", route=route)
    assert isinstance(response.body, bytes)
    assert cbor2.loads(response.body) == {"__type": "InvalidFormat", "message": "No."}
    assert ("smithy-protocol", "rpc-v2-cbor") in response.headers
    assert ("Content-Type", "application/cbor") in response.headers


def test_a_response_names_its_protocol_and_has_no_content_type_without_a_body(router: Router, route: Route) -> None:
    response = route.codec.serialise(route, {}, request_id="R1")
    assert (response.body, dict(response.headers)) == (
        b"",
        {"x-amzn-RequestId": "R1", "smithy-protocol": "rpc-v2-cbor", "Content-Length": "0"},
    )
