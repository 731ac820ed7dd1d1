import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.identity import DEFAULT_ROLE, InvalidCredential
from trainyard.wire.fault import Fault

DOCUMENT = '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}'


def code_of(caller: As, operation: str, **request: object) -> tuple[str, int]:
    with pytest.raises(Fault) as caught:
        caller("iam", operation, **request)
    return caught.value.code, caught.value.status


def test_an_administrator_adds_a_user_and_hands_it_a_key(accounts: Accounts) -> None:
    admin, identities = accounts.admin, accounts.yard.identities
    tags = [{"Key": "team", "Value": "vision"}]
    user = admin("iam", "CreateUser", UserName="carl", Tags=tags)["User"]
    account = user["Arn"].split(":")[4]
    assert user["Arn"] == f"arn:aws:iam::{account}:user/carl"
    assert account not in {admin.account, accounts.anna.account, accounts.ben.account}
    assert user["UserId"].startswith("AIDA")
    assert user["Tags"] == tags
    assert admin("iam", "ListAccessKeys", UserName="carl")["AccessKeyMetadata"] == []
    key = admin("iam", "CreateAccessKey", UserName="carl")["AccessKey"]
    assert (key["UserName"], key["Status"], key["CreateDate"]) == ("carl", "Active", NOON)
    carl = identities.resolve(key["AccessKeyId"], None, now=NOON)
    assert (carl.caller.account, carl.caller.user, carl.secret) == (account, "carl", key["SecretAccessKey"])
    assert not carl.caller.is_admin
    assert carl.caller.role == DEFAULT_ROLE


def test_the_path_makes_an_administrator(accounts: Accounts) -> None:
    admin = accounts.admin
    admin("iam", "CreateUser", UserName="dora", Path="/administrators/")
    key = admin("iam", "CreateAccessKey", UserName="dora")["AccessKey"]
    assert accounts.yard.identities.resolve(key["AccessKeyId"], None, now=NOON).caller.is_admin
    listed = admin("iam", "ListUsers", PathPrefix="/administrators/")["Users"]
    assert [user["UserName"] for user in listed] == ["admin", "dora"]
    assert code_of(admin, "CreateUser", UserName="eve", Path="/elsewhere/") == ("InvalidInput", 400)


def test_a_user_name_is_unique(accounts: Accounts) -> None:
    assert code_of(accounts.admin, "CreateUser", UserName="anna") == ("EntityAlreadyExists", 409)
    assert accounts.anna("iam", "ListRoles")["Roles"], "the first anna is untouched"


def test_a_boundary_that_nobody_would_enforce_is_refused(accounts: Accounts) -> None:
    boundary = "arn:aws:iam::aws:policy/ReadOnlyAccess"
    assert code_of(accounts.admin, "CreateUser", UserName="eve", PermissionsBoundary=boundary) == ("InvalidInput", 400)
    assert code_of(accounts.admin, "GetUser", UserName="eve") == ("NoSuchEntity", 404)


def test_removing_a_user_revokes_its_keys_and_keeps_its_resources(accounts: Accounts) -> None:
    admin, anna = accounts.admin, accounts.anna
    session = anna("sts", "GetSessionToken")["Credentials"]
    admin("iam", "DeleteUser", UserName="anna")
    for key, token in ((anna.key.id, None), (session["AccessKeyId"], session["SessionToken"])):
        with pytest.raises(InvalidCredential):
            accounts.yard.identities.resolve(key, token, now=NOON)
    assert code_of(admin, "GetUser", UserName="anna") == ("NoSuchEntity", 404)
    assert code_of(admin, "DeleteUser", UserName="anna") == ("NoSuchEntity", 404)
    assert [user["UserName"] for user in admin("iam", "ListUsers")["Users"]] == ["admin", "ben"]
    owners = {role["Arn"].split(":")[4] for role in admin("iam", "ListRoles")["Roles"]}
    assert anna.account in owners
    again = admin("iam", "CreateUser", UserName="anna")["User"]
    assert again["Arn"].split(":")[4] != anna.account


def test_a_plain_user_knows_only_itself(accounts: Accounts) -> None:
    anna = accounts.anna
    assert anna("iam", "GetUser")["User"]["UserName"] == "anna"
    assert anna("iam", "GetUser", UserName="anna")["User"]["Path"] == "/"
    assert [user["UserName"] for user in anna("iam", "ListUsers")["Users"]] == ["anna"]


@pytest.mark.parametrize("name", ["ben", "admin", "nobody"])
def test_a_plain_user_is_refused_for_others_whether_they_exist_or_not(accounts: Accounts, name: str) -> None:
    for operation, more in {
        "GetUser": {},
        "CreateUser": {},
        "DeleteUser": {},
        "CreateAccessKey": {},
        "ListAccessKeys": {},
        "DeleteAccessKey": {"AccessKeyId": accounts.ben.key.id},
    }.items():
        assert code_of(accounts.anna, operation, UserName=name, **more) == ("AccessDenied", 403), operation
    assert code_of(accounts.anna, "DeleteUser", UserName="anna") == ("AccessDenied", 403)
    assert accounts.yard.identities.resolve(accounts.ben.key.id, None, now=NOON)


def test_a_user_changes_its_own_keys(accounts: Accounts) -> None:
    anna, identities = accounts.anna, accounts.yard.identities
    key = anna("iam", "CreateAccessKey")["AccessKey"]
    assert code_of(anna, "CreateAccessKey") == ("LimitExceeded", 409)
    listed = anna("iam", "ListAccessKeys")["AccessKeyMetadata"]
    assert {entry["AccessKeyId"] for entry in listed} == {anna.key.id, key["AccessKeyId"]}
    anna("iam", "DeleteAccessKey", AccessKeyId=anna.key.id)
    with pytest.raises(InvalidCredential):
        identities.resolve(anna.key.id, None, now=NOON)
    assert code_of(anna, "DeleteAccessKey", AccessKeyId=anna.key.id) == ("NoSuchEntity", 404)
    assert code_of(anna, "DeleteAccessKey", AccessKeyId=accounts.ben.key.id) == ("NoSuchEntity", 404)


def test_temporary_credentials_cannot_make_lasting_ones(accounts: Accounts) -> None:
    session = accounts.speaking_with(accounts.anna("sts", "GetSessionToken")["Credentials"])
    assert code_of(session, "CreateAccessKey") == ("AccessDenied", 403)
    assert code_of(session, "DeleteAccessKey", AccessKeyId=accounts.anna.key.id) == ("AccessDenied", 403)


def test_the_last_administrator_stays_and_keeps_a_key(accounts: Accounts) -> None:
    admin = accounts.admin
    assert code_of(admin, "DeleteUser", UserName="admin") == ("DeleteConflict", 409)
    assert code_of(admin, "DeleteAccessKey", AccessKeyId=admin.key.id) == ("DeleteConflict", 409)
    admin("iam", "CreateAccessKey")
    admin("iam", "DeleteAccessKey", AccessKeyId=admin.key.id)


def test_an_account_has_no_aliases(accounts: Accounts) -> None:
    assert accounts.anna("iam", "ListAccountAliases") == {"AccountAliases": [], "IsTruncated": False}


def test_a_key_is_made_inactive_and_active_again(accounts: Accounts) -> None:
    admin, anna, identities = accounts.admin, accounts.anna, accounts.yard.identities
    session = anna("sts", "GetSessionToken")["Credentials"]
    admin("iam", "UpdateAccessKey", UserName="anna", AccessKeyId=anna.key.id, Status="Inactive")
    with pytest.raises(InvalidCredential):
        identities.resolve(anna.key.id, None, now=NOON)
    assert identities.resolve(session["AccessKeyId"], session["SessionToken"], now=NOON).caller.user == "anna"
    assert [key["Status"] for key in admin("iam", "ListAccessKeys", UserName="anna")["AccessKeyMetadata"]] == [
        "Inactive"
    ]
    admin("iam", "UpdateAccessKey", UserName="anna", AccessKeyId=anna.key.id, Status="Inactive")
    admin("iam", "UpdateAccessKey", UserName="anna", AccessKeyId=anna.key.id, Status="Active")
    assert identities.resolve(anna.key.id, None, now=NOON).caller.user == "anna"
    assert [key["Status"] for key in admin("iam", "ListAccessKeys", UserName="anna")["AccessKeyMetadata"]] == ["Active"]
    assert code_of(anna, "UpdateAccessKey", AccessKeyId=anna.key.id, Status="Expired") == ("InvalidInput", 400)


def test_only_ones_own_keys_are_changed(accounts: Accounts) -> None:
    anna, ben = accounts.anna, accounts.ben
    request = {"AccessKeyId": ben.key.id, "Status": "Inactive"}
    assert code_of(anna, "UpdateAccessKey", **request) == ("NoSuchEntity", 404)
    assert code_of(anna, "UpdateAccessKey", UserName="ben", **request) == ("AccessDenied", 403)
    session = accounts.speaking_with(anna("sts", "GetSessionToken")["Credentials"])
    assert code_of(session, "UpdateAccessKey", AccessKeyId=anna.key.id, Status="Inactive") == ("AccessDenied", 403)
    assert accounts.yard.identities.resolve(ben.key.id, None, now=NOON).caller.user == "ben"


def test_the_last_active_key_of_the_last_administrator_stays(accounts: Accounts) -> None:
    admin = accounts.admin
    first = {"AccessKeyId": admin.key.id}
    assert code_of(admin, "UpdateAccessKey", **first, Status="Inactive") == ("DeleteConflict", 409)
    second = {"AccessKeyId": admin("iam", "CreateAccessKey")["AccessKey"]["AccessKeyId"]}
    admin("iam", "UpdateAccessKey", **second, Status="Inactive")
    assert code_of(admin, "DeleteAccessKey", **first) == ("DeleteConflict", 409)
    admin("iam", "UpdateAccessKey", **second, Status="Active")
    admin("iam", "UpdateAccessKey", **first, Status="Inactive")
    assert accounts.yard.identities.ensure_admin(now=NOON) == accounts.yard.records.access_key(second["AccessKeyId"])
    assert code_of(admin, "DeleteAccessKey", **second) == ("DeleteConflict", 409)
    admin("iam", "DeleteAccessKey", **first)
    assert accounts.yard.identities.inactive_keys(admin.account) == frozenset()


def test_users_are_tagged_by_themselves_and_by_administrators(accounts: Accounts) -> None:
    admin, anna = accounts.admin, accounts.anna
    anna("iam", "TagUser", UserName="anna", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    admin("iam", "UntagUser", UserName="anna", TagKeys=["a"])
    listed = admin("iam", "ListUserTags", UserName="anna")
    assert listed == {"Tags": [{"Key": "b", "Value": "2"}], "IsTruncated": False}
    assert anna("iam", "GetUser")["User"]["Tags"] == listed["Tags"]
    assert code_of(accounts.ben, "ListUserTags", UserName="anna") == ("AccessDenied", 403)
    assert code_of(admin, "ListUserTags", UserName="nobody") == ("NoSuchEntity", 404)


def test_an_account_summary_counts_and_states_quotas(accounts: Accounts) -> None:
    anna = accounts.anna
    before = anna("iam", "GetAccountSummary")["SummaryMap"]
    assert {name: before[name] for name in ("Users", "Roles", "Policies", "InstanceProfiles", "Groups")} == {
        "Users": 1,
        "Roles": 1,
        "Policies": 0,
        "InstanceProfiles": 0,
        "Groups": 0,
    }
    assert (before["AccessKeysPerUserQuota"], before["VersionsPerPolicyQuota"]) == (2, 5)
    arn = anna("iam", "CreatePolicy", PolicyName="p", PolicyDocument=DOCUMENT)["Policy"]["Arn"]
    anna("iam", "CreatePolicyVersion", PolicyArn=arn, PolicyDocument=DOCUMENT)
    anna("iam", "CreateInstanceProfile", InstanceProfileName="p")
    after = anna("iam", "GetAccountSummary")["SummaryMap"]
    assert (after["Policies"], after["PolicyVersionsInUse"], after["InstanceProfiles"]) == (1, 2, 1)
    assert accounts.ben("iam", "GetAccountSummary")["SummaryMap"] == before
    assert accounts.admin("iam", "GetAccountSummary")["SummaryMap"]["Users"] == 3


def test_lists_of_what_no_account_has_are_empty(accounts: Accounts) -> None:
    anna = accounts.anna
    assert anna("iam", "ListAccountAliases") == {"AccountAliases": [], "IsTruncated": False}
    assert anna("iam", "ListGroups") == {"Groups": [], "IsTruncated": False}
    for operation, member in (
        ("ListGroupsForUser", "Groups"),
        ("ListUserPolicies", "PolicyNames"),
        ("ListAttachedUserPolicies", "AttachedPolicies"),
    ):
        assert anna("iam", operation, UserName="anna") == {member: [], "IsTruncated": False}
        with pytest.raises(Fault) as foreign:
            anna("iam", operation, UserName="ben")
        assert foreign.value.code == "AccessDenied"
        with pytest.raises(Fault) as absent:
            accounts.admin("iam", operation, UserName="nobody")
        assert absent.value.message == "The user with name nobody cannot be found."
