import json
from datetime import timedelta
from urllib.parse import unquote

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.identity import DEFAULT_ROLE
from trainyard.server.roles import SAGEMAKER_FULL_ACCESS, SAGEMAKER_TRUST
from trainyard.wire.fault import Fault

DOCUMENT = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})


def create(caller: As, name: str, **more: object) -> str:
    return str(caller("iam", "CreatePolicy", PolicyName=name, PolicyDocument=DOCUMENT, **more)["Policy"]["Arn"])


def code_of(caller: As, operation: str, **request: object) -> tuple[str, int]:
    with pytest.raises(Fault) as caught:
        caller("iam", operation, **request)
    return caught.value.code, caught.value.status


def names(caller: As, **request: object) -> list[str]:
    return [policy["PolicyName"] for policy in caller("iam", "ListPolicies", **request)["Policies"]]


def test_a_policy_is_remembered_as_it_was_created(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "reader", Path="/team/", Description="Reads.", Tags=[{"Key": "a", "Value": "b"}])
    assert arn == f"arn:aws:iam::{anna.account}:policy/team/reader"
    policy = anna("iam", "GetPolicy", PolicyArn=arn)["Policy"]
    assert policy["PolicyId"].startswith("ANPA")
    assert policy | {"PolicyId": ""} == {
        "PolicyName": "reader",
        "PolicyId": "",
        "Arn": arn,
        "Path": "/team/",
        "DefaultVersionId": "v1",
        "AttachmentCount": 0,
        "PermissionsBoundaryUsageCount": 0,
        "IsAttachable": True,
        "Description": "Reads.",
        "CreateDate": NOON,
        "UpdateDate": NOON,
        "Tags": [{"Key": "a", "Value": "b"}],
    }
    version = anna("iam", "GetPolicyVersion", PolicyArn=arn, VersionId="v1")["PolicyVersion"]
    assert unquote(version["Document"]) == DOCUMENT


def test_a_policy_must_be_well_formed_and_not_too_long(accounts: Accounts) -> None:
    anna = accounts.anna
    assert code_of(anna, "CreatePolicy", PolicyName="p", PolicyDocument="{") == ("MalformedPolicyDocument", 400)
    long = DOCUMENT.replace("s3:*", "s3:" + "x" * 6144)
    assert code_of(anna, "CreatePolicy", PolicyName="p", PolicyDocument=long) == ("LimitExceeded", 409)
    create(anna, "p")
    assert code_of(anna, "CreatePolicy", PolicyName="p", PolicyDocument=DOCUMENT) == ("EntityAlreadyExists", 409)


def test_policies_of_aws_are_known_by_name(accounts: Accounts) -> None:
    anna = accounts.anna
    policy = anna("iam", "GetPolicy", PolicyArn=SAGEMAKER_FULL_ACCESS)["Policy"]
    assert (policy["PolicyName"], policy["AttachmentCount"]) == ("AmazonSageMakerFullAccess", 1)
    service_role = "arn:aws:iam::aws:policy/service-role/AmazonSageMakerServiceCatalogProductsUseRole"
    assert anna("iam", "GetPolicy", PolicyArn=service_role)["Policy"]["Path"] == "/service-role/"
    assert code_of(anna, "GetPolicyVersion", PolicyArn=SAGEMAKER_FULL_ACCESS, VersionId="v1") == ("NoSuchEntity", 404)
    assert code_of(anna, "DeletePolicy", PolicyArn=SAGEMAKER_FULL_ACCESS) == ("NoSuchEntity", 404)


def test_lists_are_filtered_by_scope_use_and_path(accounts: Accounts) -> None:
    anna = accounts.anna
    used, boundary = create(anna, "used", Path="/team/"), create(anna, "boundary")
    create(anna, "idle")
    anna("iam", "AttachRolePolicy", RoleName=DEFAULT_ROLE, PolicyArn=used)
    anna("iam", "CreateRole", RoleName="r", AssumeRolePolicyDocument=SAGEMAKER_TRUST, PermissionsBoundary=boundary)
    assert names(anna, Scope="Local") == ["boundary", "idle", "used"]
    assert names(anna, Scope="AWS") == ["AmazonSageMakerFullAccess"]
    assert names(anna) == ["boundary", "idle", "used", "AmazonSageMakerFullAccess"]
    assert names(anna, Scope="Local", OnlyAttached=True) == ["boundary", "used"]
    assert names(anna, Scope="Local", PolicyUsageFilter="PermissionsPolicy") == ["used"]
    assert names(anna, PolicyUsageFilter="PermissionsBoundary") == ["boundary"]
    assert names(anna, PathPrefix="/team/") == ["used"]
    listed = anna("iam", "ListPolicies", Scope="Local", PathPrefix="/team/")["Policies"][0]
    assert listed["AttachmentCount"] == 1


def test_lists_come_in_pages(accounts: Accounts) -> None:
    for number in range(3):
        create(accounts.anna, f"p{number}")
    first = accounts.anna("iam", "ListPolicies", Scope="Local", MaxItems=2)
    assert (len(first["Policies"]), first["IsTruncated"]) == (2, True)
    assert names(accounts.anna, Scope="Local", Marker=first["Marker"]) == ["p2"]
    assert code_of(accounts.anna, "ListPolicies", Marker="*") == ("ValidationError", 400)


def test_versions_are_numbered_and_never_reused(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p")
    second = DOCUMENT.replace("s3", "ec2")
    later = anna.at(NOON + timedelta(hours=1))
    made = later("iam", "CreatePolicyVersion", PolicyArn=arn, PolicyDocument=second, SetAsDefault=True)
    assert made["PolicyVersion"] == {"VersionId": "v2", "IsDefaultVersion": True, "CreateDate": later.now}
    policy = anna("iam", "GetPolicy", PolicyArn=arn)["Policy"]
    assert (policy["DefaultVersionId"], policy["UpdateDate"]) == ("v2", later.now)
    assert code_of(anna, "DeletePolicyVersion", PolicyArn=arn, VersionId="v2") == ("DeleteConflict", 409)
    anna("iam", "SetDefaultPolicyVersion", PolicyArn=arn, VersionId="v1")
    anna("iam", "DeletePolicyVersion", PolicyArn=arn, VersionId="v2")
    for operation in ("GetPolicyVersion", "DeletePolicyVersion", "SetDefaultPolicyVersion"):
        assert code_of(anna, operation, PolicyArn=arn, VersionId="v2") == ("NoSuchEntity", 404)
    for number in range(3, 7):
        made = anna("iam", "CreatePolicyVersion", PolicyArn=arn, PolicyDocument=DOCUMENT)
        assert made["PolicyVersion"]["VersionId"] == f"v{number}"
    assert code_of(anna, "CreatePolicyVersion", PolicyArn=arn, PolicyDocument=DOCUMENT) == ("LimitExceeded", 409)
    listed = anna("iam", "ListPolicyVersions", PolicyArn=arn)["Versions"]
    assert [(version["VersionId"], version["IsDefaultVersion"]) for version in listed] == [
        ("v6", False),
        ("v5", False),
        ("v4", False),
        ("v3", False),
        ("v1", True),
    ]


def test_a_policy_in_use_or_with_versions_is_not_deleted(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p")
    anna("iam", "CreatePolicyVersion", PolicyArn=arn, PolicyDocument=DOCUMENT)
    assert code_of(anna, "DeletePolicy", PolicyArn=arn) == ("DeleteConflict", 409)
    anna("iam", "DeletePolicyVersion", PolicyArn=arn, VersionId="v2")
    anna("iam", "AttachRolePolicy", RoleName=DEFAULT_ROLE, PolicyArn=arn)
    assert code_of(anna, "DeletePolicy", PolicyArn=arn) == ("DeleteConflict", 409)
    anna("iam", "DetachRolePolicy", RoleName=DEFAULT_ROLE, PolicyArn=arn)
    anna("iam", "DeletePolicy", PolicyArn=arn)
    assert code_of(anna, "GetPolicy", PolicyArn=arn) == ("NoSuchEntity", 404)


def test_a_boundary_is_not_deleted(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p")
    anna("iam", "CreateRole", RoleName="r", AssumeRolePolicyDocument=SAGEMAKER_TRUST, PermissionsBoundary=arn)
    assert code_of(anna, "DeletePolicy", PolicyArn=arn) == ("DeleteConflict", 409)


def test_a_boundary_must_be_a_policy_that_is_there(accounts: Accounts) -> None:
    foreign = create(accounts.ben, "p")
    for arn in (foreign, f"arn:aws:iam::{accounts.anna.account}:policy/absent"):
        request = {"RoleName": "r", "AssumeRolePolicyDocument": SAGEMAKER_TRUST, "PermissionsBoundary": arn}
        assert code_of(accounts.anna, "CreateRole", **request) == ("NoSuchEntity", 404)


def test_a_policy_tells_which_roles_it_is_attached_to(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p")
    for name, path in (("b", "/x/"), ("a", "/")):
        role = {"RoleName": name, "Path": path, "AssumeRolePolicyDocument": SAGEMAKER_TRUST}
        anna("iam", "CreateRole", **role, PermissionsBoundary=arn)
        anna("iam", "AttachRolePolicy", RoleName=name, PolicyArn=arn)
    anna("iam", "DetachRolePolicy", RoleName="b", PolicyArn=arn)

    def entities(policy: str, **request: object) -> list[str]:
        answer = anna("iam", "ListEntitiesForPolicy", PolicyArn=policy, **request)
        assert (answer["PolicyUsers"], answer["PolicyGroups"]) == ([], [])
        return [role["RoleName"] for role in answer["PolicyRoles"]]

    assert entities(arn) == ["a"]
    assert entities(arn, PolicyUsageFilter="PermissionsBoundary") == ["a", "b"]
    assert entities(arn, PolicyUsageFilter="PermissionsBoundary", PathPrefix="/x/") == ["b"]
    assert entities(arn, EntityFilter="User") == []
    assert entities(SAGEMAKER_FULL_ACCESS) == [DEFAULT_ROLE]


def test_another_accounts_policy_is_not_there(accounts: Accounts) -> None:
    arn = create(accounts.anna, "p")
    for operation, more in {
        "GetPolicy": {},
        "DeletePolicy": {},
        "ListEntitiesForPolicy": {},
        "CreatePolicyVersion": {"PolicyDocument": DOCUMENT},
        "GetPolicyVersion": {"VersionId": "v1"},
        "ListPolicyVersions": {},
        "SetDefaultPolicyVersion": {"VersionId": "v1"},
        "DeletePolicyVersion": {"VersionId": "v1"},
    }.items():
        assert code_of(accounts.ben, operation, PolicyArn=arn, **more) == ("NoSuchEntity", 404), operation
    assert names(accounts.ben, Scope="Local") == []
    assert accounts.admin("iam", "GetPolicy", PolicyArn=arn)["Policy"]["PolicyName"] == "p"
    assert names(accounts.admin, Scope="Local") == ["p"]


@pytest.mark.parametrize(
    ("arn", "code"),
    [("arn:aws:iam::123456789012:role/some-role", "InvalidInput"), ("a-text-that-is-long-enough", "ValidationError")],
)
def test_an_invalid_policy_arn_is_refused(accounts: Accounts, arn: str, code: str) -> None:
    assert code_of(accounts.anna, "GetPolicy", PolicyArn=arn) == (code, 400)


def test_a_policy_without_description_and_tags_says_so_as_iam_does(accounts: Accounts) -> None:
    made = accounts.anna("iam", "CreatePolicy", PolicyName="bare", PolicyDocument=DOCUMENT)["Policy"]
    assert not {"Description", "Tags"} & made.keys()
    assert accounts.anna("iam", "GetPolicy", PolicyArn=made["Arn"])["Policy"] == made | {"Tags": []}


def test_policies_are_tagged_and_mind_the_case_of_keys(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p", Tags=[{"Key": "a", "Value": "1"}, {"Key": "A", "Value": "2"}])
    anna("iam", "TagPolicy", PolicyArn=arn, Tags=[{"Key": "b", "Value": ""}, {"Key": "a", "Value": "3"}])
    anna("iam", "UntagPolicy", PolicyArn=arn, TagKeys=["A"])
    first = anna("iam", "ListPolicyTags", PolicyArn=arn, MaxItems=1)
    assert first["Tags"] == [{"Key": "a", "Value": "3"}]
    rest = anna("iam", "ListPolicyTags", PolicyArn=arn, Marker=first["Marker"])
    assert rest == {"Tags": [{"Key": "b", "Value": ""}], "IsTruncated": False}
    twice = [{"Key": "c", "Value": "1"}, {"Key": "c", "Value": "2"}]
    assert code_of(anna, "TagPolicy", PolicyArn=arn, Tags=twice) == ("InvalidInput", 400)
    for operation, more in (("TagPolicy", {"Tags": []}), ("UntagPolicy", {"TagKeys": ["a"]}), ("ListPolicyTags", {})):
        assert code_of(accounts.ben, operation, PolicyArn=arn, **more) == ("NoSuchEntity", 404)


def test_missing_resources_are_reported_in_the_words_of_iam(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = create(anna, "p")
    absent = arn.replace("/p", "/absent")
    for operation, request, message in (
        ("GetPolicy", {"PolicyArn": absent}, f"Policy {absent} was not found."),
        ("AttachRolePolicy", {"PolicyArn": absent}, f"Policy {absent} does not exist or is not attachable."),
        ("DetachRolePolicy", {"PolicyArn": arn}, f"Policy {arn} was not found."),
        (
            "GetPolicyVersion",
            {"PolicyArn": arn, "VersionId": "v9"},
            f"Policy {arn} version v9 does not exist or is not attachable.",
        ),
        (
            "CreatePolicy",
            {"PolicyName": "p", "PolicyDocument": DOCUMENT},
            "A policy called p already exists. Duplicate names are not allowed.",
        ),
    ):
        named = {"RoleName": DEFAULT_ROLE} if "Role" in operation else {}
        with pytest.raises(Fault) as caught:
            anna("iam", operation, **request, **named)
        assert caught.value.message == message


def test_the_path_is_part_of_a_policys_name(accounts: Accounts) -> None:
    arn = create(accounts.anna, "p", Path="/team/")
    assert code_of(accounts.anna, "GetPolicy", PolicyArn=arn.replace("/team/", "/")) == ("NoSuchEntity", 404)
