import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.foundation.locations import BucketRef
from trainyard.server.roles import SAGEMAKER_TRUST
from trainyard.wire.fault import Fault

API = "resourcegroupstaggingapi"
ALLOW = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'


@pytest.fixture
def mine(accounts: Accounts) -> list[str]:
    """Return the ARNs of Anna's resources, one of each taggable kind."""
    anna = accounts.anna
    anna("logs", "CreateLogGroup", logGroupName="/jobs")
    accounts.yard.objects.create_bucket(BucketRef(anna.account, "data"), region="eu-west-3", now=NOON)
    role = anna("iam", "CreateRole", RoleName="r", Path="/team/", AssumeRolePolicyDocument=SAGEMAKER_TRUST)["Role"][
        "Arn"
    ]
    policy = anna("iam", "CreatePolicy", PolicyName="p", PolicyDocument=ALLOW)["Policy"]["Arn"]
    return [f"arn:aws:logs:eu-west-3:{anna.account}:log-group:/jobs", "arn:aws:s3:::data", role, policy]


def test_tags_are_added_and_replaced_and_removed_on_every_kind(accounts: Accounts, mine: list[str]) -> None:
    anna = accounts.anna
    assert anna(API, "TagResources", ResourceARNList=mine, Tags={"a": "1", "b": "2"}) == {"FailedResourcesMap": {}}
    assert anna(API, "TagResources", ResourceARNList=mine, Tags={"b": "3"}) == {"FailedResourcesMap": {}}
    assert tags(anna) == {arn: {"a": "1", "b": "3"} for arn in mine}
    assert anna(API, "UntagResources", ResourceARNList=mine, TagKeys=["a", "z"]) == {"FailedResourcesMap": {}}
    assert tags(anna) == {arn: {"b": "3"} for arn in mine}
    assert anna("logs", "ListTagsLogGroup", logGroupName="/jobs")["tags"] == {"b": "3"}
    assert dict(accounts.yard.objects.bucket(BucketRef(anna.account, "data")).tags) == {"b": "3"}
    assert anna("iam", "ListRoleTags", RoleName="r")["Tags"] == [{"Key": "b", "Value": "3"}]


def test_untaggable_resources_are_listed_with_reasons_and_the_rest_is_tagged(
    accounts: Accounts, mine: list[str]
) -> None:
    bad = {
        f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:absent": "There is no log group",
        "arn:aws:s3:::absent": "There is no bucket",
        f"arn:aws:iam::{accounts.anna.account}:role/r": "There is no role",
        "arn:aws:ec2:eu-west-3:123456789012:instance/i-1": '"ec2:instance" cannot be tagged',
        "no arn": "is not an ARN",
    }
    failed = accounts.anna(API, "TagResources", ResourceARNList=[*bad, mine[0]], Tags={"a": "1"})["FailedResourcesMap"]
    assert failed.keys() == bad.keys()
    for arn, reason in bad.items():
        assert (failed[arn]["StatusCode"], failed[arn]["ErrorCode"]) == (400, "InvalidParameterException")
        assert reason in failed[arn]["ErrorMessage"]
    assert tags(accounts.anna) == {mine[0]: {"a": "1"}}


def test_resources_of_another_user_are_not_found(accounts: Accounts, mine: list[str]) -> None:
    accounts.anna(API, "TagResources", ResourceARNList=mine, Tags={"a": "1"})
    for operation, request in (("TagResources", {"Tags": {"a": "2"}}), ("UntagResources", {"TagKeys": ["a"]})):
        failed = accounts.ben(API, operation, ResourceARNList=mine, **request)["FailedResourcesMap"]
        assert failed.keys() == set(mine)
        assert all("There is no" in info["ErrorMessage"] for info in failed.values())
    assert tags(accounts.anna) == {arn: {"a": "1"} for arn in mine}
    assert tags(accounts.ben) == {}


def test_an_administrator_tags_resources_of_users(accounts: Accounts, mine: list[str]) -> None:
    assert accounts.admin(API, "TagResources", ResourceARNList=mine, Tags={"a": "1"}) == {"FailedResourcesMap": {}}
    assert tags(accounts.anna) == {arn: {"a": "1"} for arn in mine}


def test_a_resource_has_at_most_fifty_tags(accounts: Accounts, mine: list[str]) -> None:
    many = {f"key{number}": "" for number in range(50)}
    accounts.anna(API, "TagResources", ResourceARNList=mine[:1], Tags=many)
    failed = accounts.anna(API, "TagResources", ResourceARNList=mine[:2], Tags={"more": ""})["FailedResourcesMap"]
    assert failed.keys() == {mine[0]}
    assert "would have 51 tags" in failed[mine[0]]["ErrorMessage"]


@pytest.mark.parametrize("key", ["aws:reserved", "AWS:reserved"])
def test_reserved_keys_are_refused_and_nothing_is_tagged(accounts: Accounts, mine: list[str], key: str) -> None:
    with pytest.raises(Fault, match="reserved") as refused:
        accounts.anna(API, "TagResources", ResourceARNList=mine, Tags={"fine": "1", key: "2"})
    assert refused.value.code == "InvalidParameterException"
    assert tags(accounts.anna) == {}


def tags(caller: As) -> dict[str, dict[str, str]]:
    return {
        each["ResourceARN"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        for each in caller(API, "GetResources")["ResourceTagMappingList"]
    }
