import pytest

from tests.unit.server.services.accounts import Accounts
from trainyard.wire.fault import Fault

DOCUMENT = '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}'


def test_an_account_is_summed_up(accounts: Accounts) -> None:
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


def test_what_no_account_has_is_an_empty_list(accounts: Accounts) -> None:
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
