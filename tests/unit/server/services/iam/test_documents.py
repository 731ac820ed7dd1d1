import json
from typing import Any

import pytest

from trainyard.server.services.iam.documents import POLICY_QUOTA, require_policy, require_trust
from trainyard.wire.fault import Fault

SYNTAX = "Syntax errors in policy."
BUCKET = "arn:aws:s3:::bucket"


def statement(**changes: Any) -> dict[str, Any]:
    """Return a statement that permits something; None leaves a member out."""
    members = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": BUCKET} | changes
    return {name: value for name, value in members.items() if value is not None}


def policy(*statements: Any, **changes: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)} | changes


def trust(**changes: Any) -> dict[str, Any]:
    asked = {"Resource": None, "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return policy(statement(**asked | changes))


@pytest.mark.parametrize(
    "document",
    [
        policy(statement()),
        policy(statement(), Id="name"),
        policy(statement(Sid="one"), statement(Sid="two"), statement(Sid="")),
        {"Version": "2012-10-17", "Statement": statement()},
        policy(statement(Action=["s3:Get*", "*"], Resource=["*", BUCKET])),
        policy(statement(Action=None, NotAction="iam:*", Resource=None, NotResource=[BUCKET])),
        policy(statement(Resource="arn:aws-cn:s3:::bucket/${aws:username}/*")),
        policy(statement(Condition={"StringEquals": {"aws:RequestedRegion": ["us-east-1", "eu-west-1"]}})),
        policy(statement(Condition={"ForAnyValue:StringLike": {"aws:TagKeys": "a*"}, "Bool": {"aws:x": True}})),
        policy(statement(Condition={"NumericLessThanEqualsIfExists": {"s3:max-keys": 10}, "IpAddress": {}})),
    ],
)
def test_a_document_that_permits_something_is_a_policy(document: Any) -> None:
    text = json.dumps(document)
    assert require_policy(text, POLICY_QUOTA) == text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], SYNTAX),
        ({"Version": "2012-10-17"}, SYNTAX),
        (policy(), SYNTAX),
        (policy("text"), SYNTAX),
        (policy(statement(), Version="2013-10-17"), SYNTAX),
        (policy(statement(), Remark="more"), SYNTAX),
        (policy(statement(Remark="more")), SYNTAX),
        (policy(statement(Effect=None)), SYNTAX),
        (policy(statement(Effect="Maybe")), SYNTAX),
        (policy(statement(Effect="allow")), SYNTAX),
        (policy(statement(Principal="*")), "Policy document should not specify a principal."),
        (policy(statement(Action=None)), "Policy statement must contain actions."),
        (policy(statement(Action=[])), "Policy statement must contain actions."),
        (policy(statement(Resource=None)), "Policy statement must contain resources."),
        (policy(statement(Resource=[])), "Policy statement must contain resources."),
    ],
)
def test_a_malformed_policy_is_refused(document: Any, message: str) -> None:
    with pytest.raises(Fault) as caught:
        require_policy(json.dumps(document), POLICY_QUOTA)
    assert (caught.value.code, caught.value.status, caught.value.message) == ("MalformedPolicyDocument", 400, message)


def test_a_document_that_is_not_json_is_refused() -> None:
    with pytest.raises(Fault, match=SYNTAX):
        require_policy("no json", POLICY_QUOTA)
    with pytest.raises(Fault, match="This policy contains invalid Json"):
        require_trust("no json")


@pytest.mark.parametrize(
    "document",
    [
        trust(),
        trust(Principal={"AWS": ["123456789012", "*"]}, Action=["sts:AssumeRole", "sts:TagSession"]),
        trust(
            Principal="*", Action="sts:AssumeRoleWithWebIdentity", Condition={"Bool": {"aws:SecureTransport": "true"}}
        ),
        trust() | {"Version": "2008-10-17"},
        {"Statement": trust()["Statement"]},
    ],
)
def test_a_document_that_names_principals_is_a_trust_policy(document: Any) -> None:
    text = json.dumps(document)
    assert require_trust(text) == text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (trust(Principal=None), "Missing required field Principal"),
        (trust(Resource="*"), "Has prohibited field Resource"),
        (trust(Action=None), "Policy statement must contain actions."),
    ],
)
def test_a_malformed_trust_policy_is_refused(document: Any, message: str) -> None:
    with pytest.raises(Fault) as caught:
        require_trust(json.dumps(document))
    assert (caught.value.code, caught.value.message) == ("MalformedPolicyDocument", message)
