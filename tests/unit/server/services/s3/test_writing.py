from base64 import b64encode
from hashlib import md5
from typing import Any

import pytest

from tests.unit.server.services.s3.front import OWNER, STRANGER, Body, Front
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm, ObjectStore
from trainyard.wire.fault import Fault


def content_md5(data: bytes) -> str:
    return b64encode(md5(data).digest()).decode()


def refused(s3: Front, *, key: str = "key", body: Any = b"hello", **shape: Any) -> Fault:
    """The fault of a put that must leave nothing behind."""
    with pytest.raises(Fault) as caught:
        s3("PutObject", Bucket="data", Key=key, Body=body, **shape)
    assert s3.keys("data") == []
    return caught.value


def test_what_is_put_is_got_back(s3: Front) -> None:
    assert s3.put("data", "key", b"hello")["ETag"] == f'"{md5(b"hello").hexdigest()}"'
    got = s3.get("data", "key")
    assert (got["Body"], got["ContentLength"], got["ContentType"]) == (b"hello", 5, "binary/octet-stream")


def test_an_empty_object_may_be_put(s3: Front) -> None:
    s3.put("data", "key")
    assert s3.get("data", "key")["Body"] == b""


def test_a_put_replaces_what_was_there(s3: Front) -> None:
    s3.put("data", "key", b"old", Metadata={"old": "yes"})
    s3.put("data", "key", b"new")
    got = s3.get("data", "key")
    assert got["Body"] == b"new"
    assert "Metadata" not in got


def test_everything_said_of_an_object_comes_back(s3: Front) -> None:
    said = {
        "CacheControl": "no-cache",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "ContentType": "text/plain",
        "Expires": "when the next one comes",
        "Metadata": {"epoch": "7", "note": "ümlaut"},
        "StorageClass": "STANDARD_IA",
        "WebsiteRedirectLocation": "/elsewhere",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/training",
        "BucketKeyEnabled": True,
    }
    put = s3.put("data", "key", b"hello", Tagging="a=1&b=two%20words", **said)
    assert put["ServerSideEncryption"] == "aws:kms"
    assert put["SSEKMSKeyId"] == "alias/training"
    assert put["BucketKeyEnabled"] is True
    head = s3("HeadObject", Bucket="data", Key="key")
    assert {name: head[name] for name in said} == said
    assert head["TagCount"] == 2
    assert s3("GetObjectTagging", Bucket="data", Key="key")["TagSet"] == [
        {"Key": "a", "Value": "1"},
        {"Key": "b", "Value": "two words"},
    ]


def test_the_standard_storage_class_is_not_told(s3: Front) -> None:
    s3.put("data", "key", StorageClass="STANDARD")
    assert "StorageClass" not in s3("HeadObject", Bucket="data", Key="key")


@pytest.mark.parametrize(("sent", "kept"), [("aws-chunked", None), ("aws-chunked,gzip", "gzip"), ("gzip", "gzip")])
def test_aws_chunked_is_no_encoding_of_the_object(s3: Front, sent: str, kept: str | None) -> None:
    s3.put("data", "key", ContentEncoding=sent)
    assert s3("HeadObject", Bucket="data", Key="key").get("ContentEncoding") == kept


@pytest.mark.parametrize("algorithm", list(ChecksumAlgorithm))
def test_a_checksum_in_a_header_is_verified_and_kept(s3: Front, algorithm: ChecksumAlgorithm) -> None:
    value, member = digest_of(algorithm, [b"hello"]), f"Checksum{algorithm}"
    put = s3.put("data", "key", b"hello", ChecksumAlgorithm=algorithm.value, **{member: value})
    assert (put[member], put["ChecksumType"]) == (value, "FULL_OBJECT")
    head = s3("HeadObject", Bucket="data", Key="key", ChecksumMode="ENABLED")
    assert (head[member], head["ChecksumType"]) == (value, "FULL_OBJECT")
    s3("DeleteObject", Bucket="data", Key="key")
    assert refused(s3, body=b"other", **{member: value}).code == "BadDigest"


@pytest.mark.parametrize("algorithm", list(ChecksumAlgorithm))
def test_a_checksum_in_the_trailer_is_verified_and_kept(s3: Front, algorithm: ChecksumAlgorithm) -> None:
    header = f"x-amz-checksum-{algorithm.lower()}"
    value = digest_of(algorithm, [b"hello"])
    sent: dict[str, Any] = {"headers": {"x-amz-trailer": header}, "ContentLength": 5}
    put = s3("PutObject", Bucket="data", Key="key", Body=Body([b"hel", b"lo"], {header: value}), **sent)
    assert put[f"Checksum{algorithm}"] == value
    s3("DeleteObject", Bucket="data", Key="key")
    assert refused(s3, body=Body([b"other"], {header: value}), **sent).code == "BadDigest"


def test_an_announced_trailer_must_come(s3: Front) -> None:
    headers = {"x-amz-trailer": "x-amz-checksum-crc32"}
    fault = refused(s3, body=Body([b"hello"]), headers=headers, ContentLength=5)
    assert fault.code == "MalformedTrailerError"


def test_a_content_md5_is_verified(s3: Front) -> None:
    assert refused(s3, ContentMD5=content_md5(b"other")).code == "BadDigest"
    s3.put("data", "key", b"hello", ContentMD5=content_md5(b"hello"))
    assert s3.keys("data") == ["key"]


@pytest.mark.parametrize("value", ["nonsense", "", "aGVsbG8=", "ü"])
def test_a_content_md5_that_is_none_is_invalid(s3: Front, value: str) -> None:
    assert refused(s3, ContentMD5=value).code == "InvalidDigest"


@pytest.mark.parametrize("value", ["nonsense!", "aGVsbG8=", ""])
def test_a_checksum_that_is_none_is_invalid(s3: Front, value: str) -> None:
    assert refused(s3, ChecksumCRC32=value).code == "InvalidRequest"


def test_only_one_checksum_may_be_given(s3: Front) -> None:
    fault = refused(s3, ChecksumCRC32="NhCmhg==", ChecksumSHA1="qvTGHdzF6KLavt4PO0gs2a6pQ00=")
    assert fault.code == "InvalidRequest"


def test_the_declared_algorithm_must_be_that_of_the_checksum(s3: Front) -> None:
    assert refused(s3, ChecksumAlgorithm="SHA1", ChecksumCRC32="NhCmhg==").code == "InvalidRequest"
    assert refused(s3, ChecksumAlgorithm="CRC32").code == "InvalidRequest"


@pytest.mark.parametrize("extra", [{"ChecksumSHA512": "x"}, {"headers": {"x-amz-trailer": "x-amz-checksum-xxhash64"}}])
def test_a_checksum_that_is_not_served_is_refused(s3: Front, extra: dict[str, Any]) -> None:
    fault = refused(s3, **extra)
    assert (fault.code, fault.status) == ("NotImplemented", 501)


def test_if_none_match_keeps_what_is_there(s3: Front) -> None:
    s3.put("data", "key", b"first", IfNoneMatch="*")
    with pytest.raises(Fault) as caught:
        s3.put("data", "key", b"second", IfNoneMatch="*")
    assert (caught.value.code, caught.value.status) == ("PreconditionFailed", 412)
    assert caught.value.members == {"Condition": "If-None-Match"}
    assert s3.get("data", "key")["Body"] == b"first"


def test_if_match_replaces_only_the_named_version(s3: Front) -> None:
    etag = s3.put("data", "key", b"first")["ETag"]
    s3.put("data", "key", b"second", IfMatch=etag)
    with pytest.raises(Fault) as caught:
        s3.put("data", "key", b"third", IfMatch=etag)
    assert caught.value.members == {"Condition": "If-Match"}
    assert s3.get("data", "key")["Body"] == b"second"


def test_if_match_on_a_missing_key_is_not_found(s3: Front) -> None:
    assert refused(s3, IfMatch='"abc"').code == "NoSuchKey"


@pytest.mark.parametrize(
    "conditions", [{"IfNoneMatch": '"abc"'}, {"IfMatch": "*"}, {"IfMatch": '"abc"', "IfNoneMatch": "*"}]
)
def test_conditions_that_s3_does_not_know_for_writes_are_refused(s3: Front, conditions: dict[str, str]) -> None:
    assert refused(s3, **conditions).code == "NotImplemented"


@pytest.mark.parametrize(
    "option",
    [
        {"ACL": "public-read"},
        {"GrantFullControl": "id=abc"},
        {"SSECustomerAlgorithm": "AES256"},
        {"ObjectLockMode": "GOVERNANCE"},
        {"ObjectLockLegalHoldStatus": "ON"},
        {"WriteOffsetBytes": 3},
    ],
)
def test_an_option_that_is_not_served_is_refused_by_name(s3: Front, option: dict[str, Any]) -> None:
    fault = refused(s3, **option)
    assert (fault.code, fault.status) == ("NotImplemented", 501)
    assert next(iter(option)) in fault.message or "public-read" in fault.message


@pytest.mark.parametrize("acl", ["private", "bucket-owner-full-control"])
def test_an_acl_that_says_what_is_so_anyway_is_accepted(s3: Front, acl: str) -> None:
    s3.put("data", "key", b"hello", ACL=acl)
    assert s3.keys("data") == ["key"]


def test_metadata_over_two_kilobytes_is_too_large(s3: Front) -> None:
    s3.put("data", "fits", Metadata={"k": "v" * 2047})
    with pytest.raises(Fault) as caught:
        s3.put("data", "not", Metadata={"k": "v" * 2048})
    assert caught.value.code == "MetadataTooLarge"
    assert caught.value.members == {"Size": "2049", "MaxSizeAllowed": "2048"}


def test_a_length_must_be_announced(s3: Front) -> None:
    body = Body([b"hello"])
    fault = refused(s3, body=body)
    assert (fault.code, fault.status, body.is_read) == ("MissingContentLength", 411, False)


@pytest.mark.parametrize("announced", [4, 6])
def test_a_body_has_the_length_that_was_announced(s3: Front, announced: int) -> None:
    assert refused(s3, body=Body([b"hello"]), ContentLength=announced).code == "IncompleteBody"


def test_a_body_over_five_gibibytes_is_refused_unread(s3: Front) -> None:
    body = Body([b"hello"])
    fault = refused(s3, body=body, ContentLength=5 * 1024**3 + 1)
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
    assert refused(s3, body=broken, ContentLength=len(b"".join(pieces)) + 1).code == "RequestTimeout"


def test_a_body_of_many_megabytes_is_kept_whole(s3: Front) -> None:
    pieces = [bytes([number]) * 300_000 for number in range(25)]
    size = sum(map(len, pieces))
    crc = digest_of(ChecksumAlgorithm.CRC32, pieces)
    s3("PutObject", Bucket="data", Key="key", Body=Body(pieces), ContentLength=size, ChecksumCRC32=crc)
    assert s3.get("data", "key")["Body"] == b"".join(pieces)


@pytest.mark.parametrize(
    "key",
    [
        "a/../b",
        "..",
        ".",
        "/",
        "//",
        "a//b",
        " lead",
        "trail ",
        "ümlaut",
        "😀",
        "a\nb\r",
        "\x01\x7f",
        "%41",
        "a+b c",
        "k" * 1024,
    ],
)
def test_almost_any_text_is_a_key(s3: Front, key: str) -> None:
    s3.put("data", key, b"hello")
    assert s3.get("data", key)["Body"] == b"hello"
    assert s3.keys("data") == [key]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("k" * 1025, "KeyTooLongError"),
        ("ü" * 513, "KeyTooLongError"),
        ("a\0b", "InvalidArgument"),
        ("\udcff", "InvalidURI"),
    ],
)
def test_what_cannot_be_a_key_is_refused(s3: Front, key: str, code: str) -> None:
    assert refused(s3, key=key).code == code


def test_the_owner_may_be_demanded(s3: Front) -> None:
    assert refused(s3, ExpectedBucketOwner=STRANGER).code == "AccessDenied"
    s3.put("data", "key", ExpectedBucketOwner=OWNER)
    assert s3.keys("data") == ["key"]


@pytest.mark.parametrize("header", ["a", "a=1&a=2", "=1", f"{'k' * 129}=1", f"k={'v' * 257}", "%ff=1", "aws:x=1"])
def test_a_tagging_header_that_is_wrong_is_refused(s3: Front, header: str) -> None:
    assert refused(s3, Tagging=header).code in ("InvalidTag", "InvalidArgument")


def test_an_object_has_at_most_ten_tags(s3: Front) -> None:
    assert refused(s3, Tagging="&".join(f"k{number}=v" for number in range(11))).code == "BadRequest"
