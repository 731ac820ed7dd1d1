"""Whole calls of an unmodified boto3 client, served by the codecs without a socket."""

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.wire.conversations import ENDPOINT, FixedStream, http_request
from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest, HttpResponse
from trainyard.wire.routing import Route, Router
from trainyard.wire.validation import validator

Answer = Callable[[Route, dict[str, Any]], dict[str, Any]]


class Yard:
    """Serves the calls of one client, and stores the last request, its route and its shape."""

    def __init__(self, router: Router, answer: Answer) -> None:
        self._router, self._answer = router, answer
        self.request = HttpRequest("", "", "", http_request_headers())
        self.operation = ""
        self.shape: dict[str, Any] = {}

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        self.request = http_request(request)
        response = self._respond(self.request)
        raw = _Raw(response.body if isinstance(response.body, bytes) else b"")
        return AWSResponse(request.url, response.status, dict(response.headers), raw)

    def _respond(self, request: HttpRequest) -> HttpResponse:
        route = self._router.match(request)
        self.operation = route.operation.name
        stream = FixedStream(request.body) if route.codec.takes_stream(route.operation) else None
        try:
            self.shape = route.codec.parse(request, route, stream)
            validator(route.service, route.operation)(self.shape)
            return route.codec.serialise(route, self._answer(route, self.shape), request_id="REQUEST1")
        except Fault as fault:
            is_head = request.method == "HEAD"
            return route.codec.serialise_fault(fault, request_id="REQUEST1", route=route, is_head=is_head)


class _Raw:
    """The response object that botocore expects from urllib3."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> list[bytes]:
        return [self.read()]

    def read(self, amount: int | None = None) -> bytes:
        taken = self._content if amount is None else self._content[:amount]
        self._content = self._content[len(taken) :]
        return taken


def http_request_headers() -> Any:
    from trainyard.wire.http import Headers

    return Headers()


@pytest.fixture
def connect(router: Router) -> Callable[..., tuple[Any, Yard]]:
    def open_client(service: str, answer: Answer = lambda route, shape: {}, **config: Any) -> tuple[Any, Yard]:
        client = boto3.client(
            service,
            endpoint_url=config.pop("endpoint_url", ENDPOINT),
            region_name="eu-west-1",
            aws_access_key_id="AKID",
            aws_secret_access_key="secret",
            config=Config(parameter_validation=False, retries={"total_max_attempts": 1}, **config),
        )
        yard = Yard(router, answer)
        client.meta.events.register("before-send", yard)
        return client, yard

    return open_client


Connect = Callable[..., tuple[Any, Yard]]


def test_a_call_of_sagemaker_arrives_and_its_answer_returns(connect: Connect) -> None:
    created = datetime(2026, 1, 31, 12, 0, 0, 123000, UTC)
    client, yard = connect("sagemaker", lambda route, shape: {"TrainingJobSummaries": [_summary(created)]})
    listed = client.list_training_jobs(CreationTimeAfter=created.replace(microsecond=0), MaxResults=10)
    assert yard.shape == {"CreationTimeAfter": created.replace(microsecond=0), "MaxResults": 10}
    assert listed["TrainingJobSummaries"][0]["CreationTime"] == created
    assert listed["ResponseMetadata"]["RequestId"] == "REQUEST1"


def _summary(created: datetime) -> dict[str, Any]:
    return {
        "TrainingJobName": "job",
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job",
        "CreationTime": created,
        "TrainingJobStatus": "InProgress",
        "TrainingEndTime": None,
    }


def test_a_constraint_violation_reaches_the_client_with_its_code_and_wording(connect: Connect) -> None:
    client, _ = connect("sagemaker")
    with pytest.raises(ClientError) as caught:
        client.stop_training_job(TrainingJobName="not a name")
    assert caught.value.response["Error"] == {
        "Code": "ValidationException",
        "Message": "1 validation error detected: Value 'not a name' at 'trainingJobName' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
    }


def test_a_modelled_error_is_raised_as_the_clients_own_class(connect: Connect) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault("ResourceNotFoundException", "The specified log group does not exist.")

    client, _ = connect("logs", refuse)
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="log group does not exist"):
        client.describe_log_streams(logGroupName="missing")


@pytest.mark.parametrize("code", ["NoSuchEntity", "NoSuchEntityException"])
def test_an_error_of_a_query_service_may_be_named_by_its_shape_or_its_code(connect: Connect, code: str) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault(code, "The role with name r cannot be found.", status=404)

    client, _ = connect("iam", refuse)
    with pytest.raises(client.exceptions.NoSuchEntityException) as caught:
        client.get_role(RoleName="r")
    assert caught.value.response["Error"]["Code"] == "NoSuchEntity"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_cloudwatch_errors_over_json_keep_the_codes_of_the_query_protocol(connect: Connect) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault("InvalidParameterValueException", "The value is not valid.")

    client, yard = connect("cloudwatch", refuse)
    with pytest.raises(client.exceptions.InvalidParameterValueException) as caught:
        client.get_metric_statistics(
            Namespace="n", MetricName="m", StartTime=0, EndTime=60, Period=60, Statistics=["Average"]
        )
    assert yard.request.headers["x-amzn-query-mode"] == "true"
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_a_large_metric_call_that_the_client_compresses_is_read(connect: Connect) -> None:
    client, yard = connect("cloudwatch")
    data = [{"MetricName": f"loss-{number}", "Value": number / 3, "Unit": "None"} for number in range(500)]
    client.put_metric_data(Namespace="training", MetricData=data)
    assert yard.request.headers["content-encoding"] == "gzip"
    assert gzip.decompress(yard.request.body)
    assert yard.shape == {"Namespace": "training", "MetricData": data}


def test_an_upload_is_routed_by_path_and_its_framing_is_undone(connect: Connect) -> None:
    client, yard = connect("s3", lambda route, shape: {"ETag": '"e"', "ServerSideEncryption": "AES256"})
    put = client.put_object(Bucket="bucket", Key="a//b/../ü +%2F/", Body=b"content", Metadata={"kind": "x"})
    assert (yard.operation, put["ETag"]) == ("PutObject", '"e"')
    assert (yard.shape["Bucket"], yard.shape["Key"]) == ("bucket", "a//b/../ü +%2F/")
    assert yard.shape["Metadata"] == {"kind": "x"}
    assert yard.shape["ContentLength"] == 7
    assert yard.shape["Body"].content == b"content"


def test_a_chunked_upload_over_tls_has_the_length_and_encoding_of_the_object(connect: Connect) -> None:
    client, yard = connect("s3", endpoint_url="https://127.0.0.1:9001")
    client.put_object(Bucket="bucket", Key="key", Body=b"content", ContentEncoding="gzip")
    assert "aws-chunked" in yard.request.headers["content-encoding"]
    assert yard.shape["ContentEncoding"] == "gzip"
    assert yard.shape["ContentLength"] == 7


def test_a_bucket_in_the_host_is_the_same_call_as_one_in_the_path(connect: Connect) -> None:
    client, yard = connect("s3", endpoint_url="http://yard.example.com:9000", s3={"addressing_style": "virtual"})
    client.head_object(Bucket="my.bucket", Key="key")
    assert yard.request.host == "my.bucket.yard.example.com:9000"
    assert (yard.operation, yard.shape["Bucket"], yard.shape["Key"]) == ("HeadObject", "my.bucket", "key")


def test_a_part_of_an_object_returns_as_a_range(connect: Connect) -> None:
    modified = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    found = {"Body": b"ont", "ContentLength": 3, "ContentRange": "bytes 1-3/7", "LastModified": modified, "ETag": '"e"'}
    client, _ = connect("s3", lambda route, shape: found)
    got = client.get_object(Bucket="bucket", Key="key", Range="bytes=1-3")
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert (got["Body"].read(), got["ContentRange"], got["LastModified"]) == (b"ont", "bytes 1-3/7", modified)


def test_the_region_of_a_bucket_is_read_by_the_clients_own_handler(connect: Connect) -> None:
    client, _ = connect("s3", lambda route, shape: {"LocationConstraint": "eu-west-1"})
    assert client.get_bucket_location(Bucket="bucket")["LocationConstraint"] == "eu-west-1"
    elsewhere, _ = connect("s3", lambda route, shape: {})
    assert elsewhere.get_bucket_location(Bucket="bucket")["LocationConstraint"] is None


def test_a_missing_key_is_an_error_document_for_get_and_a_bare_status_for_head(connect: Connect) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault("NoSuchKey", "The specified key does not exist.", status=404, members={"Key": shape["Key"]})

    client, _ = connect("s3", refuse)
    with pytest.raises(client.exceptions.NoSuchKey) as caught:
        client.get_object(Bucket="bucket", Key="no <such> key")
    assert caught.value.response["Error"]["Key"] == "no <such> key"
    assert caught.value.response["Error"]["Resource"] == "/bucket/no <such> key"
    with pytest.raises(ClientError) as bare:
        client.head_object(Bucket="bucket", Key="key")
    assert bare.value.response["Error"]["Code"] == "404"
    assert bare.value.response["ResponseMetadata"]["RequestId"] == "REQUEST1"


def test_an_unchanged_object_is_a_304_with_the_headers_of_the_fault(connect: Connect) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault("NotModified", "Not modified.", status=304, headers={"ETag": '"e"'})

    client, _ = connect("s3", refuse)
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="key", IfNoneMatch='"e"')
    metadata = caught.value.response["ResponseMetadata"]
    assert (metadata["HTTPStatusCode"], metadata["HTTPHeaders"]["etag"]) == (304, '"e"')


def test_a_presigned_url_is_routed_by_its_credential(connect: Connect, router: Router) -> None:
    client, _ = connect("s3")
    url = client.generate_presigned_url(
        "get_object", Params={"Bucket": "bucket", "Key": "key", "ResponseContentType": "text/x"}
    )
    path, _, query = url.removeprefix(ENDPOINT).partition("?")
    request = HttpRequest("GET", path, query, http_request_headers())
    route = router.match(request)
    assert route.operation.name == "GetObject"
    assert route.codec.parse(request, route)["ResponseContentType"] == "text/x"


def test_an_invocation_carries_its_body_and_headers_both_ways(connect: Connect) -> None:
    client, yard = connect(
        "sagemaker-runtime", lambda route, shape: {"Body": b"[1]", "ContentType": "application/json"}
    )
    got = client.invoke_endpoint(EndpointName="my-endpoint", Body=b"\x00\x01", ContentType="application/x-npy")
    assert (yard.operation, yard.shape["EndpointName"], yard.shape["Body"]) == (
        "InvokeEndpoint",
        "my-endpoint",
        b"\x00\x01",
    )
    assert (got["Body"].read(), got["ContentType"]) == (b"[1]", "application/json")


def test_an_error_in_the_model_has_the_models_status(connect: Connect) -> None:
    def refuse(route: Route, shape: dict[str, Any]) -> dict[str, Any]:
        raise Fault(
            "ModelError", "It broke.", status=424, members={"OriginalStatusCode": "500", "OriginalMessage": "x"}
        )

    client, _ = connect("sagemaker-runtime", refuse)
    with pytest.raises(client.exceptions.ModelError) as caught:
        client.invoke_endpoint(EndpointName="e", Body=b"")
    assert caught.value.response["OriginalStatusCode"] == 500
