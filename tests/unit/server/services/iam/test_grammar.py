import json
from typing import Any

import pytest

from trainyard.server.services.iam.documents import POLICY_QUOTA, checked_policy, checked_trust
from trainyard.wire.fault import Fault

SYNTAX = "Syntax errors in policy."
BUCKET = "arn:aws:s3:::bucket"


def statement(**changes: Any) -> dict[str, Any]:
    """A statement that permits something; a change to None leaves a member out."""
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
def test_what_permits_is_a_policy(document: Any) -> None:
    text = json.dumps(document)
    assert checked_policy(text, POLICY_QUOTA) == text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], SYNTAX),
        ({"Version": "2012-10-17"}, SYNTAX),
        (policy(), SYNTAX),
        (policy("text"), SYNTAX),
        (policy(statement(), Version="2013-10-17"), SYNTAX),
        (policy(statement(), Id=["name"]), SYNTAX),
        (policy(statement(), Remark="more"), SYNTAX),
        (policy(statement(Remark="more")), SYNTAX),
        (policy(statement(Effect=None)), SYNTAX),
        (policy(statement(Effect="Maybe")), SYNTAX),
        (policy(statement(Sid=[])), SYNTAX),
        (policy(statement(NotAction="s3:*")), SYNTAX),
        (policy(statement(NotResource="*")), SYNTAX),
        (policy(statement(Action={})), SYNTAX),
        (policy(statement(Action=[[]])), SYNTAX),
        (policy(statement(Resource=[BUCKET, {}])), SYNTAX),
        (policy(statement(Condition=[])), SYNTAX),
        (policy(statement(Condition={"StringEquals": "a"})), SYNTAX),
        (policy(statement(Condition={"StringEquals": {"a": {}}})), SYNTAX),
        (policy(statement(Condition={"Resembles": {"a": "b"}})), SYNTAX),
        ({"Statement": statement()}, "Policy document must be version 2012-10-17 or greater."),
        (policy(statement(), Version="2008-10-17"), "Policy document must be version 2012-10-17 or greater."),
        (policy(statement(Effect="allow")), "The policy failed legacy parsing"),
        (policy(statement(Sid="a"), statement(Sid="a")), "Statement IDs (SID) in a single policy must be unique."),
        (policy(statement(Principal="*")), "Policy document should not specify a principal."),
        (policy(statement(Resource="bucket")), 'Resource bucket must be in ARN format or "*".'),
        (policy(statement(Resource="")), 'Resource  must be in ARN format or "*".'),
        (
            policy(statement(Resource="aws:s3:::bucket")),
            'Partition "s3" is not valid for resource "arn:s3:::bucket:*".',
        ),
        (policy(statement(Action=None)), "Policy statement must contain actions."),
        (policy(statement(Action=[])), "Policy statement must contain actions."),
        (
            policy(statement(Action="ListBucket", Resource=None)),
            "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.",
        ),
        (policy(statement(Action="s3:List:Bucket")), "Actions/Condition can contain only one colon."),
        (policy(statement(Action="s 3:List")), "Vendor s 3 is not valid"),
        (policy(statement(Resource=None)), "Policy statement must contain resources."),
        (policy(statement(Resource=[])), "Policy statement must contain resources."),
    ],
)
def test_what_does_not_permit_is_none(document: Any, message: str) -> None:
    with pytest.raises(Fault) as caught:
        checked_policy(json.dumps(document), POLICY_QUOTA)
    assert (caught.value.code, caught.value.status, caught.value.message) == ("MalformedPolicyDocument", 400, message)


def test_what_is_not_json_is_no_policy() -> None:
    with pytest.raises(Fault, match=SYNTAX):
        checked_policy("no json", POLICY_QUOTA)
    with pytest.raises(Fault, match="This policy contains invalid Json"):
        checked_trust("no json")


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
def test_what_trusts_is_a_trust_policy(document: Any) -> None:
    text = json.dumps(document)
    assert checked_trust(text) == text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (trust(Principal=None), "Missing required field Principal"),
        (trust(Resource="*"), "Has prohibited field Resource"),
        (trust(Action="s3:GetObject"), "AssumeRole policy may only specify STS AssumeRole actions."),
        (trust(Action=["sts:AssumeRole", "sts:Nothing"]), "AssumeRole policy may only specify STS AssumeRole actions."),
        (trust(Action=None), "Policy statement must contain actions."),
        (trust(Principal=["123456789012"]), SYNTAX),
    ],
)
def test_what_does_not_trust_is_none(document: Any, message: str) -> None:
    with pytest.raises(Fault) as caught:
        checked_trust(json.dumps(document))
    assert (caught.value.code, caught.value.message) == ("MalformedPolicyDocument", message)
