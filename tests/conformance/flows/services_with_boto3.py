"""The small services with boto3: identity, roles, log events, metrics, tags, image repositories, and keys."""

import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.exceptions import ClientError

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)


def main() -> None:
    account = identity()
    roles(account)
    log_events()
    metrics()
    repositories(account)
    keys(account)


def identity() -> str:
    sts = boto3.client("sts")
    caller = sts.get_caller_identity()
    account = str(caller["Account"])
    assert len(account) == 12
    assert caller["Arn"].startswith(f"arn:aws:sts::{account}:assumed-role/")
    role = caller["Arn"].split("/")[1]
    session = sts.assume_role(RoleArn=f"arn:aws:iam::{account}:role/{role}", RoleSessionName="conformance")
    keys = session["Credentials"]
    assert keys["Expiration"] > datetime.now(UTC)
    assumed = boto3.client(
        "sts",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    assert assumed.get_caller_identity()["Arn"].endswith(f"assumed-role/{role}/conformance")
    return account


def repositories(account: str) -> None:
    ecr = boto3.client("ecr")
    name = f"team/{uuid.uuid4().hex[:12]}"
    made = ecr.create_repository(repositoryName=name, tags=[{"Key": "team", "Value": "red"}])["repository"]
    assert made["repositoryUri"].startswith(f"{account}.dkr.ecr.")
    pages = ecr.get_paginator("describe_repositories").paginate()
    assert name in [each["repositoryName"] for page in pages for each in page["repositories"]]
    assert ecr.list_tags_for_resource(resourceArn=made["repositoryArn"])["tags"] == [{"Key": "team", "Value": "red"}]
    assert ecr.get_authorization_token()["authorizationData"][0]["expiresAt"] > datetime.now(UTC)
    wanted = {"repositoryName": name, "imageIds": [{"imageTag": "latest"}]}
    assert code(lambda: ecr.create_repository(repositoryName=name)) == "RepositoryAlreadyExistsException"
    assert code(lambda: ecr.list_images(repositoryName=f"{name}-absent")) == "RepositoryNotFoundException"
    assert code(lambda: ecr.describe_images(**wanted)) == "ImageNotFoundException"
    ecr.delete_repository(repositoryName=name)


def keys(account: str) -> None:
    kms, s3, name = boto3.client("kms"), boto3.client("s3"), f"alias/{uuid.uuid4().hex[:12]}"
    made = kms.create_key(Description="for a test", Tags=[{"TagKey": "team", "TagValue": "red"}])["KeyMetadata"]
    assert made["Arn"].split(":")[2:5:2] == ["kms", account]
    kms.create_alias(AliasName=name, TargetKeyId=made["KeyId"])
    assert kms.describe_key(KeyId=name)["KeyMetadata"] == made
    listed = [each for page in kms.get_paginator("list_aliases").paginate() for each in page["Aliases"]]
    assert {each["AliasName"]: each.get("TargetKeyId") for each in listed}[name] == made["KeyId"]
    data_key = kms.generate_data_key(KeyId=name, KeySpec="AES_256", EncryptionContext={"job": "a"})
    opened = kms.decrypt(CiphertextBlob=data_key["CiphertextBlob"], EncryptionContext={"job": "a"})
    assert opened["Plaintext"] == data_key["Plaintext"]
    bucket = f"encrypted-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket)
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"text", ServerSideEncryption="aws:kms", SSEKMSKeyId=name)
    assert put["SSEKMSKeyId"] == made["Arn"]
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"text"
    kms.disable_key(KeyId=made["KeyId"])
    assert code(lambda: s3.get_object(Bucket=bucket, Key="k")) == "KMS.DisabledException"
    assert code(lambda: kms.decrypt(CiphertextBlob=data_key["CiphertextBlob"])) == "DisabledException"
    assert code(lambda: kms.describe_key(KeyId=f"{name}-absent")) == "NotFoundException"
    kms.schedule_key_deletion(KeyId=made["KeyId"], PendingWindowInDays=7)
    assert kms.describe_key(KeyId=made["KeyId"])["KeyMetadata"]["KeyState"] == "PendingDeletion"


def roles(account: str) -> None:
    iam = boto3.client("iam")
    name = f"role-{uuid.uuid4().hex[:12]}"
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST, Description="for a test")["Role"]
    assert made["Arn"] == f"arn:aws:iam::{account}:role/{name}"
    got = iam.get_role(RoleName=name)["Role"]
    question = {"PolicySourceArn": made["Arn"], "ActionNames": ["s3:PutObject", "ecr:GetAuthorizationToken"]}
    pages = iam.get_paginator("simulate_principal_policy").paginate(**question, PaginationConfig={"PageSize": 1})
    decisions = [each["EvalDecision"] for page in pages for each in page["EvaluationResults"]]
    assert decisions == ["allowed", "allowed"]
    assert (got["Arn"], got["AssumeRolePolicyDocument"]) == (made["Arn"], json.loads(TRUST))
    assert name in [each["RoleName"] for page in iam.get_paginator("list_roles").paginate() for each in page["Roles"]]
    policy = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
    iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    assert [each["PolicyArn"] for each in attached] == [policy]
    iam.detach_role_policy(RoleName=name, PolicyArn=policy)
    iam.delete_role(RoleName=name)
    assert code(lambda: iam.get_role(RoleName=name)) == "NoSuchEntity"


def log_events() -> None:
    logs = boto3.client("logs")
    group, stream = f"/conformance/{uuid.uuid4().hex[:12]}", "job/algo-1"
    assert code(lambda: logs.describe_log_streams(logGroupName=group)) == "ResourceNotFoundException"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    start = int(time.time() * 1000)
    events = [{"timestamp": start + number, "message": f"line {number}"} for number in range(50)]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
    assert [each["logGroupName"] for each in logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]] == [group]
    place = {"logGroupName": group, "logStreamNamePrefix": "job/"}
    streams = logs.describe_log_streams(**place, orderBy="LogStreamName", limit=1)
    assert [each["logStreamName"] for each in streams["logStreams"]] == [stream]
    assert "nextToken" not in streams
    assert read_forward(logs, group, stream) == [event["message"] for event in events]
    logs.delete_log_group(logGroupName=group)
    assert code(lambda: logs.delete_log_group(logGroupName=group)) == "ResourceNotFoundException"


def read_forward(logs: Any, group: str, stream: str) -> list[str]:
    """Follow nextForwardToken until it repeats, which marks the end on AWS."""
    lines: list[str] = []
    place = {"logGroupName": group, "logStreamName": stream, "startFromHead": True, "limit": 20}
    page = logs.get_log_events(**place)
    while page["events"]:
        lines += [event["message"] for event in page["events"]]
        page = logs.get_log_events(**place, nextToken=page["nextForwardToken"])
    return lines


def metrics() -> None:
    cloudwatch = boto3.client("cloudwatch")
    namespace = f"Conformance/{uuid.uuid4().hex[:12]}"
    dimensions = [{"Name": "TrainingJobName", "Value": "job-1"}]
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    point = {"MetricName": "loss", "Dimensions": dimensions}
    data = [point | {"Timestamp": minute + timedelta(seconds=at), "Value": 4.0 - 2 * at} for at in range(3)]
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)
    listed = cloudwatch.list_metrics(Namespace=namespace)["Metrics"]
    assert [(each["MetricName"], each["Dimensions"]) for each in listed] == [("loss", dimensions)]
    window = {"StartTime": minute, "EndTime": minute + timedelta(minutes=1)}
    points = cloudwatch.get_metric_statistics(
        Namespace=namespace,
        MetricName="loss",
        Dimensions=dimensions,
        Period=60,
        Statistics=["Average", "Maximum", "SampleCount"],
        **window,
    )["Datapoints"]
    (found,) = points
    assert (found["Timestamp"], found["Average"], found["Maximum"], found["SampleCount"]) == (minute, 2.0, 4.0, 3.0)
    metric = {"Namespace": namespace, "MetricName": "loss", "Dimensions": dimensions}
    query = {"Id": "m", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Minimum"}}
    (result,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **window)["MetricDataResults"]
    assert (result["Timestamps"], result["Values"]) == ([minute], [0.0])


def code(call: Any) -> str:
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "no error"


main()
