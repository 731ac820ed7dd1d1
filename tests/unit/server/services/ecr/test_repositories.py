import base64
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault


def names(answer: Shape) -> list[str]:
    return [each["repositoryName"] for each in answer["repositories"]]


def test_a_repository_is_made_described_and_forgotten(accounts: Accounts) -> None:
    anna = accounts.anna
    made = anna("ecr", "CreateRepository", repositoryName="team/mine", imageTagMutability="IMMUTABLE")["repository"]

    assert made == {
        "repositoryArn": f"arn:aws:ecr:eu-west-3:{anna.account}:repository/team/mine",
        "registryId": anna.account,
        "repositoryName": "team/mine",
        "repositoryUri": f"{anna.account}.dkr.ecr.eu-west-3.amazonaws.com/team/mine",
        "createdAt": NOON,
        "imageTagMutability": "IMMUTABLE",
        "imageScanningConfiguration": {"scanOnPush": False},
        "encryptionConfiguration": {"encryptionType": "AES256"},
    }
    assert anna("ecr", "DescribeRepositories")["repositories"] == [made]
    assert anna("ecr", "DescribeRepositories", repositoryNames=["team/mine"])["repositories"] == [made]
    assert anna("ecr", "DeleteRepository", repositoryName="team/mine")["repository"] == made
    assert anna("ecr", "DescribeRepositories")["repositories"] == []


def test_a_name_is_unique_in_each_account(accounts: Accounts) -> None:
    for caller in (accounts.anna, accounts.ben):
        caller("ecr", "CreateRepository", repositoryName="mine")

    with pytest.raises(
        Fault, match=f"'mine' already exists in the registry with id '{accounts.anna.account}'"
    ) as caught:
        accounts.anna("ecr", "CreateRepository", repositoryName="mine")

    assert caught.value.code == "RepositoryAlreadyExistsException"


NAMING: dict[str, dict[str, Any]] = {
    "DescribeRepositories": {"repositoryNames": ["mine"]},
    "DeleteRepository": {"repositoryName": "mine", "force": True},
    "ListImages": {"repositoryName": "mine"},
    "DescribeImages": {"repositoryName": "mine"},
    "BatchGetImage": {"repositoryName": "mine", "imageIds": [{"imageTag": "1"}]},
    "BatchCheckLayerAvailability": {"repositoryName": "mine", "layerDigests": ["sha256:00"]},
}


def test_a_repository_of_another_account_is_not_found(accounts: Accounts) -> None:
    anna, ben = accounts.anna, accounts.ben
    anna("ecr", "CreateRepository", repositoryName="mine")

    for operation, request in NAMING.items():
        for registry in ({}, {"registryId": anna.account}):
            with pytest.raises(Fault, match="'mine' does not exist in the registry") as caught:
                ben("ecr", operation, **request, **registry)
            assert caught.value.code == "RepositoryNotFoundException"
    assert names(anna("ecr", "DescribeRepositories")) == ["mine"]


def test_an_administrator_sees_the_repositories_of_all(accounts: Accounts) -> None:
    for caller in (accounts.anna, accounts.ben):
        caller("ecr", "CreateRepository", repositoryName="mine")
    admin, ben = accounts.admin, accounts.ben.account

    assert names(admin("ecr", "DescribeRepositories")) == ["mine", "mine"]
    (his,) = admin("ecr", "DescribeRepositories", registryId=ben)["repositories"]
    assert his["registryId"] == ben
    assert names(accounts.anna("ecr", "DescribeRepositories", registryId=ben)) == []


def test_repositories_come_in_pages(accounts: Accounts) -> None:
    for name in ("cc", "aa", "bb"):
        accounts.anna("ecr", "CreateRepository", repositoryName=name)

    first = accounts.anna("ecr", "DescribeRepositories", maxResults=2)
    second = accounts.anna("ecr", "DescribeRepositories", maxResults=2, nextToken=first["nextToken"])

    assert (names(first), names(second)) == (["aa", "bb"], ["cc"])
    assert "nextToken" not in second


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("CreateRepository", {"repositoryName": "Mine"}, "InvalidParameterException"),
    ("CreateRepository", {"repositoryName": "mine", "registryId": "0" * 12}, "InvalidParameterException"),
    (
        "CreateRepository",
        {"repositoryName": "mine", "encryptionConfiguration": {"encryptionType": "KMS"}},
        "InvalidParameterException",
    ),
    (
        "CreateRepository",
        {"repositoryName": "mine", "tags": [{"Key": "aws:a", "Value": ""}]},
        "InvalidTagParameterException",
    ),
    (
        "CreateRepository",
        {"repositoryName": "mine", "tags": [{"Key": str(number), "Value": ""} for number in range(51)]},
        "TooManyTagsException",
    ),
    ("DescribeRepositories", {"repositoryNames": ["mine"], "maxResults": 3}, "InvalidParameterException"),
    ("ListTagsForResource", {"resourceArn": "arn:aws:s3:::bucket"}, "InvalidParameterException"),
]


def test_an_invalid_repository_is_refused(accounts: Accounts) -> None:
    for operation, request, code in REFUSED:
        with pytest.raises(Fault) as caught:
            accounts.anna("ecr", operation, **request)
        assert caught.value.code == code, request
    assert accounts.anna("ecr", "DescribeRepositories")["repositories"] == []


def test_a_repository_has_tags(accounts: Accounts) -> None:
    anna, tags = accounts.anna, [{"Key": "team", "Value": "red"}]
    arn = anna("ecr", "CreateRepository", repositoryName="mine", tags=tags)["repository"]["repositoryArn"]

    anna("ecr", "TagResource", resourceArn=arn, tags=[{"Key": "cost", "Value": "1"}])
    assert anna("ecr", "ListTagsForResource", resourceArn=arn)["tags"] == [{"Key": "cost", "Value": "1"}, *tags]
    tagged = anna("resourcegroupstaggingapi", "GetResources", ResourceTypeFilters=["ecr:repository"])
    assert [each["ResourceARN"] for each in tagged["ResourceTagMappingList"]] == [arn]
    anna("resourcegroupstaggingapi", "UntagResources", ResourceARNList=[arn], TagKeys=["team"])
    anna("ecr", "UntagResource", resourceArn=arn, tagKeys=["cost"])
    assert anna("ecr", "ListTagsForResource", resourceArn=arn)["tags"] == []
    with pytest.raises(Fault, match="does not exist"):
        accounts.ben("ecr", "TagResource", resourceArn=arn, tags=tags)


def test_docker_can_log_in_with_a_token(accounts: Accounts) -> None:
    (data,) = accounts.anna("ecr", "GetAuthorizationToken")["authorizationData"]

    user, _, password = base64.b64decode(data["authorizationToken"]).decode().partition(":")
    assert user == "AWS"
    assert len(password) > 40
    assert data["proxyEndpoint"] == f"https://{accounts.anna.account}.dkr.ecr.eu-west-3.amazonaws.com"
    assert data["expiresAt"] == NOON + timedelta(hours=12)


def test_a_token_is_given_for_each_registry_that_is_named(accounts: Accounts) -> None:
    named = ["763104351884", "683313688378"]

    data = accounts.anna("ecr", "GetAuthorizationToken", registryIds=named)["authorizationData"]

    assert [each["proxyEndpoint"].split("//")[1][:12] for each in data] == named
    assert len({each["authorizationToken"] for each in data}) == 2
