"""Server-side encryption, as the headers of S3 ask for it and answer it."""

from dataclasses import replace

import pytest

from tests.unit.server.services.s3.front import OWNER, STRANGER, Front
from trainyard.objects.encryption.keys import EncryptionKey, KeyState
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.wire.fault import Fault

BODY = b"secret " * 100_000
KMS = {"ServerSideEncryption": "aws:kms"}


@pytest.fixture
def key(s3: Front) -> EncryptionKey:
    return new_key(s3, OWNER)


def new_key(s3: Front, account: str) -> EncryptionKey:
    assert isinstance(s3.yard.objects, FilesystemObjects)
    return s3.yard.objects.keyring.create(account, region=s3.region, now=s3.now)


def disable(s3: Front, key: EncryptionKey) -> None:
    assert isinstance(s3.yard.objects, FilesystemObjects)
    s3.yard.objects.keyring.change(key.account, key.id, lambda key: replace(key, state=KeyState.DISABLED))


def refused(s3: Front, operation: str, **shape: object) -> Fault:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="data", **shape)
    return caught.value


def configuration(**default: str) -> dict[str, object]:
    rule = {"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}
    return {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}


def test_answers_name_the_key_by_its_arn(s3: Front, key: EncryptionKey) -> None:
    expected = {**KMS, "SSEKMSKeyId": key.arn, "BucketKeyEnabled": True}
    put = s3.put("data", "key", BODY, **KMS, SSEKMSKeyId=key.id, BucketKeyEnabled=True)
    got = s3.get("data", "key")
    head = s3("HeadObject", Bucket="data", Key="key")
    for answer in (put, got, head):
        assert {name: answer[name] for name in expected} == expected
    assert got["Body"] == BODY
    ranged = s3.get("data", "key", Range="bytes=65530-65545")
    assert ranged["Body"] == BODY[65530:65546]


def test_the_default_key_is_that_of_s3(s3: Front) -> None:
    first, second = (s3.put("data", name, b"x", **KMS)["SSEKMSKeyId"] for name in "ab")
    assert first == second
    assert first.startswith("arn:aws:kms:")


def test_a_disabled_key_is_named_by_what_fails(s3: Front, key: EncryptionKey) -> None:
    s3.put("data", "key", BODY, **KMS, SSEKMSKeyId=key.arn)
    disable(s3, key)
    fault = refused(s3, "GetObject", Key="key")
    assert (fault.code, fault.status, fault.message) == ("KMS.DisabledException", 400, f"{key.arn} is disabled.")
    assert refused(s3, "PutObject", Key="new", **KMS, SSEKMSKeyId=key.arn).code == "KMS.DisabledException"
    assert s3("HeadObject", Bucket="data", Key="key")["ContentLength"] == len(BODY)
    s3("DeleteObject", Bucket="data", Key="key")


def test_a_key_of_another_account_does_not_exist(s3: Front) -> None:
    theirs = new_key(s3, STRANGER)
    for reference in (theirs.id, theirs.arn):
        fault = refused(s3, "PutObject", Key="key", **KMS, SSEKMSKeyId=reference)
        assert (fault.code, fault.message) == ("KMS.NotFoundException", f"Key '{reference}' does not exist")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"SSEKMSKeyId": "alias/mine"}, "InvalidArgument"),
        ({"ServerSideEncryption": "AES256", "SSEKMSKeyId": "alias/mine"}, "InvalidArgument"),
        ({"ServerSideEncryption": "aws:kms:dsse"}, "NotImplemented"),
        ({"ServerSideEncryption": "aws:kms", "SSEKMSEncryptionContext": "e30="}, "NotImplemented"),
    ],
)
def test_what_cannot_be_had_is_refused(s3: Front, asked: dict[str, str], code: str) -> None:
    assert refused(s3, "PutObject", Key="key", **asked).code == code


def test_a_bucket_encrypts_what_asks_for_nothing(s3: Front, key: EncryptionKey) -> None:
    asked = configuration(SSEAlgorithm="aws:kms", KMSMasterKeyID=key.arn)
    assert s3("PutBucketEncryption", Bucket="data", **asked) == {}
    assert s3("GetBucketEncryption", Bucket="data") == asked
    put = s3.put("data", "key", b"x")
    assert (put["ServerSideEncryption"], put["SSEKMSKeyId"], put["BucketKeyEnabled"]) == ("aws:kms", key.arn, True)
    assert s3.put("data", "key", b"x", ServerSideEncryption="AES256")["ServerSideEncryption"] == "AES256"
    s3("DeleteBucketEncryption", Bucket="data")
    assert "ServerSideEncryption" not in s3.put("data", "key", b"x")
    assert refused(s3, "GetBucketEncryption").code == "ServerSideEncryptionConfigurationNotFoundError"


def test_a_bucket_is_not_given_a_key_that_nothing_could_use(s3: Front, key: EncryptionKey) -> None:
    disable(s3, key)
    for reference, code in [(key.arn, "KMS.DisabledException"), ("alias/unknown", "KMS.NotFoundException")]:
        asked = configuration(SSEAlgorithm="aws:kms", KMSMasterKeyID=reference)
        assert refused(s3, "PutBucketEncryption", **asked).code == code
    mixed = configuration(SSEAlgorithm="AES256", KMSMasterKeyID=key.arn)
    assert refused(s3, "PutBucketEncryption", **mixed).code == "InvalidArgument"
    empty: dict[str, object] = {"ServerSideEncryptionConfiguration": {"Rules": []}}
    assert refused(s3, "PutBucketEncryption", **empty).code == "MalformedXML"
