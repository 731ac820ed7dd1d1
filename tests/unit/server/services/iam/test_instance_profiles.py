import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.identity import DEFAULT_ROLE
from trainyard.wire.fault import Fault


def create(caller: As, name: str, **more: object) -> dict[str, object]:
    return dict(caller("iam", "CreateInstanceProfile", InstanceProfileName=name, **more)["InstanceProfile"])


def fault_of(caller: As, operation: str, **request: object) -> Fault:
    with pytest.raises(Fault) as caught:
        caller("iam", operation, **request)
    return caught.value


def names(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [profile["InstanceProfileName"] for profile in answer["InstanceProfiles"]]


def test_a_profile_is_remembered_as_it_was_created(accounts: Accounts) -> None:
    anna = accounts.anna
    made = create(anna, "p", Path="/team/")
    assert str(made["InstanceProfileId"]).startswith("AIPA")
    assert made | {"InstanceProfileId": ""} == {
        "Path": "/team/",
        "InstanceProfileName": "p",
        "InstanceProfileId": "",
        "Arn": f"arn:aws:iam::{anna.account}:instance-profile/team/p",
        "CreateDate": NOON,
        "Roles": [],
    }
    found = anna("iam", "GetInstanceProfile", InstanceProfileName="p")["InstanceProfile"]
    assert found == made | {"Tags": []}
    taken = fault_of(anna, "CreateInstanceProfile", InstanceProfileName="p")
    assert (taken.code, taken.status, taken.message) == (
        "EntityAlreadyExists",
        409,
        "Instance Profile p already exists.",
    )


def test_a_profile_has_one_role(accounts: Accounts) -> None:
    anna = accounts.anna
    create(anna, "p")
    named = {"InstanceProfileName": "p", "RoleName": DEFAULT_ROLE}
    absent = fault_of(anna, "RemoveRoleFromInstanceProfile", **named)
    assert absent.message == f"Role {DEFAULT_ROLE} in Instance Profile p cannot be found."
    anna("iam", "AddRoleToInstanceProfile", **named)
    role = anna("iam", "GetRole", RoleName=DEFAULT_ROLE)["Role"]
    shown = anna("iam", "GetInstanceProfile", InstanceProfileName="p")["InstanceProfile"]["Roles"]
    assert [each["Arn"] for each in shown] == [role["Arn"]]
    full = fault_of(anna, "AddRoleToInstanceProfile", **named)
    assert (full.code, full.message) == (
        "LimitExceeded",
        "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
    )
    for operation, request in (
        ("DeleteInstanceProfile", {"InstanceProfileName": "p"}),
        ("DeleteRole", {"RoleName": DEFAULT_ROLE}),
    ):
        held = fault_of(anna, operation, **request)
        assert (held.code, held.status) == ("DeleteConflict", 409)
        assert held.message == "Cannot delete entity, must remove roles from instance profile first."
    anna("iam", "RemoveRoleFromInstanceProfile", **named)
    anna("iam", "DeleteInstanceProfile", InstanceProfileName="p")
    gone = fault_of(anna, "GetInstanceProfile", InstanceProfileName="p")
    assert (gone.code, gone.status, gone.message) == ("NoSuchEntity", 404, "Instance Profile p cannot be found.")


def test_profiles_are_listed_by_path_and_by_role(accounts: Accounts) -> None:
    anna = accounts.anna
    for name, path in (("b", "/x/"), ("a", "/x/"), ("c", "/y/")):
        create(anna, name, Path=path)
    for name in ("c", "a"):
        anna("iam", "AddRoleToInstanceProfile", InstanceProfileName=name, RoleName=DEFAULT_ROLE)
    assert names(anna("iam", "ListInstanceProfiles")) == ["a", "b", "c"]
    assert names(anna("iam", "ListInstanceProfiles", PathPrefix="/x/")) == ["a", "b"]
    first = anna("iam", "ListInstanceProfiles", MaxItems=2)
    assert (names(first), first["IsTruncated"]) == (["a", "b"], True)
    assert names(anna("iam", "ListInstanceProfiles", Marker=first["Marker"])) == ["c"]
    assert names(anna("iam", "ListInstanceProfilesForRole", RoleName=DEFAULT_ROLE)) == ["a", "c"]
    assert fault_of(anna, "ListInstanceProfilesForRole", RoleName="absent").code == "NoSuchEntity"


def test_profiles_are_tagged(accounts: Accounts) -> None:
    anna = accounts.anna
    tags = [{"Key": "a", "Value": "1"}]
    assert create(anna, "p", Tags=tags)["Tags"] == tags
    anna("iam", "TagInstanceProfile", InstanceProfileName="p", Tags=[{"Key": "A", "Value": "2"}])
    anna("iam", "UntagInstanceProfile", InstanceProfileName="p", TagKeys=["a"])
    listed = anna("iam", "ListInstanceProfileTags", InstanceProfileName="p")
    assert listed == {"Tags": [{"Key": "A", "Value": "2"}], "IsTruncated": False}
    arn = f"arn:aws:iam::{anna.account}:instance-profile/p"
    anna("resourcegroupstaggingapi", "TagResources", ResourceARNList=[arn], Tags={"b": "3"})
    found = anna("iam", "GetInstanceProfile", InstanceProfileName="p")["InstanceProfile"]["Tags"]
    assert found == [{"Key": "A", "Value": "2"}, {"Key": "b", "Value": "3"}]


def test_another_accounts_profile_is_not_there(accounts: Accounts) -> None:
    create(accounts.anna, "p", Tags=[{"Key": "a", "Value": "1"}])
    requests: dict[str, dict[str, object]] = {
        "GetInstanceProfile": {},
        "DeleteInstanceProfile": {},
        "AddRoleToInstanceProfile": {"RoleName": DEFAULT_ROLE},
        "RemoveRoleFromInstanceProfile": {"RoleName": DEFAULT_ROLE},
        "TagInstanceProfile": {"Tags": []},
        "UntagInstanceProfile": {"TagKeys": ["a"]},
        "ListInstanceProfileTags": {},
    }
    for operation, more in requests.items():
        assert fault_of(accounts.ben, operation, InstanceProfileName="p", **more).code == "NoSuchEntity", operation
    assert names(accounts.ben("iam", "ListInstanceProfiles")) == []
    assert names(accounts.admin("iam", "ListInstanceProfiles")) == ["p"]


def test_an_administrator_cannot_put_a_role_into_a_profile_of_another_account(accounts: Accounts) -> None:
    create(accounts.anna, "p")
    named = {"InstanceProfileName": "p", "RoleName": DEFAULT_ROLE}
    assert fault_of(accounts.admin, "AddRoleToInstanceProfile", **named).code == "NoSuchEntity"
