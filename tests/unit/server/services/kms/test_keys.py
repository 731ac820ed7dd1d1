import json
from datetime import timedelta

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.objects.contract import EncryptsObjects
from trainyard.wire.fault import Fault

UNKNOWN = "11111111-2222-3333-4444-555555555555"


def new_key(caller: As, **request: object) -> str:
    key_id: str = caller("kms", "CreateKey", **request)["KeyMetadata"]["KeyId"]
    return key_id


def state(caller: As, key: str) -> str:
    metadata = caller("kms", "DescribeKey", KeyId=key)["KeyMetadata"]
    assert metadata["Enabled"] == (metadata["KeyState"] == "Enabled")
    return str(metadata["KeyState"])


def refused(caller: As, operation: str, **request: object) -> Fault:
    with pytest.raises(Fault) as caught:
        caller("kms", operation, **request)
    return caught.value


def test_a_key_is_described_as_aws_describes_it(accounts: Accounts) -> None:
    anna = accounts.anna
    made = anna("kms", "CreateKey", Description="of models", Tags=[{"TagKey": "team", "TagValue": "red"}])
    key = made["KeyMetadata"]
    arn = f"arn:aws:kms:eu-west-3:{anna.account}:key/{key['KeyId']}"
    assert key == {
        "AWSAccountId": anna.account,
        "KeyId": key["KeyId"],
        "Arn": arn,
        "CreationDate": NOON,
        "Enabled": True,
        "Description": "of models",
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": "Enabled",
        "Origin": "AWS_KMS",
        "KeyManager": "CUSTOMER",
        "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "KeySpec": "SYMMETRIC_DEFAULT",
        "EncryptionAlgorithms": ["SYMMETRIC_DEFAULT"],
        "MultiRegion": False,
    }
    anna("kms", "CreateAlias", AliasName="alias/models", TargetKeyId=arn)
    for reference in (key["KeyId"], arn, "alias/models", f"arn:aws:kms:eu-west-3:{anna.account}:alias/models"):
        assert anna("kms", "DescribeKey", KeyId=reference)["KeyMetadata"] == key
    assert anna("kms", "ListKeys")["Keys"] == [{"KeyId": key["KeyId"], "KeyArn": arn}]
    assert anna("kms", "ListResourceTags", KeyId=arn)["Tags"] == [{"TagKey": "team", "TagValue": "red"}]


def test_keys_are_listed_page_by_page(accounts: Accounts) -> None:
    made = sorted(new_key(accounts.anna) for _ in range(5))
    first = accounts.anna("kms", "ListKeys", Limit=3)
    rest = accounts.anna("kms", "ListKeys", Limit=3, Marker=first["NextMarker"])
    assert (first["Truncated"], rest["Truncated"], "NextMarker" in rest) == (True, False, False)
    assert [key["KeyId"] for key in (*first["Keys"], *rest["Keys"])] == made


def test_nobody_else_sees_or_uses_a_key(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    arn = f"arn:aws:kms:eu-west-3:{anna.account}:key/{key}"
    anna("kms", "CreateAlias", AliasName="alias/mine", TargetKeyId=key)
    sealed = anna("kms", "Encrypt", KeyId=key, Plaintext=b"text")["CiphertextBlob"]
    for other in (accounts.ben, accounts.admin):
        assert other("kms", "ListKeys")["Keys"] == []
        assert [alias["AliasName"] for alias in other("kms", "ListAliases")["Aliases"]] == ["alias/aws/s3"]
        for operation in ("DescribeKey", "DisableKey", "ScheduleKeyDeletion", "GetKeyPolicy", "ListResourceTags"):
            for reference in (key, arn):
                fault = refused(other, operation, KeyId=reference)
                assert fault.code == "NotFoundException"
        # As for a key that does not exist.
        own = f"arn:aws:kms:eu-west-3:{other.account}:key/"
        assert refused(other, "DescribeKey", KeyId=key).message == f"Key '{own}{key}' does not exist"
        assert refused(other, "DescribeKey", KeyId=UNKNOWN).message == f"Key '{own}{UNKNOWN}' does not exist"
        assert refused(other, "Decrypt", CiphertextBlob=sealed).code == "InvalidCiphertextException"
        assert refused(other, "GenerateDataKey", KeyId="alias/mine", KeySpec="AES_256").code == "NotFoundException"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nonsense", "Invalid keyId 'nonsense'"),
        ("alias/none", "Alias arn:aws:kms:eu-west-3:{account}:alias/none is not found."),
    ],
)
def test_a_key_that_is_not_there_is_named_as_aws_names_it(accounts: Accounts, reference: str, message: str) -> None:
    fault = refused(accounts.anna, "DescribeKey", KeyId=reference)
    assert (fault.code, fault.message) == ("NotFoundException", message.format(account=accounts.anna.account))


def test_a_disabled_key_is_not_used(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    sealed = anna("kms", "Encrypt", KeyId=key, Plaintext=b"text")["CiphertextBlob"]
    anna("kms", "DisableKey", KeyId=key)
    assert state(anna, key) == "Disabled"
    assert refused(anna, "Encrypt", KeyId=key, Plaintext=b"text").code == "DisabledException"
    assert refused(anna, "Decrypt", CiphertextBlob=sealed).code == "DisabledException"
    anna("kms", "EnableKey", KeyId=key)
    assert anna("kms", "Decrypt", CiphertextBlob=sealed)["Plaintext"] == b"text"


@pytest.mark.parametrize("days", [1, 6, 31, 365])
def test_a_waiting_period_is_7_to_30_days(accounts: Accounts, days: int) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    fault = refused(anna, "ScheduleKeyDeletion", KeyId=key, PendingWindowInDays=days)
    message = f"PendingWindowInDays is {days}; it must be between 7 and 30."
    assert (fault.code, fault.message) == ("ValidationException", message)
    assert state(anna, key) == "Enabled"


def test_a_key_is_destroyed_when_its_waiting_period_is_over(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    anna("kms", "CreateAlias", AliasName="alias/mine", TargetKeyId=key)
    scheduled = anna("kms", "ScheduleKeyDeletion", KeyId=key, PendingWindowInDays=7)
    assert (scheduled["KeyState"], scheduled["DeletionDate"]) == ("PendingDeletion", NOON + timedelta(days=7))
    for operation in ("EnableKey", "DisableKey", "ScheduleKeyDeletion"):
        fault = refused(anna, operation, KeyId=key)
        assert (fault.code, "is pending deletion" in fault.message) == ("KMSInvalidStateException", True)
    anna("kms", "CancelKeyDeletion", KeyId=key)
    assert state(anna, key) == "Disabled"
    assert refused(anna, "CancelKeyDeletion", KeyId=key).code == "KMSInvalidStateException"
    anna("kms", "ScheduleKeyDeletion", KeyId=key)
    objects = accounts.yard.objects
    assert isinstance(objects, EncryptsObjects)
    assert objects.keyring.destroy_due(now=NOON + timedelta(days=30)) == 1
    assert refused(anna, "DescribeKey", KeyId=key).code == "NotFoundException"
    assert refused(anna, "DescribeKey", KeyId="alias/mine").code == "NotFoundException"


@pytest.mark.parametrize(
    "request_",
    [
        {"KeySpec": "RSA_2048", "KeyUsage": "SIGN_VERIFY"},
        {"MultiRegion": True},
        {"Origin": "EXTERNAL"},
        {"Policy": "{}"},
    ],
    ids=lambda request: next(iter(request)),
)
def test_keys_that_the_yard_does_not_have_are_refused(accounts: Accounts, request_: dict[str, object]) -> None:
    assert refused(accounts.anna, "CreateKey", **request_).code == "UnsupportedOperationException"


def test_the_policy_says_what_holds(accounts: Accounts) -> None:
    key = new_key(accounts.anna)
    policy = json.loads(accounts.anna("kms", "GetKeyPolicy", KeyId=key, PolicyName="default")["Policy"])
    [statement] = policy["Statement"]
    assert statement["Principal"] == {"AWS": f"arn:aws:iam::{accounts.anna.account}:root"}
    assert accounts.anna("kms", "GetKeyRotationStatus", KeyId=key)["KeyRotationEnabled"] is False
    assert refused(accounts.anna, "EnableKeyRotation", KeyId=key).code == "UnsupportedOperationException"


def test_the_key_of_s3_exists_on_demand_and_is_not_its_users_to_change(accounts: Accounts) -> None:
    anna = accounts.anna
    [alias] = anna("kms", "ListAliases")["Aliases"]
    assert (alias["AliasName"], "TargetKeyId" in alias) == ("alias/aws/s3", False)
    key = anna("kms", "DescribeKey", KeyId="alias/aws/s3")["KeyMetadata"]
    assert key["KeyManager"] == "AWS"
    [alias] = anna("kms", "ListAliases")["Aliases"]
    assert alias["TargetKeyId"] == key["KeyId"]
    assert refused(anna, "DisableKey", KeyId=key["KeyId"]).code == "AccessDeniedException"
    assert refused(anna, "Encrypt", KeyId="alias/aws/s3", Plaintext=b"x").code == "AccessDeniedException"
    assert refused(anna, "DeleteAlias", AliasName="alias/aws/s3").code == "NotAuthorizedException"


def test_tags_are_added_and_removed(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    anna("kms", "TagResource", KeyId=key, Tags=[{"TagKey": name, "TagValue": "1"} for name in "ab"])
    anna("kms", "UntagResource", KeyId=key, TagKeys=["a"])
    assert anna("kms", "ListResourceTags", KeyId=key)["Tags"] == [{"TagKey": "b", "TagValue": "1"}]
    assert refused(anna, "TagResource", KeyId=key, Tags=[{"TagKey": "aws:x", "TagValue": ""}]).code == "TagException"


def test_an_alias_moves_from_key_to_key(accounts: Accounts) -> None:
    anna, first, second = accounts.anna, new_key(accounts.anna), new_key(accounts.anna)
    anna("kms", "CreateAlias", AliasName="alias/current", TargetKeyId=first)
    fault = refused(anna, "CreateAlias", AliasName="alias/current", TargetKeyId=second)
    assert fault.code == "AlreadyExistsException"
    later = anna.at(NOON + timedelta(hours=1))
    later("kms", "UpdateAlias", AliasName="alias/current", TargetKeyId=second)
    [alias] = anna("kms", "ListAliases", KeyId=second)["Aliases"]
    assert (alias["CreationDate"], alias["LastUpdatedDate"]) == (NOON, later.now)
    assert anna("kms", "ListAliases", KeyId=first)["Aliases"] == []
    anna("kms", "DeleteAlias", AliasName="alias/current")
    for operation, request in [("DeleteAlias", {}), ("UpdateAlias", {"TargetKeyId": first})]:
        assert refused(anna, operation, AliasName="alias/current", **request).code == "NotFoundException"
    assert refused(anna, "CreateAlias", AliasName="alias/a b", TargetKeyId=first).code in (
        "InvalidAliasNameException",
        "ValidationException",
    )
    assert refused(anna, "CreateAlias", AliasName="current", TargetKeyId=first).code == "ValidationException"
