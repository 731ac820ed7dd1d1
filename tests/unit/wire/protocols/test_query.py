from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.model import ServiceModel

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.limits import DEFAULT_LIMITS
from trainyard.wire.protocols.query import AwsQuery
from trainyard.wire.routing import Route, Router

HEADERS = [("content-type", "application/x-www-form-urlencoded")]
ALARM = "Action=PutMetricAlarm&Version=2010-08-01&"


def _request(body: str, query: str = "") -> HttpRequest:
    return HttpRequest("POST", "/", query, Headers(HEADERS), body.encode())


def _parse(router: Router, body: str, query: str = "") -> dict[str, object]:
    request = _request(body, query)
    route = router.match(request)
    return route.codec.parse(request, route)


def _route(router: Router, action: str, version: str) -> Route:
    return router.match(_request(f"Action={action}&Version={version}"))


def test_items_are_in_the_order_of_their_numbers(router: Router) -> None:
    items = "&".join(f"MetricNames.member.{number}=n{number}" for number in (10, 2, 1))
    body = f"{ALARM}Dimensions.member.2.Name=b&Dimensions.member.1.Name=a&{items}"
    assert _parse(router, body)["Dimensions"] == [{"Name": "a"}, {"Name": "b"}]


def test_a_number_of_any_size_costs_one_item(router: Router) -> None:
    body = f"{ALARM}Dimensions.member.1.Name=a&Dimensions.member.{'9' * 300}.Name=b"
    assert _parse(router, body)["Dimensions"] == [{"Name": "a"}, {"Name": "b"}]


def test_an_empty_list_is_an_empty_value(router: Router) -> None:
    assert _parse(router, f"{ALARM}Dimensions=") == {"Dimensions": []}


def test_query_string_and_form_are_read_together(router: Router) -> None:
    assert _parse(router, "Action=GetRole&Version=2010-05-08", "RoleName=a%20b") == {"RoleName": "a b"}


def test_unknown_parameters_are_nothing(router: Router) -> None:
    assert _parse(router, f"{ALARM}Nonsense.a.b=1&AlarmName=n&{'x.' * 5000}=1") == {"AlarmName": "n"}


@pytest.mark.parametrize(
    "parameters",
    [
        "Period=abc",
        "Period=99999999999",
        "Threshold=NaN",
        "ActionsEnabled=perhaps",
        "AlarmName=a&AlarmName=b",
        "AlarmName.x=a",
        "Dimensions=text",
        "Dimensions.member.x.Name=a",
        "Dimensions.other.1.Name=a",
        "Dimensions.member.1=a",
        "Dimensions.member=&Dimensions.member.1.Name=a",
    ],
)
def test_malformed_parameters_are_malformed_input(router: Router, parameters: str) -> None:
    with pytest.raises(Fault) as caught:
        _parse(router, ALARM + parameters)
    assert (caught.value.code, caught.value.status) == ("MalformedInput", 400)


def test_an_invalid_timestamp_is_malformed_input(router: Router) -> None:
    with pytest.raises(Fault) as caught:
        _parse(router, "Action=GetMetricStatistics&Version=2010-08-01&StartTime=yesterday")
    assert caught.value.code == "MalformedInput"


def test_a_form_of_too_many_parameters_is_refused(router: Router) -> None:
    form = "Action=GetRole&Version=2010-05-08&RoleName=a" + "&a=b" * DEFAULT_LIMITS.values
    with pytest.raises(Fault, match="more than 10000 values") as caught:
        _parse(router, form)
    assert caught.value.status == 400


def test_the_action_is_found_without_reading_the_form_and_a_second_one_is_carried_out_by_nobody(router: Router) -> None:
    form = "Action=GetRole&Version=2010-05-08&RoleName=a&" + "%" * 500_000
    assert router.match(_request(form)).operation.name == "GetRole"
    with pytest.raises(Fault, match="given twice"):
        _parse(router, "Action=ListRoles&Version=2010-05-08&Action=DeleteRole&RoleName=a")


def test_a_response_wraps_its_result_and_has_its_request_id(router: Router) -> None:
    route = _route(router, "GetCallerIdentity", "2011-06-15")
    response = route.codec.serialise(route, {"Account": "123456789012", "Arn": None}, request_id="R1")
    assert response.body == (
        b'<?xml version="1.0" encoding="UTF-8"?>\n'
        b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        b"<GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult>"
        b"<ResponseMetadata><RequestId>R1</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
    )
    assert ("Content-Type", "text/xml") in response.headers


def test_an_operation_without_output_answers_only_its_request(router: Router) -> None:
    route = _route(router, "DeleteRole", "2010-05-08")
    body = route.codec.serialise(route, {}, request_id="R1").body
    assert isinstance(body, bytes)
    assert [element.tag.rpartition("}")[2] for element in ElementTree.fromstring(body)] == ["ResponseMetadata"]


def test_a_fault_is_well_formed_whatever_it_repeats(router: Router) -> None:
    route = _route(router, "GetRole", "2010-05-08")
    response = route.codec.serialise_fault(Fault("Odd", "<\x00> & ]]>", status=500), request_id="R1", route=route)
    assert isinstance(response.body, bytes)
    root = ElementTree.fromstring(response.body)
    namespace = "{https://iam.amazonaws.com/doc/2010-05-08/}"
    assert root.tag == f"{namespace}ErrorResponse"
    assert [element.text for element in root[0]] == ["Receiver", "Odd", "<\ufffd> & ]]>"]
    assert root[1].text == "R1"


def test_ec2_has_a_refusal_of_its_own_form(router: Router) -> None:
    route = _route(router, "DescribeInstances", "2016-11-15")
    response = route.codec.serialise_fault(Fault("InvalidAction", "No."), request_id="R1", route=route)
    assert isinstance(response.body, bytes)
    root = ElementTree.fromstring(response.body)
    assert (root.tag, root.findtext("Errors/Error/Code"), root.findtext("RequestID")) == (
        "Response",
        "InvalidAction",
        "R1",
    )


FLAT: dict[str, Any] = {
    "metadata": {"apiVersion": "2026-01-31", "protocol": "query"},
    "operations": {"Put": {"name": "Put", "http": {"method": "POST", "requestUri": "/"}, "input": {"shape": "Put"}}},
    "shapes": {
        "Put": {"type": "structure", "members": {"Names": {"shape": "Names"}, "Sizes": {"shape": "Sizes"}}},
        "Names": {"type": "list", "flattened": True, "member": {"shape": "Text"}},
        "Sizes": {"type": "map", "flattened": True, "key": {"shape": "Text"}, "value": {"shape": "Number"}},
        "Text": {"type": "string"},
        "Number": {"type": "integer"},
    },
}


def test_flattened_lists_and_maps_are_numbered_without_a_word_between() -> None:
    operation = ServiceModel(FLAT, "flat").operation_model("Put")
    request = _request("Names.1=a&Names.2=b&Sizes.1.key=c&Sizes.1.value=3")
    codec = AwsQuery()
    assert codec.parse(request, Route("flat", operation, codec, {})) == {"Names": ["a", "b"], "Sizes": {"c": 3}}


def test_an_entry_without_its_value_is_malformed_input() -> None:
    operation = ServiceModel(FLAT, "flat").operation_model("Put")
    codec = AwsQuery()
    with pytest.raises(Fault, match="a key and a value"):
        codec.parse(_request("Sizes.1.key=c"), Route("flat", operation, codec, {}))
