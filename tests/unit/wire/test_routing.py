import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.protocols.aws_json import AwsJson
from trainyard.wire.protocols.query import AwsQuery, Ec2Query
from trainyard.wire.protocols.rest_json import RestJson
from trainyard.wire.protocols.rest_xml import RestXml
from trainyard.wire.protocols.rpc_v2_cbor import RpcV2Cbor
from trainyard.wire.routing import QUERY, REST, SCOPES, TARGETS, VERSIONS, Router

FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


def _request(
    method: str, uri: str, *, scope: str = "", body: bytes = b"", headers: dict[str, str] | None = None
) -> HttpRequest:
    path, _, query = uri.partition("?")
    fields = {"host": "127.0.0.1:9000"} | (headers or {})
    if scope:
        fields["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential=AKID/20260131/eu-west-1/{scope}/aws4_request, SignedHeaders=host, Signature=0"
        )
    return HttpRequest(method, path, query, Headers(fields.items()), body)


@pytest.mark.parametrize(
    ("method", "uri", "headers", "operation"),
    [
        ("GET", "/", {}, "ListBuckets"),
        ("PUT", "/b", {}, "CreateBucket"),
        ("PUT", "/b/", {}, "CreateBucket"),
        ("HEAD", "/b", {}, "HeadBucket"),
        ("DELETE", "/b", {}, "DeleteBucket"),
        ("GET", "/b", {}, "ListObjects"),
        ("GET", "/b?prefix=a&delimiter=%2F", {}, "ListObjects"),
        ("GET", "/b?list-type=2&prefix=a", {}, "ListObjectsV2"),
        ("GET", "/b?location", {}, "GetBucketLocation"),
        ("GET", "/b?location=", {}, "GetBucketLocation"),
        ("GET", "/b?versions", {}, "ListObjectVersions"),
        ("GET", "/b?uploads", {}, "ListMultipartUploads"),
        ("GET", "/b?acl", {}, "GetBucketAcl"),
        ("GET", "/b?policy", {}, "GetBucketPolicy"),
        ("PUT", "/b?versioning", {}, "PutBucketVersioning"),
        ("GET", "/b?lifecycle", {}, "GetBucketLifecycleConfiguration"),
        ("GET", "/b?inventory", {}, "ListBucketInventoryConfigurations"),
        ("GET", "/b?inventory&id=1", {}, "GetBucketInventoryConfiguration"),
        ("POST", "/b?delete", {}, "DeleteObjects"),
        ("GET", "/b/k", {}, "GetObject"),
        ("GET", "/b/k?x-id=GetObject", {}, "GetObject"),
        ("GET", "/b/k?versionId=1&response-expires=x", {}, "GetObject"),
        ("GET", "/b/k?partNumber=1", {}, "GetObject"),
        ("GET", "/b/k?uploadId=u", {}, "ListParts"),
        ("GET", "/b/k?attributes", {}, "GetObjectAttributes"),
        ("GET", "/b/k?tagging", {}, "GetObjectTagging"),
        ("GET", "/b/k?acl", {}, "GetObjectAcl"),
        ("HEAD", "/b/k", {}, "HeadObject"),
        ("PUT", "/b/k", {}, "PutObject"),
        ("PUT", "/b/k", {"x-amz-copy-source": "a/b"}, "CopyObject"),
        ("PUT", "/b/k", {"uploadid": "not a parameter"}, "PutObject"),
        ("PUT", "/b/k?partNumber=1&uploadId=u", {}, "UploadPart"),
        ("PUT", "/b/k?partNumber=1&uploadId=u", {"x-amz-copy-source": "a/b"}, "UploadPartCopy"),
        ("PUT", "/b/k?uploadId=u", {}, "UploadPart"),
        ("POST", "/b/k?uploads", {}, "CreateMultipartUpload"),
        ("POST", "/b/k?uploadId=u", {}, "CompleteMultipartUpload"),
        ("POST", "/b/k?select&select-type=2", {}, "SelectObjectContent"),
        ("POST", "/b/k?restore", {}, "RestoreObject"),
        ("DELETE", "/b/k", {}, "DeleteObject"),
        ("DELETE", "/b/k?uploadId=u", {}, "AbortMultipartUpload"),
    ],
)
@pytest.mark.parametrize("scope", ["s3", ""], ids=["signed", "unsigned"])
def test_an_s3_request_means_the_operation_of_its_method_path_and_query(
    router: Router, method: str, uri: str, headers: dict[str, str], operation: str, scope: str
) -> None:
    route = router.match(_request(method, uri, scope=scope, headers=headers))
    assert (route.service, route.operation.name) == ("s3", operation)
    assert isinstance(route.codec, RestXml)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/b/a//b", "a//b"),
        ("/b//", "/"),
        ("/b/../../etc", "../../etc"),
        ("/b/dir/", "dir/"),
        ("/b/a+b", "a+b"),
        ("/b/a%2Fb", "a/b"),
        ("/b/a%252Fb", "a%2Fb"),
        ("/b/%E4%BA%94%0A%00", "五\n\x00"),
    ],
)
def test_a_key_keeps_every_byte(router: Router, path: str, key: str) -> None:
    assert router.match(_request("GET", path, scope="s3")).labels == {"Bucket": "b", "Key": key}


def test_a_bucket_may_be_in_the_host(router: Router) -> None:
    host = {"host": "b.yard.example.com:9000"}
    assert router.match(_request("GET", "//k", scope="s3", headers=host)).labels == {"Bucket": "b", "Key": "/k"}
    assert router.match(_request("GET", "/?acl", scope="s3", headers=host)).operation.name == "GetBucketAcl"


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("DELETE", "/b/k?acl"),
        ("POST", "/b"),
        ("POST", "/b/k"),
        ("PATCH", "/b/k"),
        ("HEAD", "/"),
        ("GET", "/b/k?policy"),
        ("GET", "/b?list-type=3"),
        ("POST", "/b/k?select"),
    ],
)
def test_operations_that_s3_lacks_match_nothing(router: Router, method: str, uri: str) -> None:
    with pytest.raises(Fault) as caught:
        router.match(_request(method, uri, scope="s3"))
    assert (caught.value.code, caught.value.status) == ("MethodNotAllowed", 405)


def test_an_upload_from_a_browser_form_is_not_implemented(router: Router) -> None:
    form = {"content-type": "multipart/form-data; boundary=x"}
    with pytest.raises(Fault, match="PostObject") as caught:
        router.match(_request("POST", "/b", scope="s3", headers=form))
    assert (caught.value.code, caught.value.status) == ("NotImplemented", 501)


def test_two_sub_resources_at_once_conflict(router: Router) -> None:
    with pytest.raises(Fault, match="Conflicting query string parameters: acl, policy") as caught:
        router.match(_request("GET", "/b?policy&acl", scope="s3"))
    assert caught.value.code == "InvalidArgument"


def test_a_key_that_is_not_utf8_is_an_invalid_uri(router: Router) -> None:
    with pytest.raises(Fault) as caught:
        router.match(_request("GET", "/b/%FF", scope="s3"))
    assert caught.value.code == "InvalidURI"


@pytest.mark.parametrize(
    ("target", "content_type", "service"),
    [
        ("SageMaker.CreateTrainingJob", "application/x-amz-json-1.1", "sagemaker"),
        ("Logs_20140328.GetLogEvents", "application/x-amz-json-1.1", "logs"),
        ("GraniteServiceVersion20100801.PutMetricData", "application/x-amz-json-1.0", "cloudwatch"),
        ("ResourceGroupsTaggingAPI_20170126.GetResources", "application/x-amz-json-1.1", "resourcegroupstaggingapi"),
        ("AmazonEC2ContainerRegistry_V20150921.DescribeRepositories", "application/x-amz-json-1.1", "ecr"),
        ("TrentService.CreateKey", "application/x-amz-json-1.1", "kms"),
    ],
)
def test_a_target_header_names_a_json_operation(router: Router, target: str, content_type: str, service: str) -> None:
    request = _request("POST", "/", headers={"x-amz-target": target, "content-type": content_type})
    route = router.match(request)
    assert (route.service, route.operation.name) == (service, target.partition(".")[2])
    assert isinstance(route.codec, AwsJson)
    answer = route.codec.serialise_fault(Fault("Code", "Message."), request_id="R", route=route)
    assert ("Content-Type", content_type) in answer.headers
    assert router.match(request) is route


@pytest.mark.parametrize(
    ("method", "path", "service", "operation", "labels"),
    [
        ("POST", "/endpoints/my%20e/invocations", "sagemaker-runtime", "InvokeEndpoint", {"EndpointName": "my e"}),
        ("POST", "/endpoints/e/async-invocations", "sagemaker-runtime", "InvokeEndpointAsync", {"EndpointName": "e"}),
        ("PUT", "/BatchPutMetrics", "sagemaker-metrics", "BatchPutMetrics", {}),
        ("POST", "/BatchGetMetrics", "sagemaker-metrics", "BatchGetMetrics", {}),
        ("GET", "/jobs/mnist", "trainyard", "DescribeJob", {"TrainingJobName": "mnist"}),
        ("POST", "/jobs/mnist/follow", "trainyard", "FollowJob", {"TrainingJobName": "mnist"}),
        (
            "PUT",
            "/quotas/%2A/ml.m5.large/on-demand",
            "trainyard",
            "PutQuota",
            {"UserName": "*", "InstanceType": "ml.m5.large", "Kind": "on-demand"},
        ),
    ],
)
def test_rest_services_with_one_signing_name_are_distinguished_by_path(
    router: Router, method: str, path: str, service: str, operation: str, labels: dict[str, str]
) -> None:
    route = router.match(_request(method, path, scope="trainyard" if service == "trainyard" else "sagemaker"))
    assert (route.service, route.operation.name, route.labels) == (service, operation, labels)
    assert isinstance(route.codec, RestJson)


@pytest.mark.parametrize("path", ["/jobs/x/../mnist", "/jobs//mnist", "/./jobs/mnist", "/jobs/.", "/jobs/mnist/.."])
def test_a_path_that_another_spelling_would_sign_alike_is_refused(router: Router, path: str) -> None:
    with pytest.raises(Fault, match="dot segment"):
        router.match(_request("GET", path, scope="trainyard"))


@pytest.mark.parametrize("scope", ["sts", ""], ids=["signed", "unsigned"])
def test_an_action_can_be_in_the_form_or_in_the_query(router: Router, scope: str) -> None:
    form = _request("POST", "/", scope=scope, body=b"Action=GetCallerIdentity&Version=2011-06-15", headers=FORM)
    assert router.needs_body(form)
    assert router.match(form).operation.name == "GetCallerIdentity"
    query = _request("GET", "/?Action=GetCallerIdentity&Version=2011-06-15", scope=scope)
    assert not router.needs_body(query)
    assert router.match(query).operation.name == "GetCallerIdentity"


def test_an_unsigned_form_is_known_by_its_version(router: Router) -> None:
    body = b"Action=ListMetrics&Version=2010-08-01"
    route = router.match(_request("POST", "/", body=body, headers=FORM))
    assert (route.service, type(route.codec)) == ("cloudwatch", AwsQuery)


def test_a_presigned_request_is_known_by_the_credential_in_its_query(router: Router) -> None:
    uri = (
        "/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Credential=AKID%2F20260131%2Feu-west-1%2F{}%2Faws4_request"
    )
    assert router.match(_request("GET", uri.format("sts"))).service == "sts"
    assert router.match(_request("GET", uri.format("s3"))).operation.name == "ListBuckets"


def test_a_signature_without_a_region_has_its_service_too(router: Router) -> None:
    v4a = {"authorization": "AWS4-ECDSA-P256-SHA256 Credential=AKID/20260131/sts/aws4_request, SignedHeaders=host"}
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    assert router.match(_request("POST", "/", body=body, headers=v4a | FORM)).service == "sts"


def test_a_cbor_path_names_the_operation(router: Router) -> None:
    path = "/service/GraniteServiceVersion20100801/operation/PutMetricData"
    route = router.match(_request("POST", path, scope="monitoring", headers={"smithy-protocol": "rpc-v2-cbor"}))
    assert (route.service, route.operation.name) == ("cloudwatch", "PutMetricData")
    assert isinstance(route.codec, RpcV2Cbor)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (_request("POST", "/", headers={"x-amz-target": "SageMaker.FlyToTheMoon"}), "UnknownOperationException"),
        (_request("POST", "/", headers={"x-amz-target": "DynamoDB_20120810.GetItem"}), "UnknownOperationException"),
        (_request("POST", "/", headers={"x-amz-target": "nonsense"}), "UnknownOperationException"),
        (_request("POST", "/", scope="logs"), "UnknownOperationException"),
        (_request("GET", "/2015-03-31/functions", scope="lambda"), "UnknownOperationException"),
        (_request("POST", "/endpoints/e/dance", scope="sagemaker"), "UnknownOperationException"),
        (
            _request("POST", "/service/X/operation/Y", headers={"smithy-protocol": "rpc-v2-cbor"}),
            "UnknownOperationException",
        ),
        (_request("POST", "/", scope="sts", body=b"Action=Fly&Version=2011-06-15", headers=FORM), "InvalidAction"),
        (_request("POST", "/", scope="sns", body=b"Action=Publish&Version=2010-03-31", headers=FORM), "InvalidAction"),
        (_request("POST", "/", scope="iam", body=b"", headers=FORM), "MissingAction"),
    ],
)
def test_requests_unknown_to_aws_are_refused_in_its_words(router: Router, request_: HttpRequest, code: str) -> None:
    with pytest.raises(Fault) as caught:
        router.match(request_)
    assert (caught.value.code, caught.value.status) == (code, 400)


@pytest.mark.parametrize(
    ("request_", "codec"),
    [
        (_request("GET", "/%FF", scope="s3"), RestXml),
        (_request("GET", "/%FF"), RestXml),
        (_request("POST", "/", headers={"x-amz-target": "SageMaker.Fly"}), AwsJson),
        (_request("POST", "/x", headers={"smithy-protocol": "rpc-v2-cbor"}), RpcV2Cbor),
        (_request("POST", "/", scope="iam", headers=FORM), AwsQuery),
        (_request("POST", "/", headers=FORM), AwsQuery),
        (_request("POST", "/", scope="ec2", headers=FORM), Ec2Query),
        (_request("GET", "/functions", scope="lambda"), RestJson),
    ],
)
def test_a_request_that_cannot_be_routed_is_refused_in_the_protocol_it_looks_like(
    router: Router, request_: HttpRequest, codec: type
) -> None:
    assert type(router.fault_codec(request_)) is codec


def test_a_body_is_needed_early_for_forms_only(router: Router) -> None:
    assert not router.needs_body(_request("PUT", "/b/k", scope="s3", headers=FORM))
    assert not router.needs_body(_request("POST", "/b/k?uploads", scope="s3", headers=FORM))
    assert not router.needs_body(_request("POST", "/", headers=FORM | {"x-amz-target": "SageMaker.Search"}))
    assert router.needs_body(_request("POST", "/", scope="monitoring"))
    assert router.needs_body(_request("POST", "/", headers=FORM))


def test_the_tables_that_tell_services_are_those_of_the_models(models: Models) -> None:
    for scope, name in SCOPES.items():
        if name != "s3":
            assert models.service(name).signing_name == scope
    for prefix, name in TARGETS.items():
        assert models.service(name).metadata["targetPrefix"] == prefix
    for version, name in VERSIONS.items():
        assert models.service(name).api_version == version
    for name in QUERY:
        assert {"query", "ec2"} & set(models.service(name).metadata["protocols"])
    for scope, names in REST.items():
        for name in names:
            assert (models.service(name).signing_name, models.service(name).protocol) == (scope, "rest-json")
