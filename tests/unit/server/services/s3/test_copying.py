from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, STRANGER, Front
from trainyard.objects.contract import ObjectStore, PreconditionFailed
from trainyard.wire.fault import Fault


@pytest.fixture
def source(s3: Front) -> str:
    put = s3.put(
        "data",
        "source",
        b"hello",
        ContentType="text/plain",
        CacheControl="no-cache",
        Metadata={"epoch": "7"},
        Tagging="team=vision",
        StorageClass="STANDARD_IA",
        ServerSideEncryption="AES256",
    )
    return str(put["ETag"])


def copy(s3: Front, *, key: str = "target", source: str = "data/source", **shape: Any) -> dict[str, Any]:
    return s3("CopyObject", Bucket="data", Key=key, CopySource=source, **shape)


def refused(s3: Front, **shape: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        copy(s3, **shape)
    assert "target" not in s3.keys("data")
    return caught.value


def test_a_copy_takes_bytes_and_description_along(s3: Front, source: str) -> None:
    s3.now = NOON + timedelta(hours=1)
    result = copy(s3)["CopyObjectResult"]
    assert (result["ETag"], result["LastModified"]) == (source, s3.now)
    got = s3.get("data", "target")
    assert (got["Body"], got["ContentType"], got["CacheControl"]) == (b"hello", "text/plain", "no-cache")
    assert (got["Metadata"], got["TagCount"]) == ({"epoch": "7"}, 1)


def test_how_an_object_is_kept_is_decided_by_the_copy(s3: Front, source: str) -> None:
    copied = copy(s3, ServerSideEncryption="aws:kms", StorageClass="GLACIER_IR")
    assert copied["ServerSideEncryption"] == "aws:kms"
    head = s3("HeadObject", Bucket="data", Key="target")
    assert (head["ServerSideEncryption"], head["StorageClass"]) == ("aws:kms", "GLACIER_IR")
    copy(s3)
    head = s3("HeadObject", Bucket="data", Key="target")
    assert "ServerSideEncryption" not in head
    assert "StorageClass" not in head


def test_metadata_may_be_replaced(s3: Front, source: str) -> None:
    copy(s3, MetadataDirective="REPLACE", Metadata={"step": "9"}, ContentLanguage="de")
    head = s3("HeadObject", Bucket="data", Key="target")
    assert (head["Metadata"], head["ContentType"], head["ContentLanguage"]) == (
        {"step": "9"},
        "binary/octet-stream",
        "de",
    )
    assert "CacheControl" not in head
    assert head["TagCount"] == 1


def test_tags_may_be_replaced(s3: Front, source: str) -> None:
    copy(s3, TaggingDirective="REPLACE", Tagging="a=1&b=2")
    assert len(s3("GetObjectTagging", Bucket="data", Key="target")["TagSet"]) == 2
    copy(s3, TaggingDirective="REPLACE")
    assert s3("GetObjectTagging", Bucket="data", Key="target")["TagSet"] == []
    assert s3("HeadObject", Bucket="data", Key="target")["Metadata"] == {"epoch": "7"}


def test_a_copy_may_be_summed_anew(s3: Front, source: str) -> None:
    assert refused(s3, ChecksumAlgorithm="SHA512").code == "NotImplemented"
    result = copy(s3, ChecksumAlgorithm="CRC32")["CopyObjectResult"]
    assert (result["ChecksumCRC32"], result["ChecksumType"]) == ("NhCmhg==", "FULL_OBJECT")


def test_a_copy_to_itself_must_change_something(s3: Front, source: str) -> None:
    with pytest.raises(Fault) as caught:
        copy(s3, key="source")
    assert caught.value.code == "InvalidRequest"
    copy(s3, key="source", MetadataDirective="REPLACE", Metadata={"new": "yes"})
    copy(s3, key="source", StorageClass="STANDARD")
    got = s3.get("data", "source")
    assert (got["Body"], got["Metadata"]) == (b"hello", {"new": "yes"})


@pytest.mark.parametrize(
    "conditions",
    [
        {"CopySourceIfMatch": '"other"'},
        {"CopySourceIfNoneMatch": "*"},
        {"CopySourceIfModifiedSince": NOON},
        {"CopySourceIfUnmodifiedSince": NOON - timedelta(days=1)},
    ],
)
def test_a_condition_on_the_source_that_fails_is_a_412(s3: Front, source: str, conditions: dict[str, Any]) -> None:
    fault = refused(s3, **conditions)
    assert fault.status == 412
    assert fault.members["Condition"].startswith("x-amz-copy-source-If-")


def test_conditions_on_the_source_that_hold_let_the_copy_go_ahead(s3: Front, source: str) -> None:
    copy(s3, CopySourceIfMatch=source, CopySourceIfUnmodifiedSince=NOON - timedelta(days=1))
    copy(s3, key="second", CopySourceIfNoneMatch='"other"', CopySourceIfModifiedSince=NOON + timedelta(days=1))
    assert s3.keys("data") == ["second", "source", "target"]


def test_a_condition_on_the_target_is_one_of_the_write(s3: Front, source: str) -> None:
    copy(s3, IfNoneMatch="*")
    with pytest.raises(Fault) as caught:
        copy(s3, IfNoneMatch="*")
    assert (caught.value.status, caught.value.members) == (412, {"Condition": "If-None-Match"})
    copy(s3, IfMatch=source)


def test_the_owner_of_the_source_may_be_demanded(s3: Front, source: str) -> None:
    assert refused(s3, ExpectedSourceBucketOwner=STRANGER).code == "AccessDenied"
    copy(s3, ExpectedSourceBucketOwner=OWNER)
    assert s3.keys("data") == ["source", "target"]


def test_an_administrator_copies_between_accounts(s3: Front, source: str, administrator: Front) -> None:
    administrator("CreateBucket", Bucket="mine")
    administrator("CopyObject", Bucket="mine", Key="copied", CopySource="data/source")
    assert administrator.get("mine", "copied")["Body"] == b"hello"


def test_a_source_replaced_meanwhile_is_copied_as_it_is_then(
    s3: Front, source: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_copy = objects.copy

    def replaced_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(objects, "copy", whole_copy)
        s3.put("data", "source", b"newer", Metadata={"epoch": "8"})
        return whole_copy(*arguments, **options)

    # The race is played by replacing the source between the look at it and the copy.
    monkeypatch.setattr(objects, "copy", replaced_first)
    copy(s3)
    got = s3.get("data", "target")
    assert (got["Body"], got["Metadata"]) == (b"newer", {"epoch": "8"})


def test_a_source_replaced_all_the_time_is_given_up(
    s3: Front, source: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(range(100))

    def always_replaced(*_: Any, **__: Any) -> Any:
        s3.put("data", "source", f"version {next(versions)}".encode())
        raise PreconditionFailed("the source has another ETag")

    monkeypatch.setattr(objects, "copy", always_replaced)
    fault = refused(s3)
    assert (fault.code, fault.status) == ("ServiceUnavailable", 503)
