from base64 import b64encode
from datetime import timedelta
from hashlib import md5
from typing import Any

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, STRANGER, Body, Front, refused_put
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm, ObjectStore, PreconditionFailed
from trainyard.wire.fault import Fault


def test_a_put_object_can_be_read(s3: Front) -> None:
    assert s3.put("data", "key", b"hello")["ETag"] == f'"{md5(b"hello").hexdigest()}"'
    got = s3.get("data", "key")
    assert (got["Body"], got["ContentLength"], got["ContentType"]) == (b"hello", 5, "binary/octet-stream")


def test_an_object_without_a_checksum_gets_the_one_that_s3_would_count(s3: Front) -> None:
    value = digest_of(ChecksumAlgorithm.CRC64NVME, [b"hello"])
    put = s3.put("data", "key", b"hello")
    assert (put["ChecksumCRC64NVME"], put["ChecksumType"]) == (value, "FULL_OBJECT")
    assert s3.get("data", "key", ChecksumMode="ENABLED")["ChecksumCRC64NVME"] == value
    assert "ChecksumCRC64NVME" not in s3.get("data", "key")


def test_an_empty_object_may_be_put(s3: Front) -> None:
    s3.put("data", "key")
    assert s3.get("data", "key")["Body"] == b""


def test_a_put_replaces_the_object(s3: Front) -> None:
    s3.put("data", "key", b"old", Metadata={"old": "yes"})
    s3.put("data", "key", b"new")
    got = s3.get("data", "key")
    assert got["Body"] == b"new"
    assert "Metadata" not in got


def test_a_length_must_be_announced(s3: Front) -> None:
    body = Body([b"hello"])
    fault = refused_put(s3, body=body)
    assert (fault.code, fault.status, body.is_read) == ("MissingContentLength", 411, False)


@pytest.mark.parametrize("announced", [4, 6])
def test_a_body_has_the_length_that_was_announced(s3: Front, announced: int) -> None:
    assert refused_put(s3, body=Body([b"hello"]), ContentLength=announced).code == "IncompleteBody"


def test_a_body_over_five_gibibytes_is_refused_unread(s3: Front) -> None:
    body = Body([b"hello"])
    fault = refused_put(s3, body=body, ContentLength=5 * 1024**3 + 1)
    assert (fault.code, fault.members["MaxSizeAllowed"]) == ("EntityTooLarge", str(5 * 1024**3))
    assert not body.is_read


def test_a_large_body_for_a_missing_bucket_is_refused_unread(s3: Front) -> None:
    body = Body([b"x" * 1024] * 2048)
    with pytest.raises(Fault) as caught:
        s3("PutObject", Bucket="nothing", Key="key", Body=body, ContentLength=2 * 1024**2)
    assert caught.value.code == "NoSuchBucket"
    assert not body.is_read


@pytest.mark.parametrize("pieces", [[b"x" * 1000], [b"x" * 2**19] * 5])
def test_a_body_that_breaks_off_leaves_nothing(s3: Front, objects: ObjectStore, pieces: list[bytes]) -> None:
    broken = Body(pieces, breaks_with=Fault("RequestTimeout", "The client closed the connection."))
    assert refused_put(s3, body=broken, ContentLength=len(b"".join(pieces)) + 1).code == "RequestTimeout"


def test_a_body_of_many_megabytes_is_stored_in_full(s3: Front) -> None:
    pieces = [bytes([number]) * 300_000 for number in range(25)]
    size = sum(map(len, pieces))
    crc = digest_of(ChecksumAlgorithm.CRC32, pieces)
    s3("PutObject", Bucket="data", Key="key", Body=Body(pieces), ContentLength=size, ChecksumCRC32=crc)
    assert s3.get("data", "key")["Body"] == b"".join(pieces)


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


def test_the_copy_decides_how_its_object_is_stored(s3: Front, source: str) -> None:
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


def test_a_copy_can_get_a_new_checksum(s3: Front, source: str) -> None:
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

    # Simulate the race: replace the source between the check and the copy.
    monkeypatch.setattr(objects, "copy", replaced_first)
    copy(s3)
    got = s3.get("data", "target")
    assert (got["Body"], got["Metadata"]) == (b"newer", {"epoch": "8"})


def test_a_copy_fails_when_its_source_is_replaced_again_and_again(
    s3: Front, source: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(range(100))

    def always_replaced(*_: Any, **__: Any) -> Any:
        s3.put("data", "source", f"version {next(versions)}".encode())
        raise PreconditionFailed("the source has another ETag")

    monkeypatch.setattr(objects, "copy", always_replaced)
    fault = refused(s3)
    assert (fault.code, fault.status) == ("ServiceUnavailable", 503)


def test_a_deleted_object_is_gone(s3: Front) -> None:
    s3.put("data", "key")
    assert s3("DeleteObject", Bucket="data", Key="key") == {}
    assert s3.keys("data") == []


def test_deleting_a_missing_object_succeeds(s3: Front) -> None:
    assert s3("DeleteObject", Bucket="data", Key="key", VersionId="null") == {}


def test_deleting_from_a_missing_bucket_is(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("DeleteObject", Bucket="nothing", Key="key")
    assert caught.value.code == "NoSuchBucket"


def test_a_version_that_never_was_is_not_deleted(s3: Front) -> None:
    s3.put("data", "key")
    with pytest.raises(Fault) as caught:
        s3("DeleteObject", Bucket="data", Key="key", VersionId="abc")
    assert (caught.value.code, caught.value.members["ArgumentName"]) == ("InvalidArgument", "versionId")
    assert s3.keys("data") == ["key"]


def test_a_delete_may_demand_the_etag(s3: Front) -> None:
    etag = s3.put("data", "key", b"hello")["ETag"]
    with pytest.raises(Fault) as caught:
        s3("DeleteObject", Bucket="data", Key="key", IfMatch='"other"')
    assert (caught.value.status, caught.value.members) == (412, {"Condition": "If-Match"})
    assert s3.keys("data") == ["key"]
    s3("DeleteObject", Bucket="data", Key="key", IfMatch=etag)
    assert s3.keys("data") == []


@pytest.mark.parametrize("etag", ["*", '"abc"'])
def test_a_delete_that_demands_an_object_needs_one(s3: Front, etag: str) -> None:
    with pytest.raises(Fault) as caught:
        s3("DeleteObject", Bucket="data", Key="key", IfMatch=etag)
    assert caught.value.code == "NoSuchKey"
    s3.put("data", "key")
    s3("DeleteObject", Bucket="data", Key="key", IfMatch="*")
    assert s3.keys("data") == []


def test_a_condition_of_directory_buckets_is_refused(s3: Front) -> None:
    s3.put("data", "key")
    with pytest.raises(Fault) as caught:
        s3("DeleteObject", Bucket="data", Key="key", IfMatchSize=7)
    assert caught.value.code == "NotImplemented"
    assert s3.keys("data") == ["key"]


def test_a_batch_deletes_existing_and_missing_keys(s3: Front) -> None:
    for key in ("a", "b", "a/../b", "\x01", "kept"):
        s3.put("data", key)
    wanted = ["a", "b", "a/../b", "\x01", "absent"]
    answer = s3("DeleteObjects", Bucket="data", Delete={"Objects": [{"Key": key} for key in wanted]})
    assert [entry["Key"] for entry in answer["Deleted"]] == wanted
    assert answer["Errors"] == []
    assert s3.keys("data") == ["kept"]


def test_a_quiet_batch_tells_errors_only(s3: Front) -> None:
    s3.put("data", "a")
    entries = [{"Key": "a"}, {"Key": "k" * 1025}]
    answer = s3("DeleteObjects", Bucket="data", Delete={"Objects": entries, "Quiet": True})
    assert answer["Deleted"] == []
    assert [(entry["Key"], entry["Code"]) for entry in answer["Errors"]] == [("k" * 1025, "KeyTooLongError")]
    assert s3.keys("data") == []


def test_one_bad_key_does_not_spoil_the_batch(s3: Front) -> None:
    etag = s3.put("data", "same", b"hello")["ETag"]
    for key in ("a", "changed", "versioned", "sized"):
        s3.put("data", key)
    entries = [
        {"Key": "a", "VersionId": "null"},
        {"Key": "same", "ETag": etag},
        {"Key": "changed", "ETag": etag},
        {"Key": "absent", "ETag": etag},
        {"Key": "versioned", "VersionId": "abc"},
        {"Key": "sized", "Size": 0},
    ]
    answer = s3("DeleteObjects", Bucket="data", Delete={"Objects": entries})
    assert [entry["Key"] for entry in answer["Deleted"]] == ["a", "same"]
    assert [(entry["Key"], entry["Code"]) for entry in answer["Errors"]] == [
        ("changed", "PreconditionFailed"),
        ("absent", "NoSuchKey"),
        ("versioned", "NoSuchVersion"),
        ("sized", "NotImplemented"),
    ]
    assert s3.keys("data") == ["changed", "sized", "versioned"]


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_has_one_to_a_thousand_keys(s3: Front, count: int) -> None:
    with pytest.raises(Fault) as caught:
        s3("DeleteObjects", Bucket="data", Delete={"Objects": [{"Key": str(number)} for number in range(count)]})
    assert caught.value.code == "MalformedXML"


def test_a_thousand_keys_go_at_once(s3: Front) -> None:
    s3.put("data", "7")
    answer = s3("DeleteObjects", Bucket="data", Delete={"Objects": [{"Key": str(number)} for number in range(1000)]})
    assert len(answer["Deleted"]) == 1000
    assert s3.keys("data") == []


def test_a_batch_on_a_missing_bucket_is_not_found(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("DeleteObjects", Bucket="nothing", Delete={"Objects": [{"Key": "a", "ETag": "x"}]})
    assert caught.value.code == "NoSuchBucket"


def test_the_digests_of_a_batch_are_verified(s3: Front) -> None:
    s3.put("data", "a")
    s3.document = b"<Delete/>"
    right = [
        {"content-md5": b64encode(md5(s3.document).digest()).decode()},
        {"x-amz-checksum-crc32c": digest_of(ChecksumAlgorithm.CRC32C, [s3.document])},
    ]
    wrong = [
        ({"content-md5": b64encode(md5(b"other").digest()).decode()}, "BadDigest"),
        ({"content-md5": "nonsense"}, "InvalidDigest"),
        ({"x-amz-checksum-sha256": digest_of(ChecksumAlgorithm.SHA256, [b"other"])}, "BadDigest"),
    ]
    for headers, code in wrong:
        with pytest.raises(Fault) as caught:
            s3("DeleteObjects", Bucket="data", Delete={"Objects": [{"Key": "a"}]}, headers=headers)
        assert caught.value.code == code
        assert s3.keys("data") == ["a"]
    for headers in right:
        s3("DeleteObjects", Bucket="data", Delete={"Objects": [{"Key": "a"}]}, headers=headers)
    assert s3.keys("data") == []
