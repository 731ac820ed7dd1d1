import json
from urllib.parse import unquote

import pytest

from tests.unit.server.services.accounts import Accounts, As
from trainyard.server.roles import SAGEMAKER_TRUST
from trainyard.server.services.iam.role_policies import ATTACHED_PER_ROLE
from trainyard.wire.fault import Fault

DOCUMENT = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
SAGEMAKER = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"


@pytest.fixture
def anna(accounts: Accounts) -> As:
    accounts.anna("iam", "CreateRole", RoleName="trainer", AssumeRolePolicyDocument=SAGEMAKER_TRUST)
    return accounts.anna


def code_of(caller: As, operation: str, **request: object) -> str:
    with pytest.raises(Fault) as caught:
        caller("iam", operation, RoleName="trainer", **request)
    return caught.value.code


def attached(caller: As, **request: object) -> list[str]:
    listed = caller("iam", "ListAttachedRolePolicies", RoleName="trainer", **request)["AttachedPolicies"]
    return [policy["PolicyArn"] for policy in listed]


def new_policy(caller: As, name: str, path: str = "/") -> str:
    made = caller("iam", "CreatePolicy", PolicyName=name, Path=path, PolicyDocument=DOCUMENT)["Policy"]
    return str(made["Arn"])


def test_policies_of_aws_and_of_the_account_can_be_attached(anna: As) -> None:
    own = new_policy(anna, "own", "/team/")
    for arn in (SAGEMAKER, own, SAGEMAKER):
        anna("iam", "AttachRolePolicy", RoleName="trainer", PolicyArn=arn)
    assert attached(anna) == [own, SAGEMAKER]
    assert attached(anna, PathPrefix="/team/") == [own]
    assert anna("iam", "ListAttachedRolePolicies", RoleName="trainer", MaxItems=1)["IsTruncated"] is True
    anna("iam", "DetachRolePolicy", RoleName="trainer", PolicyArn=own)
    assert attached(anna) == [SAGEMAKER]
    assert code_of(anna, "DetachRolePolicy", PolicyArn=own) == "NoSuchEntity"


def test_a_policy_of_another_account_is_not_attachable(accounts: Accounts, anna: As) -> None:
    foreign = new_policy(accounts.ben, "foreign")
    assert code_of(anna, "AttachRolePolicy", PolicyArn=foreign) == "NoSuchEntity"
    assert code_of(accounts.admin, "AttachRolePolicy", PolicyArn=foreign) == "NoSuchEntity"
    assert attached(anna) == []


def test_only_an_existing_policy_can_be_attached(anna: As) -> None:
    absent = f"arn:aws:iam::{anna.account}:policy/absent"
    assert code_of(anna, "AttachRolePolicy", PolicyArn=absent) == "NoSuchEntity"
    assert code_of(anna, "AttachRolePolicy", PolicyArn="arn:aws:s3:::a-bucket-of-mine") == "InvalidInput"


def test_a_role_takes_a_limited_number_of_policies(anna: As) -> None:
    for number in range(ATTACHED_PER_ROLE):
        anna("iam", "AttachRolePolicy", RoleName="trainer", PolicyArn=f"arn:aws:iam::aws:policy/P{number}")
    assert code_of(anna, "AttachRolePolicy", PolicyArn=SAGEMAKER) == "LimitExceeded"


def test_inline_policies_are_stored_by_name(anna: As) -> None:
    for name in ("b", "a"):
        anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName=name, PolicyDocument=DOCUMENT)
    changed = DOCUMENT.replace("s3", "ec2")
    anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName="a", PolicyDocument=changed)
    found = anna("iam", "GetRolePolicy", RoleName="trainer", PolicyName="a")
    assert (found["RoleName"], found["PolicyName"], unquote(found["PolicyDocument"])) == ("trainer", "a", changed)
    first = anna("iam", "ListRolePolicies", RoleName="trainer", MaxItems=1)
    assert first["PolicyNames"] == ["a"]
    rest = anna("iam", "ListRolePolicies", RoleName="trainer", Marker=first["Marker"])
    assert rest["PolicyNames"] == ["b"]
    anna("iam", "DeleteRolePolicy", RoleName="trainer", PolicyName="a")
    for operation in ("GetRolePolicy", "DeleteRolePolicy"):
        assert code_of(anna, operation, PolicyName="a") == "NoSuchEntity"


def test_inline_policies_are_checked_and_limited_together(anna: As) -> None:
    assert code_of(anna, "PutRolePolicy", PolicyName="a", PolicyDocument="{") == "MalformedPolicyDocument"
    large = DOCUMENT.replace("s3:*", "s3:" + "x" * 6000)
    anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName="a", PolicyDocument=large)
    assert code_of(anna, "PutRolePolicy", PolicyName="b", PolicyDocument=large) == "LimitExceeded"
    anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName="a", PolicyDocument=large)


def test_a_boundary_is_set_and_removed(anna: As) -> None:
    def boundary() -> object:
        return anna("iam", "GetRole", RoleName="trainer")["Role"].get("PermissionsBoundary")

    own = new_policy(anna, "own")
    for arn in (SAGEMAKER, own):
        anna("iam", "PutRolePermissionsBoundary", RoleName="trainer", PermissionsBoundary=arn)
        assert boundary() == {"PermissionsBoundaryType": "PermissionsBoundaryPolicy", "PermissionsBoundaryArn": arn}
    with pytest.raises(Fault, match="Cannot delete a policy attached to entities"):
        anna("iam", "DeletePolicy", PolicyArn=own)
    anna("iam", "DeleteRolePermissionsBoundary", RoleName="trainer")
    assert boundary() is None
    anna("iam", "DeletePolicy", PolicyArn=own)
    with pytest.raises(Fault, match=f"Scope ARN: {own} does not exist or is not attachable.") as caught:
        anna("iam", "PutRolePermissionsBoundary", RoleName="trainer", PermissionsBoundary=own)
    assert (caught.value.code, caught.value.status) == ("NoSuchEntity", 404)
    no_policy = f"arn:aws:iam::{anna.account}:role/trainer"
    assert code_of(anna, "PutRolePermissionsBoundary", PermissionsBoundary=no_policy) == "InvalidInput"
    assert boundary() is None


def test_a_boundary_is_a_policy_of_the_same_account(accounts: Accounts, anna: As) -> None:
    foreign = new_policy(accounts.ben, "foreign")
    assert code_of(anna, "PutRolePermissionsBoundary", PermissionsBoundary=foreign) == "NoSuchEntity"
    assert code_of(accounts.admin, "PutRolePermissionsBoundary", PermissionsBoundary=foreign) == "NoSuchEntity"
