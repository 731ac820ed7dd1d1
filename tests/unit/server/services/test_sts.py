from datetime import timedelta

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from trainyard.foundation.arns import role_arn
from trainyard.server.identity import DEFAULT_ROLE, CredentialProblem, InvalidCredential
from trainyard.wire.fault import Fault

TRUST = '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}}'


def test_a_caller_sees_its_assumed_role(accounts: Accounts) -> None:
    anna = accounts.anna
    identity = anna("sts", "GetCallerIdentity")
    assert identity["Account"] == anna.account
    assert identity["Arn"] == f"arn:aws:sts::{anna.account}:assumed-role/{DEFAULT_ROLE}/anna"
    assert identity["UserId"] == f"{anna('iam', 'GetRole', RoleName=DEFAULT_ROLE)['Role']['RoleId']}:anna"


def test_a_caller_whose_role_was_deleted_is_still_somebody(accounts: Accounts) -> None:
    anna = accounts.anna
    [policy] = anna("iam", "ListAttachedRolePolicies", RoleName=DEFAULT_ROLE)["AttachedPolicies"]
    anna("iam", "DetachRolePolicy", RoleName=DEFAULT_ROLE, PolicyArn=policy["PolicyArn"])
    anna("iam", "DeleteRole", RoleName=DEFAULT_ROLE)
    assert anna("sts", "GetCallerIdentity")["UserId"].startswith("AROA")


def test_an_assumed_role_speaks_in_its_session(accounts: Accounts) -> None:
    anna = accounts.anna
    anna("iam", "CreateRole", RoleName="trainer", Path="/jobs/", AssumeRolePolicyDocument=TRUST)
    arn = role_arn(anna.account, "trainer", "/jobs/")
    answer = anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="run-7", SourceIdentity="anna")
    assert answer["AssumedRoleUser"]["Arn"] == f"arn:aws:sts::{anna.account}:assumed-role/trainer/run-7"
    assert answer["AssumedRoleUser"]["AssumedRoleId"].endswith(":run-7")
    assert answer["Credentials"]["Expiration"] == NOON + timedelta(hours=1)
    assert answer["SourceIdentity"] == "anna"
    session = accounts.speaking_with(answer["Credentials"])
    assert session("sts", "GetCallerIdentity")["Arn"] == answer["AssumedRoleUser"]["Arn"]


def test_the_role_of_an_administrator_has_no_administrator_rights(accounts: Accounts) -> None:
    admin = accounts.admin
    answer = admin("sts", "AssumeRole", RoleArn=role_arn(admin.account, DEFAULT_ROLE), RoleSessionName="job")
    assert not accounts.speaking_with(answer["Credentials"]).caller.is_admin


@pytest.mark.parametrize("name", ["admin", "anna"])
def test_roles_of_others_and_of_nobody_cannot_be_assumed_and_look_alike(accounts: Accounts, name: str) -> None:
    caller = getattr(accounts, name)
    messages = set()
    for arn in (
        role_arn(accounts.ben.account, DEFAULT_ROLE),
        role_arn(accounts.ben.account, "absent"),
        role_arn(caller.account, "absent"),
        role_arn(caller.account, DEFAULT_ROLE, "/elsewhere/"),
        "arn:aws:iam::aws:policy/AdministratorAccess",
    ):
        with pytest.raises(Fault) as caught:
            caller("sts", "AssumeRole", RoleArn=arn, RoleSessionName="me-here")
        assert (caught.value.code, caught.value.status) == ("AccessDenied", 403)
        messages.add(caught.value.message.replace(arn, ""))
    assert len(messages) == 1


def test_a_session_lasts_as_long_as_the_role_allows(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = role_arn(anna.account, DEFAULT_ROLE)
    with pytest.raises(Fault, match="MaxSessionDuration") as caught:
        anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="long", DurationSeconds=7200)
    assert caught.value.code == "ValidationError"
    anna("iam", "UpdateRole", RoleName=DEFAULT_ROLE, MaxSessionDuration=43200)
    answer = anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="long", DurationSeconds=43200)
    assert answer["Credentials"]["Expiration"] == NOON + timedelta(hours=12)


def test_a_chained_session_is_short_and_dies_with_the_one_it_came_from(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = role_arn(anna.account, DEFAULT_ROLE)
    anna("iam", "UpdateRole", RoleName=DEFAULT_ROLE, MaxSessionDuration=43200)
    first = anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="first", DurationSeconds=7200)["Credentials"]
    job = accounts.speaking_with(first)
    with pytest.raises(Fault, match="role chaining"):
        job("sts", "AssumeRole", RoleArn=arn, RoleSessionName="second", DurationSeconds=7200)
    second = job("sts", "AssumeRole", RoleArn=arn, RoleSessionName="second")["Credentials"]
    third = accounts.speaking_with(second)("sts", "AssumeRole", RoleArn=arn, RoleSessionName="third")["Credentials"]
    late = accounts.speaking_with(first, now=NOON + timedelta(minutes=90))
    last = late("sts", "AssumeRole", RoleArn=arn, RoleSessionName="last")["Credentials"]
    assert last["Expiration"] == first["Expiration"]
    accounts.yard.identities.revoke(anna.account, first["AccessKeyId"])
    for credentials in (first, second, third):
        with pytest.raises(InvalidCredential) as caught:
            accounts.speaking_with(credentials)
        assert caught.value.problem is CredentialProblem.UNKNOWN_KEY


def test_unenforced_members_are_refused(accounts: Accounts) -> None:
    anna = accounts.anna
    arn = role_arn(anna.account, DEFAULT_ROLE)
    for extra in ({"Policy": TRUST}, {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]}):
        with pytest.raises(Fault, match="does not enforce"):
            anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="narrow", **extra)


def test_a_session_token_speaks_as_the_user_itself(accounts: Accounts) -> None:
    credentials = accounts.admin("sts", "GetSessionToken", DurationSeconds=900)["Credentials"]
    assert credentials["Expiration"] == NOON + timedelta(minutes=15)
    session = accounts.speaking_with(credentials)
    assert session.caller.is_admin
    assert session.caller.arn == accounts.admin.caller.arn
    with pytest.raises(Fault, match="session credentials") as caught:
        session("sts", "GetSessionToken")
    assert caught.value.code == "AccessDenied"


def test_only_ones_own_keys_tell_their_account(accounts: Accounts) -> None:
    anna, ben = accounts.anna, accounts.ben
    assert anna("sts", "GetAccessKeyInfo", AccessKeyId=anna.key.id) == {"Account": anna.account}
    assert accounts.admin("sts", "GetAccessKeyInfo", AccessKeyId=ben.key.id) == {"Account": ben.account}
    for absent in (ben.key.id, "AKIAIOSFODNN7EXAMPLE"):
        with pytest.raises(Fault) as caught:
            anna("sts", "GetAccessKeyInfo", AccessKeyId=absent)
        assert caught.value.message == f'There is no access key named "{absent}".'


@pytest.mark.parametrize(
    "arn",
    ["nothing-like-an-arn-in-here", "arn::iam::1:role/a-role", "arn:aws:::1:role/a-role", "arn:aws:iam::123456789012:"],
)
def test_an_invalid_arn_is_refused(accounts: Accounts, arn: str) -> None:
    with pytest.raises(Fault, match=f"{arn} is invalid") as caught:
        accounts.anna("sts", "AssumeRole", RoleArn=arn, RoleSessionName="run")
    assert (caught.value.code, caught.value.status) == ("ValidationError", 400)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"Tags": [{"Key": "a", "Value": "1"}, {"Key": "A", "Value": "2"}]}, "Duplicate tag keys found"),
        ({"Tags": [{"Key": "a", "Value": "1"}], "TransitiveTagKeys": ["b"]}, "must be included in the requested tags"),
    ],
)
def test_tags_of_a_session_are_checked(accounts: Accounts, request_: dict[str, object], message: str) -> None:
    named = {"RoleArn": role_arn(accounts.anna.account, DEFAULT_ROLE), "RoleSessionName": "run"}
    with pytest.raises(Fault, match=message) as caught:
        accounts.anna("sts", "AssumeRole", **named, **request_)
    assert caught.value.code == "InvalidParameterValue"
    accounts.anna("sts", "AssumeRole", **named, Tags=[{"Key": "a", "Value": "1"}], TransitiveTagKeys=["A"])
