from typing import Any

import pytest

from trainyard.wire.fault import Fault
from trainyard.wire.models import Models
from trainyard.wire.validation import validator

JOB: dict[str, Any] = {
    "TrainingJobName": "mnist-7",
    "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Role",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


def _fault(models: Models, service: str, operation: str, shape: dict[str, Any]) -> Fault:
    with pytest.raises(Fault) as caught:
        validator(service, models.service(service).operation_model(operation))(shape)
    return caught.value


def _job_fault(models: Models, **changes: Any) -> str:
    return _fault(models, "sagemaker", "CreateTrainingJob", JOB | changes).message


def test_a_request_in_order_passes(models: Models) -> None:
    validator("sagemaker", models.service("sagemaker").operation_model("CreateTrainingJob"))(JOB)


def test_a_validator_is_compiled_once(models: Models) -> None:
    operation = models.service("sagemaker").operation_model("CreateTrainingJob")
    assert validator("sagemaker", operation) is validator("sagemaker", operation)


def test_all_violations_are_reported_together_in_the_words_of_aws(models: Models) -> None:
    shape = {name: value for name, value in JOB.items() if name != "RoleArn"} | {"TrainingJobName": "x_"}
    fault = _fault(models, "sagemaker", "CreateTrainingJob", shape)
    assert (fault.code, fault.status) == ("ValidationException", 400)
    assert fault.message == (
        "2 validation errors detected: Value 'x_' at 'trainingJobName' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}; "
        "Value null at 'roleArn' failed to satisfy constraint: Member must not be null"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"TrainingJobName": "a" * 64},
            f"Value '{'a' * 64}' at 'trainingJobName' failed to satisfy constraint: "
            "Member must have length less than or equal to 63",
        ),
        (
            {"ResourceConfig": JOB["ResourceConfig"] | {"InstanceCount": -1}},
            "Value '-1' at 'resourceConfig.instanceCount' failed to satisfy constraint: "
            "Member must have value greater than or equal to 0",
        ),
        (
            {"AlgorithmSpecification": {"TrainingInputMode": "Slow"}},
            "Value 'Slow' at 'algorithmSpecification.trainingInputMode' failed to satisfy constraint: "
            "Member must satisfy enum value set: [Pipe, File, FastFile]",
        ),
        (
            {"Tags": [{"Key": "a", "Value": "b"}, {"Key": "", "Value": "c"}]},
            "Value '' at 'tags.2.member.key' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1",
        ),
        (
            {"Tags": [{"Key": "a"}]},
            "Value null at 'tags.1.member.value' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"Tags": [None]},
            "Value '[null]' at 'tags' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"InputDataConfig": []},
            "Value '[]' at 'inputDataConfig' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1",
        ),
        (
            {"Environment": {"1A": "b"}},
            "Value '{1A=b}' at 'environment' failed to satisfy constraint: Map keys must satisfy constraint: "
            "[Member must have length less than or equal to 512, Member must have length greater than or equal to 0, "
            "Member must satisfy regular expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]",
        ),
        (
            {"HyperParameters": {"a": "b\n"}},
            "Value '{a=b\n}' at 'hyperParameters' failed to satisfy constraint: Map value must satisfy constraint: "
            "[Member must have length less than or equal to 2500, Member must have length greater than or equal to 0, "
            "Member must satisfy regular expression pattern: .*]",
        ),
        (
            {"VpcConfig": {"SecurityGroupIds": ["sg 1"], "Subnets": ["subnet-1"]}},
            "Value '[sg 1]' at 'vpcConfig.securityGroupIds' failed to satisfy constraint: Member must satisfy "
            "constraint: [Member must have length less than or equal to 32, Member must have length greater than or "
            "equal to 0, Member must satisfy regular expression pattern: [-0-9a-zA-Z]+]",
        ),
    ],
)
def test_a_violation_names_the_value_its_place_and_the_constraint(
    models: Models, changes: dict[str, Any], message: str
) -> None:
    assert _job_fault(models, **changes) == f"1 validation error detected: {message}"


def test_a_sensitive_value_is_not_repeated(models: Models) -> None:
    shape = {"UserName": "me", "Password": ""}
    message = _fault(models, "iam", "CreateLoginProfile", shape).message
    assert (
        "Value at 'password' failed to satisfy constraint: Member must have length greater than or equal to 1"
        in message
    )


def test_a_long_value_is_repeated_in_part(models: Models) -> None:
    assert len(_job_fault(models, TrainingJobName="a" * 100_000)) < 2000


def test_a_request_wrong_in_a_million_places_is_refused_shortly(models: Models) -> None:
    too_many: dict[str, Any] = {"Tags": [{}] * 1_000_000}
    assert _job_fault(models, **too_many).count("failed to satisfy") == 1
    values = {"MetricDataQueries": [{}] * 400, "StartTime": 0, "EndTime": 1}
    fault = _fault(models, "cloudwatch", "GetMetricData", values)
    assert fault.message.startswith("100 validation errors detected: ")


def test_a_union_has_one_member_set(models: Models) -> None:
    both = {"EFSFileSystem": {"FileSystemId": "fs-12345678"}, "FSxLustreFileSystem": {"FileSystemId": "fs-12345678"}}
    shape = {"DomainId": "d-1", "SpaceName": "s", "SpaceSettings": {"CustomFileSystems": [both]}}
    message = _fault(models, "sagemaker", "CreateSpace", shape).message
    assert (
        "at 'spaceSettings.customFileSystems.1.member' failed to satisfy constraint: Member must have exactly one"
        in (message)
    )


def test_a_shape_that_contains_itself_is_checked_at_every_depth(models: Models) -> None:
    inner = {"Filters": [{"Name": ""}]}
    shape = {"Resource": "TrainingJob", "SearchExpression": {"SubExpressions": [{"SubExpressions": [inner]}]}}
    message = _fault(models, "sagemaker", "Search", shape).message
    assert "'searchExpression.subExpressions.1.member.subExpressions.1.member.filters.1.member.name'" in message


@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [
        ("sagemaker", "DescribeTrainingJob", "ValidationException"),
        ("sagemaker-metrics", "BatchPutMetrics", "ValidationException"),
        ("sagemaker-runtime", "InvokeEndpoint", "ValidationError"),
        ("logs", "CreateLogGroup", "InvalidParameterException"),
        ("resourcegroupstaggingapi", "TagResources", "InvalidParameterException"),
        ("iam", "GetRole", "ValidationError"),
        ("sts", "AssumeRole", "ValidationError"),
        ("cloudwatch", "PutMetricData", "ValidationError"),
    ],
)
def test_each_service_has_its_own_code_for_it(models: Models, service: str, operation: str, code: str) -> None:
    assert _fault(models, service, operation, {}).code == code


def test_an_operation_without_input_has_nothing_to_check(models: Models) -> None:
    validator("iam", models.service("iam").operation_model("DeleteAccountPasswordPolicy"))({})


def test_every_operation_of_every_service_has_a_validator(models: Models) -> None:
    for service in ("s3", "sts", "iam", "logs", "cloudwatch", "resourcegroupstaggingapi", "ecr", "sagemaker-runtime"):
        for name in models.service(service).operation_names:
            assert callable(validator(service, models.service(service).operation_model(name)))


@pytest.mark.parametrize(
    ("operation", "shape", "code"),
    [
        ("PutObject", {"StorageClass": "BASEMENT"}, "InvalidStorageClass"),
        ("PutObject", {"ACL": "everyone"}, "InvalidArgument"),
        ("ListObjectsV2", {"EncodingType": "base64"}, "InvalidArgument"),
        ("CopyObject", {}, "InvalidRequest"),
        ("UploadPart", {}, "InvalidArgument"),
        ("DeleteObjects", {}, "MissingRequestBodyError"),
        ("DeleteObjects", {"Delete": {}}, "MalformedXML"),
        ("DeleteObjects", {"Delete": {"Objects": [{"VersionId": "1"}]}}, "MalformedXML"),
        ("PutObjectTagging", {"Tagging": {"TagSet": [{"Key": "a"}]}}, "MalformedXML"),
    ],
)
def test_s3_has_a_code_for_each_violation(models: Models, operation: str, shape: dict[str, Any], code: str) -> None:
    fault = _fault(models, "s3", operation, {"Bucket": "b", "Key": "k"} | shape)
    assert (fault.code, fault.status) == (code, 400)


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        ("PutObject", {"StorageClass": "STANDARD_IA", "ServerSideEncryption": "aws:kms", "Key": "k" * 2000}),
        ("CopyObject", {"CopySource": "bucket/" + "a/" * 40_000 + "\n"}),
        ("CreateBucket", {"CreateBucketConfiguration": {"LocationConstraint": "mars-north-1"}}),
        ("GetObject", {"ChecksumMode": "enabled"}),
    ],
)
def test_s3_accepts_requests_that_its_model_would_refuse(models: Models, operation: str, shape: dict[str, Any]) -> None:
    validator("s3", models.service("s3").operation_model(operation))({"Bucket": "b", "Key": "k"} | shape)


def test_instance_types_are_left_to_the_catalog_of_the_yard(models: Models) -> None:
    resources = {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30}
    validate = validator("sagemaker", models.service("sagemaker").operation_model("CreateTrainingJob"))
    validate(JOB | {"ResourceConfig": resources})
