"""What belongs to one account is not there for another, whatever is asked."""

from typing import Any

import pytest

from tests.unit.server.services.s3.front import STRANGER, Front
from trainyard.server.services.s3 import OPERATIONS
from trainyard.wire.fault import Fault

# What an operation needs beside the bucket, the key and the upload, which all get.
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


@pytest.fixture
def upload_id(s3: Front) -> str:
    """The upload in progress of an owner who also has a tagged object."""
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


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - WITHOUT_A_FOREIGN_BUCKET))
def test_a_foreign_bucket_is_not_there(s3: Front, stranger: Front, upload_id: str, operation: str) -> None:
    before = state(s3, upload_id)
    shape = {"Key": "secret", "UploadId": upload_id, "PartNumber": 1, **EXTRAS.get(operation, {})}
    with pytest.raises(Fault) as caught:
        stranger(operation, Bucket="data", **shape)
    assert (caught.value.code, caught.value.status) == ("NoSuchBucket", 404)
    assert state(s3, upload_id) == before


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - WITHOUT_A_FOREIGN_BUCKET))
def test_naming_the_foreign_owner_does_not_help(s3: Front, stranger: Front, upload_id: str, operation: str) -> None:
    shape = {"Key": "secret", "UploadId": upload_id, "PartNumber": 1, **EXTRAS.get(operation, {})}
    with pytest.raises(Fault) as caught:
        stranger(operation, Bucket="data", ExpectedBucketOwner=s3.caller.account, **shape)
    assert caught.value.code == "NoSuchBucket"


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - WITHOUT_A_FOREIGN_BUCKET))
def test_every_operation_heeds_the_owner_that_it_is_told(
    s3: Front, administrator: Front, upload_id: str, operation: str
) -> None:
    before = state(s3, upload_id)
    shape = {"Key": "secret", "UploadId": upload_id, "PartNumber": 1, **EXTRAS.get(operation, {})}
    for front in (s3, administrator):
        with pytest.raises(Fault) as caught:
            front(operation, Bucket="data", ExpectedBucketOwner=STRANGER, **shape)
        assert (caught.value.code, caught.value.status) == ("AccessDenied", 403)
    assert state(s3, upload_id) == before


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


def test_an_administrator_reaches_what_belongs_to_others(s3: Front, administrator: Front, upload_id: str) -> None:
    assert administrator.get("data", "secret")["Body"] == b"plans"
    listed = administrator("ListParts", Bucket="data", Key="secret", UploadId=upload_id)
    assert [part["PartNumber"] for part in listed["Parts"]] == [1]
    administrator("CopyObject", Bucket="data", Key="copy", CopySource="data/secret")
    administrator("AbortMultipartUpload", Bucket="data", Key="secret", UploadId=upload_id)
    administrator("DeleteObject", Bucket="data", Key="secret")
    administrator("PutObject", Bucket="data", Key="left by the administrator", Body=b"hello")
    assert s3.keys("data") == ["copy", "left by the administrator"]
