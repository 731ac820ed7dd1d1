import pytest

from tests.unit.server.services.accounts import Accounts, As
from trainyard.server.identity import DEFAULT_ROLE
from trainyard.wire.fault import Fault

ACTIONS = ["ecr:GetAuthorizationToken", "cloudwatch:PutMetricData", "ec2:CreateNetworkInterface"]


def role_of(caller: As, name: str = DEFAULT_ROLE) -> str:
    return f"arn:aws:iam::{caller.account}:role/{name}"


def simulate(caller: As, arn: str, actions: list[str], **more: object) -> dict[str, str]:
    answer = caller("iam", "SimulatePrincipalPolicy", PolicySourceArn=arn, ActionNames=actions, **more)
    return {each["EvalActionName"]: each["EvalDecision"] for each in answer["EvaluationResults"]}


def code_of(caller: As, arn: str, actions: list[str] = ACTIONS, **more: object) -> tuple[str, int]:
    with pytest.raises(Fault) as caught:
        simulate(caller, arn, actions, **more)
    return caught.value.code, caught.value.status


def test_a_role_may_do_everything_that_the_sdk_asks_for(accounts: Accounts) -> None:
    assert simulate(accounts.anna, role_of(accounts.anna), ACTIONS) == dict.fromkeys(ACTIONS, "allowed")


def test_what_the_yard_forbids_is_denied(accounts: Accounts) -> None:
    denied = ["iam:CreateUser", "iam:createaccesskey", "sts:GetSessionToken"]
    decisions = simulate(accounts.anna, role_of(accounts.anna), [*denied, "iam:CreateRole"])
    assert decisions == {**dict.fromkeys(denied, "implicitDeny"), "iam:CreateRole": "allowed"}
    anna, admin = (caller("iam", "GetUser")["User"]["Arn"] for caller in (accounts.anna, accounts.admin))
    assert simulate(accounts.anna, anna, ["iam:CreateUser"]) == {"iam:CreateUser": "implicitDeny"}
    assert simulate(accounts.admin, admin, ["iam:CreateUser"]) == {"iam:CreateUser": "allowed"}


def test_each_resource_has_its_decision(accounts: Accounts) -> None:
    resources = ["arn:aws:s3:::one/*", "arn:aws:s3:::two/*"]
    request = {"PolicySourceArn": role_of(accounts.anna), "ActionNames": ["s3:PutObject"], "ResourceArns": resources}
    [result] = accounts.anna("iam", "SimulatePrincipalPolicy", **request)["EvaluationResults"]
    specific = result["ResourceSpecificResults"]
    assert [(each["EvalResourceName"], each["EvalResourceDecision"]) for each in specific] == [
        (resource, "allowed") for resource in resources
    ]


def test_results_come_in_pages_in_the_order_of_the_request(accounts: Accounts) -> None:
    request = {"PolicySourceArn": role_of(accounts.anna), "ActionNames": ACTIONS, "MaxItems": 2}
    first = accounts.anna("iam", "SimulatePrincipalPolicy", **request)
    assert first["IsTruncated"]
    second = accounts.anna("iam", "SimulatePrincipalPolicy", **request, Marker=first["Marker"])
    assert not second["IsTruncated"]
    names = [each["EvalActionName"] for page in (first, second) for each in page["EvaluationResults"]]
    assert names == ACTIONS


def test_a_role_of_an_account_outside_the_yard_stands_for_the_callers_own(accounts: Accounts) -> None:
    assert simulate(accounts.anna, "arn:aws:iam::111122223333:role/service-role/Trainer", ["s3:GetObject"]) == {
        "s3:GetObject": "allowed"
    }


@pytest.mark.parametrize("arn", ["role/none", "role/path/TrainyardRole", "user/none", "user/ben"])
def test_a_principal_that_does_not_exist_is_not_found(accounts: Accounts, arn: str) -> None:
    assert code_of(accounts.anna, f"arn:aws:iam::{accounts.anna.account}:{arn}") == ("NoSuchEntity", 404)


def test_principals_of_other_accounts_are_not_found(accounts: Accounts) -> None:
    assert code_of(accounts.anna, role_of(accounts.ben)) == ("NoSuchEntity", 404)
    assert code_of(accounts.anna, f"arn:aws:iam::{accounts.ben.account}:user/ben") == ("NoSuchEntity", 404)
    assert simulate(accounts.admin, role_of(accounts.ben), ["s3:GetObject"]) == {"s3:GetObject": "allowed"}


def test_invalid_questions_are_refused(accounts: Accounts) -> None:
    role = role_of(accounts.anna)
    assert code_of(accounts.anna, f"arn:aws:sts::{accounts.anna.account}:assumed-role/r/s")[0] == "InvalidInput"
    assert code_of(accounts.anna, role, ["s3:*"])[0] == "InvalidInput"
    assert code_of(accounts.anna, role, PolicyInputList=["{}"])[0] == "InvalidInput"
