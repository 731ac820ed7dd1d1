from base64 import b64encode
from hashlib import md5

import pytest

from tests.unit.server.services.s3.front import Front
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.wire.fault import Fault


def test_a_deleted_object_is_gone(s3: Front) -> None:
    s3.put("data", "key")
    assert s3("DeleteObject", Bucket="data", Key="key") == {}
    assert s3.keys("data") == []


def test_deleting_what_is_not_there_is_no_error(s3: Front) -> None:
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


def test_a_batch_deletes_what_is_there_and_what_is_not(s3: Front) -> None:
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
