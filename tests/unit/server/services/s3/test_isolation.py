"""No operation shows one account's buckets or objects to another."""

from typing import Any

import pytest

from tests.unit.server.services.s3.front import STRANGER, Front
from trainyard.server.services.s3 import OPERATIONS
from trainyard.wire.fault import Fault

# Members that an operation needs besides the bucket, the key and the upload.
EXTRAS: dict[str, dict[str, Any]] = {
    "PutObject": {"Body": b"mine now"},
    "UploadPart": {"Body": b"mine now"},
    "PutBucketTagging": {"Tagging": {"TagSet": [{"Key": "mine", "Value": "now"}]}},
    "PutObjectTagging": {"Tagging": {"TagSet": [{"Key": "mine", "Value": "now"}]}},
    "DeleteObjects": {"Delete": {"Objects": [{"Key": "secret"}]}},
    "GetObjectAttributes": {"ObjectAttributes": ["ETag"]},
    "CopyObject": {"CopySource": "data/secret"},
    "UploadPartCopy": {"CopySource": "data/secret"},
    "CompleteMultipartUpload": {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}},
}
WITHOUT_A_FOREIGN_BUCKET = {"ListBuckets", "CreateBucket"}
ON_A_FOREIGN_BUCKET = sorted(OPERATIONS.keys() - WITHOUT_A_FOREIGN_BUCKET)


@pytest.fixture
def upload_id(s3: Front) -> str:
    """Return an upload in progress of an owner who also has a tagged object."""
    s3.put("data", "secret", b"plans", Tagging="team=owner")
    s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": [{"Key": "team", "Value": "owner"}]})
    upload_id = str(s3("CreateMultipartUpload", Bucket="data", Key="secret")["UploadId"])
    s3("UploadPart", Bucket="data", Key="secret", UploadId=upload_id, PartNumber=1, Body=b"more plans")
    return upload_id


def state(s3: Front, upload_id: str) -> list[Any]:
    upload = {"Bucket": "data", "Key": "secret", "UploadId": upload_id}
    return [
        s3("ListObjectVersions", Bucket="data"),
        s3.get("data", "secret"),
        s3("GetObjectTagging", Bucket="data", Key="secret"),
        s3("GetBucketTagging", Bucket="data"),
        s3("ListMultipartUploads", Bucket="data"),
        s3("ListParts", **upload),
    ]


def refusal(front: Front, operation: str, upload_id: str, **owner: str) -> tuple[str, int] | None:
    """Return the code and status with which an operation on the bucket is refused, or None if it is not."""
    shape = {"Key": "secret", "UploadId": upload_id, "PartNumber": 1, **EXTRAS.get(operation, {})}
    try:
        front(operation, Bucket="data", **owner, **shape)
    except Fault as fault:
        return fault.code, fault.status
    return None


def test_no_operation_finds_a_foreign_bucket(s3: Front, stranger: Front, upload_id: str) -> None:
    before = state(s3, upload_id)
    outcomes = {
        operation: (refusal(stranger, operation, upload_id), state(s3, upload_id) == before)
        for operation in ON_A_FOREIGN_BUCKET
    }
    assert outcomes == dict.fromkeys(ON_A_FOREIGN_BUCKET, (("NoSuchBucket", 404), True))


def test_naming_the_foreign_owner_does_not_help(s3: Front, stranger: Front, upload_id: str) -> None:
    owner = s3.caller.account
    refusals = {
        operation: refusal(stranger, operation, upload_id, ExpectedBucketOwner=owner)
        for operation in ON_A_FOREIGN_BUCKET
    }
    assert refusals == dict.fromkeys(ON_A_FOREIGN_BUCKET, ("NoSuchBucket", 404))


def test_every_operation_checks_the_expected_owner(s3: Front, administrator: Front, upload_id: str) -> None:
    before = state(s3, upload_id)
    outcomes = {
        operation: (
            *(refusal(front, operation, upload_id, ExpectedBucketOwner=STRANGER) for front in (s3, administrator)),
            state(s3, upload_id) == before,
        )
        for operation in ON_A_FOREIGN_BUCKET
    }
    denied = ("AccessDenied", 403)
    assert outcomes == dict.fromkeys(ON_A_FOREIGN_BUCKET, (denied, denied, True))


@pytest.mark.parametrize("operation", ["CopyObject", "UploadPartCopy"])
def test_a_foreign_source_is_not_there(s3: Front, stranger: Front, upload_id: str, operation: str) -> None:
    stranger("CreateBucket", Bucket="loot")
    own_upload = stranger("CreateMultipartUpload", Bucket="loot", Key="copy")["UploadId"]
    shape = {"UploadId": own_upload, "PartNumber": 1, "CopySource": "data/secret"}
    for owner in ({}, {"ExpectedSourceBucketOwner": s3.caller.account}):
        with pytest.raises(Fault) as caught:
            stranger(operation, Bucket="loot", Key="copy", **shape, **owner)
        assert (caught.value.code, caught.value.members) == ("NoSuchBucket", {"BucketName": "data"})
    assert stranger.keys("loot") == []


def test_a_foreign_upload_is_not_there_in_a_bucket_of_the_same_name(s3: Front, stranger: Front, upload_id: str) -> None:
    stranger("CreateBucket", Bucket="data")
    before = state(s3, upload_id)
    for operation in ("UploadPart", "ListParts", "AbortMultipartUpload", "CompleteMultipartUpload"):
        shape = {"Key": "secret", "UploadId": upload_id, "PartNumber": 1, **EXTRAS.get(operation, {})}
        with pytest.raises(Fault) as caught:
            stranger(operation, Bucket="data", **shape)
        assert caught.value.code == "NoSuchUpload"
    assert state(s3, upload_id) == before


def test_a_stranger_s_listing_is_empty(s3: Front, stranger: Front) -> None:
    assert stranger("ListBuckets")["Buckets"] == []


def test_an_administrator_reaches_resources_of_others(s3: Front, administrator: Front, upload_id: str) -> None:
    assert administrator.get("data", "secret")["Body"] == b"plans"
    listed = administrator("ListParts", Bucket="data", Key="secret", UploadId=upload_id)
    assert [part["PartNumber"] for part in listed["Parts"]] == [1]
    administrator("CopyObject", Bucket="data", Key="copy", CopySource="data/secret")
    administrator("AbortMultipartUpload", Bucket="data", Key="secret", UploadId=upload_id)
    administrator("DeleteObject", Bucket="data", Key="secret")
    administrator("PutObject", Bucket="data", Key="left by the administrator", Body=b"hello")
    assert s3.keys("data") == ["copy", "left by the administrator"]
