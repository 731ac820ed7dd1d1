import pytest

from tests.unit.server.services.s3.front import Front
from trainyard.wire.fault import Fault


def test_all_attributes_of_an_object_are_returned(s3: Front) -> None:
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
        "BucketKeyEnabled": True,
    }
    put = s3.put("data", "key", b"hello", Tagging="a=1&b=two%20words", **said)
    assert put["ServerSideEncryption"] == "aws:kms"
    said["SSEKMSKeyId"] = put["SSEKMSKeyId"]
    assert put["BucketKeyEnabled"] is True
    head = s3("HeadObject", Bucket="data", Key="key")
    assert {name: head[name] for name in said} == said
    assert head["TagCount"] == 2
    assert s3("GetObjectTagging", Bucket="data", Key="key")["TagSet"] == [
        {"Key": "a", "Value": "1"},
        {"Key": "b", "Value": "two words"},
    ]


def test_the_standard_storage_class_is_omitted(s3: Front) -> None:
    s3.put("data", "key", StorageClass="STANDARD")
    assert "StorageClass" not in s3("HeadObject", Bucket="data", Key="key")


@pytest.mark.parametrize(("sent", "kept"), [("aws-chunked", None), ("aws-chunked,gzip", "gzip"), ("gzip", "gzip")])
def test_aws_chunked_is_not_the_encoding_of_the_object(s3: Front, sent: str, kept: str | None) -> None:
    s3.put("data", "key", ContentEncoding=sent)
    assert s3("HeadObject", Bucket="data", Key="key").get("ContentEncoding") == kept


def test_metadata_over_two_kilobytes_is_too_large(s3: Front) -> None:
    s3.put("data", "fits", Metadata={"k": "v" * 2047})
    with pytest.raises(Fault) as caught:
        s3.put("data", "not", Metadata={"k": "v" * 2048})
    assert caught.value.code == "MetadataTooLarge"
    assert caught.value.members == {"Size": "2049", "MaxSizeAllowed": "2048"}


def test_a_header_that_is_empty_says_nothing(s3: Front) -> None:
    s3.put("data", "key", b"hello", ContentType="", CacheControl="")
    head = s3("HeadObject", Bucket="data", Key="key")
    assert (head["ContentType"], "CacheControl" in head) == ("binary/octet-stream", False)


def test_stored_metadata_that_no_header_can_carry_is_counted_and_breaks_no_answer(s3: Front) -> None:
    s3.put("data", "key", b"hello", Metadata={"a\r\nb": "c", "two words": "d", "good": "1"})
    for operation in ("HeadObject", "GetObject"):
        told = s3(operation, Bucket="data", Key="key")
        assert told["Metadata"] == {"good": "1"}
        assert told["MissingMeta"] == 2
