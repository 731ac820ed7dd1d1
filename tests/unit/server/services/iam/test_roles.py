import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.identity import DEFAULT_ROLE
from trainyard.wire.fault import Fault

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)


PERMISSIONS = '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}'


def create(caller: As, name: str, **more: object) -> None:
    caller("iam", "CreateRole", RoleName=name, AssumeRolePolicyDocument=TRUST, **more)


def code_of(caller: As, operation: str, **request: object) -> tuple[str, int]:
    with pytest.raises(Fault) as caught:
        caller("iam", operation, **request)
    return caught.value.code, caught.value.status


def test_a_role_is_remembered_as_it_was_created(accounts: Accounts) -> None:
    made = accounts.anna(
        "iam",
        "CreateRole",
        RoleName="trainer",
        Path="/team/a/",
        AssumeRolePolicyDocument=TRUST,
        Description="Trains.",
        MaxSessionDuration=7200,
        PermissionsBoundary="arn:aws:iam::aws:policy/PowerUserAccess",
        Tags=[{"Key": "team", "Value": "a"}],
    )["Role"]
    assert made["Arn"] == f"arn:aws:iam::{accounts.anna.account}:role/team/a/trainer"
    assert made["RoleId"].startswith("AROA")
    assert len(made["RoleId"]) == 21
    found = accounts.anna("iam", "GetRole", RoleName="trainer")["Role"]
    assert found == made | {"RoleLastUsed": {}}
    assert json.loads(unquote(found["AssumeRolePolicyDocument"])) == json.loads(TRUST)
    assert (found["Description"], found["MaxSessionDuration"], found["CreateDate"]) == ("Trains.", 7200, NOON)
    assert found["Tags"] == [{"Key": "team", "Value": "a"}]
    assert found["PermissionsBoundary"]["PermissionsBoundaryArn"] == "arn:aws:iam::aws:policy/PowerUserAccess"


def test_every_user_has_a_role_from_the_start(accounts: Accounts) -> None:
    for caller in (accounts.admin, accounts.anna):
        role = caller("iam", "GetRole", RoleName=DEFAULT_ROLE)["Role"]
        assert role["Arn"] == f"arn:aws:iam::{caller.account}:role/{DEFAULT_ROLE}"


def test_a_name_is_unique_in_an_account(accounts: Accounts) -> None:
    create(accounts.anna, "trainer")
    assert code_of(accounts.anna, "CreateRole", RoleName="trainer", AssumeRolePolicyDocument=TRUST) == (
        "EntityAlreadyExists",
        409,
    )
    create(accounts.anna, "Trainer")
    create(accounts.ben, "trainer")


@pytest.mark.parametrize(
    "document",
    [
        "no json",
        "[]",
        "{}",
        '{"Statement": []}',
        '{"Statement": [1]}',
        '{"Statement": {"Effect": "Maybe", "Action": "*"}}',
        '{"Statement": {"Effect": "Allow"}}',
        '{"Version": "2020-01-01", "Statement": {"Effect": "Allow", "Action": "*"}}',
        TRUST.replace("2012-10-17", "2020-01-01"),
        TRUST.replace("Allow", "Maybe"),
        "[" * 50_000,
    ],
)
def test_a_trust_policy_must_be_a_policy(accounts: Accounts, document: str) -> None:
    assert code_of(accounts.anna, "CreateRole", RoleName="r", AssumeRolePolicyDocument=document) == (
        "MalformedPolicyDocument",
        400,
    )
    assert code_of(accounts.anna, "GetRole", RoleName="r") == ("NoSuchEntity", 404)


def test_a_trust_policy_has_a_limit_that_blanks_do_not_count_against(accounts: Accounts) -> None:
    accounts.anna("iam", "CreateRole", RoleName="airy", AssumeRolePolicyDocument=TRUST + " " * 3000)
    long = TRUST.replace("sagemaker", "s" * 2048)
    assert code_of(accounts.anna, "CreateRole", RoleName="long", AssumeRolePolicyDocument=long) == (
        "LimitExceeded",
        409,
    )


def test_a_role_can_be_changed(accounts: Accounts) -> None:
    anna = accounts.anna
    create(anna, "trainer", Description="old")
    anna("iam", "UpdateRole", RoleName="trainer", MaxSessionDuration=7200)
    assert anna("iam", "GetRole", RoleName="trainer")["Role"]["Description"] == "old"
    anna("iam", "UpdateRole", RoleName="trainer", Description="")
    trust = TRUST.replace("sagemaker", "ec2")
    anna("iam", "UpdateAssumeRolePolicy", RoleName="trainer", PolicyDocument=trust)
    role = anna("iam", "GetRole", RoleName="trainer")["Role"]
    assert "Description" not in role
    assert role["MaxSessionDuration"] == 7200
    assert unquote(role["AssumeRolePolicyDocument"]) == trust
    changed = anna("iam", "UpdateRoleDescription", RoleName="trainer", Description="new")["Role"]
    assert changed["Description"] == "new"


def test_a_role_with_policies_is_not_deleted(accounts: Accounts) -> None:
    anna = accounts.anna
    create(anna, "trainer", Tags=[{"Key": "a", "Value": "b"}])
    anna("iam", "AttachRolePolicy", RoleName="trainer", PolicyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess")
    with pytest.raises(Fault, match="Cannot delete entity, must detach all policies first"):
        anna("iam", "DeleteRole", RoleName="trainer")
    anna("iam", "DetachRolePolicy", RoleName="trainer", PolicyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess")
    anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName="inline", PolicyDocument=PERMISSIONS)
    assert code_of(anna, "DeleteRole", RoleName="trainer") == ("DeleteConflict", 409)
    anna("iam", "DeleteRolePolicy", RoleName="trainer", PolicyName="inline")
    old = anna("iam", "GetRole", RoleName="trainer")["Role"]
    anna("iam", "DeleteRole", RoleName="trainer")
    assert code_of(anna, "DeleteRole", RoleName="trainer") == ("NoSuchEntity", 404)
    create(anna, "trainer")
    new = anna("iam", "GetRole", RoleName="trainer")["Role"]
    assert new["RoleId"] != old["RoleId"]
    assert "Tags" not in new


def test_roles_are_listed_by_name_in_pages(accounts: Accounts) -> None:
    anna = accounts.anna
    for number in range(5):
        create(anna, f"r{number}", Path="/even/" if number % 2 == 0 else "/odd/")
    first = anna("iam", "ListRoles", PathPrefix="/even/", MaxItems=2)
    assert [role["RoleName"] for role in first["Roles"]] == ["r0", "r2"]
    assert first["IsTruncated"] is True
    rest = anna("iam", "ListRoles", PathPrefix="/even/", MaxItems=2, Marker=first["Marker"])
    assert [role["RoleName"] for role in rest["Roles"]] == ["r4"]
    assert rest["IsTruncated"] is False
    assert [role["RoleName"] for role in anna("iam", "ListRoles")["Roles"]] == [
        DEFAULT_ROLE,
        *(f"r{n}" for n in range(5)),
    ]
    assert code_of(anna, "ListRoles", Marker="nonsense")[1] == 400


def test_tags_are_added_replaced_and_removed(accounts: Accounts) -> None:
    anna = accounts.anna
    create(anna, "trainer", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    anna("iam", "TagRole", RoleName="trainer", Tags=[{"Key": "b", "Value": "3"}, {"Key": "c", "Value": ""}])
    anna("iam", "UntagRole", RoleName="trainer", TagKeys=["a", "absent"])
    first = anna("iam", "ListRoleTags", RoleName="trainer", MaxItems=1)
    assert first["Tags"] == [{"Key": "b", "Value": "3"}]
    rest = anna("iam", "ListRoleTags", RoleName="trainer", Marker=first["Marker"])
    assert rest == {"Tags": [{"Key": "c", "Value": ""}], "IsTruncated": False}


@pytest.mark.parametrize(
    "keys", [["a", "A"], ["aws:reserved"]], ids=["twice the same but for its case", "one that AWS keeps for itself"]
)
def test_tag_keys_have_rules(accounts: Accounts, keys: list[str]) -> None:
    tags = [{"Key": key, "Value": ""} for key in keys]
    create(accounts.anna, "trainer")
    assert code_of(accounts.anna, "TagRole", RoleName="trainer", Tags=tags) == ("InvalidInput", 400)


def test_a_role_has_at_most_fifty_tags(accounts: Accounts) -> None:
    create(accounts.anna, "trainer", Tags=[{"Key": f"k{number}", "Value": ""} for number in range(50)])
    accounts.anna("iam", "TagRole", RoleName="trainer", Tags=[{"Key": "k0", "Value": "changed"}])
    assert code_of(accounts.anna, "TagRole", RoleName="trainer", Tags=[{"Key": "more", "Value": ""}]) == (
        "LimitExceeded",
        409,
    )


def test_another_accounts_role_is_not_there(accounts: Accounts) -> None:
    create(accounts.anna, "secret", Tags=[{"Key": "a", "Value": "b"}])
    requests: dict[str, dict[str, object]] = {
        "GetRole": {},
        "DeleteRole": {},
        "UpdateRole": {"Description": "mine"},
        "UpdateRoleDescription": {"Description": "mine"},
        "UpdateAssumeRolePolicy": {"PolicyDocument": TRUST},
        "TagRole": {"Tags": [{"Key": "a", "Value": "c"}]},
        "UntagRole": {"TagKeys": ["a"]},
        "ListRoleTags": {},
        "AttachRolePolicy": {"PolicyArn": "arn:aws:iam::aws:policy/AmazonS3FullAccess"},
        "DetachRolePolicy": {"PolicyArn": "arn:aws:iam::aws:policy/AmazonS3FullAccess"},
        "ListAttachedRolePolicies": {},
        "PutRolePolicy": {"PolicyName": "p", "PolicyDocument": PERMISSIONS},
        "GetRolePolicy": {"PolicyName": "p"},
        "ListRolePolicies": {},
        "DeleteRolePolicy": {"PolicyName": "p"},
        "PutRolePermissionsBoundary": {"PermissionsBoundary": "arn:aws:iam::aws:policy/AmazonS3FullAccess"},
        "DeleteRolePermissionsBoundary": {},
        "ListInstanceProfilesForRole": {},
    }
    for operation, more in requests.items():
        assert code_of(accounts.ben, operation, RoleName="secret", **more) == ("NoSuchEntity", 404), operation
    assert [role["RoleName"] for role in accounts.ben("iam", "ListRoles")["Roles"]] == [DEFAULT_ROLE]
    assert accounts.anna("iam", "GetRole", RoleName="secret")["Role"]["Tags"] == [{"Key": "a", "Value": "b"}]


def test_an_administrator_sees_its_own_role_first_and_then_that_of_another(accounts: Accounts) -> None:
    admin, anna, ben = accounts.admin, accounts.anna, accounts.ben
    assert admin("iam", "GetRole", RoleName=DEFAULT_ROLE)["Role"]["Arn"].split(":")[4] == admin.account
    create(anna, "trainer")
    assert admin("iam", "GetRole", RoleName="trainer")["Role"]["Arn"].split(":")[4] == anna.account
    create(ben, "trainer")
    with pytest.raises(Fault) as caught:
        admin("iam", "GetRole", RoleName="trainer")
    assert anna.account in caught.value.message
    assert ben.account in caught.value.message
    assert len(admin("iam", "ListRoles")["Roles"]) == 5


def test_no_concurrent_change_is_lost(accounts: Accounts) -> None:
    create(accounts.anna, "trainer")
    names = [f"p{number}" for number in range(8)]

    def put(name: str) -> None:
        accounts.anna("iam", "PutRolePolicy", RoleName="trainer", PolicyName=name, PolicyDocument=PERMISSIONS)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(put, names))
    assert accounts.anna("iam", "ListRolePolicies", RoleName="trainer")["PolicyNames"] == names


def test_missing_and_duplicate_names_are_reported_in_the_words_of_iam(accounts: Accounts) -> None:
    create(accounts.anna, "trainer")
    with pytest.raises(Fault) as taken:
        create(accounts.anna, "trainer")
    assert taken.value.message == "Role with name trainer already exists."
    with pytest.raises(Fault) as absent:
        accounts.anna("iam", "GetRole", RoleName="nobody")
    assert absent.value.message == "The role with name nobody cannot be found."
    with pytest.raises(Fault) as inline:
        accounts.anna("iam", "GetRolePolicy", RoleName="trainer", PolicyName="p")
    assert inline.value.message == "The role policy with name p cannot be found."
