import json

import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.routing import Route, Router


def _request(target: str, body: bytes) -> HttpRequest:
    return HttpRequest("POST", "/", "", Headers([("X-Amz-Target", target)]), body)


def _route(router: Router, target: str = "SageMaker.DescribeTrainingJob") -> Route:
    return router.match(_request(target, b""))


def test_a_malformed_document_is_a_serialization_exception(router: Router) -> None:
    route = _route(router)
    with pytest.raises(Fault) as caught:
        route.codec.parse(_request("", b'{"TrainingJobName": [}'), route)
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)


def test_an_operation_without_output_answers_nothing(router: Router) -> None:
    route = _route(router, "SageMaker.StopTrainingJob")
    response = route.codec.serialise(route, {}, request_id="R1")
    assert (response.status, response.body) == (200, b"")
    assert ("x-amzn-RequestId", "R1") in response.headers
    assert ("Content-Length", "0") in response.headers


def test_a_fault_is_a_document_with_its_type_and_the_models_name_for_the_message(router: Router) -> None:
    route = _route(router, "SageMaker.CreateTrainingJob")
    modelled = route.codec.serialise_fault(Fault("ResourceInUse", 'A "job" exists.'), request_id="R1", route=route)
    assert isinstance(modelled.body, bytes)
    assert json.loads(modelled.body) == {"__type": "ResourceInUse", "Message": 'A "job" exists.'}
    unrouted = route.codec.serialise_fault(Fault("Odd", "It is.", status=404, headers={"A": "b"}), request_id="R1")
    assert isinstance(unrouted.body, bytes)
    assert json.loads(unrouted.body) == {"__type": "Odd", "message": "It is."}
    assert unrouted.status == 404
    assert ("A", "b") in unrouted.headers


def test_a_service_that_used_the_query_protocol_sends_its_old_code_and_fault_type(router: Router) -> None:
    route = _route(router, "GraniteServiceVersion20100801.PutMetricData")
    sender = route.codec.serialise_fault(Fault("InvalidParameterValueException", "x"), request_id="R1", route=route)
    assert ("x-amzn-query-error", "InvalidParameterValue;Sender") in sender.headers
    ours = route.codec.serialise_fault(Fault("InternalFailure", "x", status=500), request_id="R1", route=route)
    assert ("x-amzn-query-error", "InternalFailure;Receiver") in ours.headers
