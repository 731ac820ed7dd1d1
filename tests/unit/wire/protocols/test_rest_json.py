import json

import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.routing import Route, Router

AUTHORIZATION = ("authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260131/eu-west-1/sagemaker/aws4_request")


def _request(method: str, path: str, body: bytes = b"") -> HttpRequest:
    return HttpRequest(method, path, "", Headers([AUTHORIZATION, ("content-type", "text/csv")]), body)


@pytest.fixture
def invocation(router: Router) -> Route:
    return router.match(_request("POST", "/endpoints/e/invocations"))


def test_a_blob_payload_is_the_body_as_it_is(invocation: Route) -> None:
    shape = invocation.codec.parse(_request("POST", "/endpoints/e/invocations", b"\x00{"), invocation)
    assert shape == {"EndpointName": "e", "Body": b"\x00{", "ContentType": "text/csv"}
    assert not invocation.codec.takes_stream(invocation.operation)


def test_a_malformed_body_is_a_serialization_exception(router: Router) -> None:
    request = _request("PUT", "/BatchPutMetrics", b'{"TrialComponentName": 1}')
    route = router.match(request)
    with pytest.raises(Fault) as caught:
        route.codec.parse(request, route)
    assert caught.value.code == "SerializationException"


def test_members_in_headers_are_not_repeated_in_the_body(router: Router) -> None:
    route = router.match(_request("POST", "/endpoints/e/async-invocations"))
    response = route.codec.serialise(route, {"InferenceId": "i", "OutputLocation": "s3://b/o"}, request_id="R1")
    assert (response.status, response.body) == (202, b'{"InferenceId":"i"}')
    assert ("X-Amzn-SageMaker-OutputLocation", "s3://b/o") in response.headers


def test_a_fault_has_its_type_in_a_header(invocation: Route) -> None:
    response = invocation.codec.serialise_fault(Fault("ValidationError", "No."), request_id="R1", route=invocation)
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {"Message": "No."}
    assert ("x-amzn-ErrorType", "ValidationError") in response.headers
