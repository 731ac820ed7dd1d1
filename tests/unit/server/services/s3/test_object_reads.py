import asyncio
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import pytest

from tests.unit.server.services.s3.front import NOON, Front, read
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, ObjectInfo
from trainyard.server.services.s3.byte_ranges import ByteRange
from trainyard.server.services.s3.object_reads import MAX_IN_MEMORY_BYTES, ChunkedBody
from trainyard.wire.fault import Fault
from trainyard.wire.http import FileSlice

LARGE = bytes(range(256)) * (MAX_IN_MEMORY_BYTES // 256 + 10)


def test_get_and_head_return_the_same_members(s3: Front, digits: str) -> None:
    got, head = s3.get("data", "digits"), s3("HeadObject", Bucket="data", Key="digits")
    assert got.pop("Body") == b"0123456789"
    assert got == head
    assert head == {
        "AcceptRanges": "bytes",
        "LastModified": NOON,
        "ContentLength": 10,
        "ETag": digits,
        "ContentType": "binary/octet-stream",
    }


def test_a_large_object_is_sent_from_its_file(s3: Front) -> None:
    s3("PutObject", Bucket="data", Key="large", Body=LARGE)
    body = s3("GetObject", Bucket="data", Key="large")["Body"]
    assert isinstance(body, FileSlice)
    assert read(body) == LARGE
    part = s3("GetObject", Bucket="data", Key="large", Range=f"bytes=7-{MAX_IN_MEMORY_BYTES + 9}")["Body"]
    assert isinstance(part, FileSlice)
    assert read(part) == LARGE[7 : MAX_IN_MEMORY_BYTES + 10]


def test_an_open_read_is_not_touched_by_a_delete(s3: Front) -> None:
    s3("PutObject", Bucket="data", Key="large", Body=LARGE)
    body = s3("GetObject", Bucket="data", Key="large")["Body"]
    s3("DeleteObject", Bucket="data", Key="large")
    assert read(body) == LARGE


class RemoteReader:
    """A reader without a local file, like that of a remote store."""

    def __init__(self, data: bytes) -> None:
        where = Location(BucketRef("111122223333", "data"), "key")
        self.info = ObjectInfo(where, len(data), "etag", NOON, Attributes())
        self.data = data
        self.is_open = True

    def read(self, offset: int, size: int) -> bytes:
        assert self.is_open, "a closed reader is not read"
        return self.data[offset : offset + size]

    def close(self) -> None:
        self.is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def test_an_object_without_a_local_file_is_read_in_chunks() -> None:
    reader = RemoteReader(bytes(range(256)) * 10_000)
    assert read(ChunkedBody(reader, ByteRange(5, 2_500_000))) == reader.data[5:2_500_005]
    assert not reader.is_open


def test_bites_that_nobody_takes_are_closed_too() -> None:
    reader = RemoteReader(b"hello")
    asyncio.run(ChunkedBody(reader, ByteRange(0, 5)).aclose())
    assert not reader.is_open


def test_a_reader_may_ask_for_other_headers(s3: Front, digits: str) -> None:
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    got = s3.get(
        "data", "digits", ResponseContentType="text/csv", ResponseCacheControl="no-store", ResponseExpires=moment
    )
    assert (got["ContentType"], got["CacheControl"], got["Expires"]) == ("text/csv", "no-store", moment)
    assert s3.get("data", "digits")["ContentType"] == "binary/octet-stream"


def test_a_checksum_is_returned_only_for_the_whole_object_and_on_request(s3: Front) -> None:
    s3.put("data", "summed", b"hello", ChecksumCRC32="NhCmhg==")
    assert s3.get("data", "summed", ChecksumMode="ENABLED")["ChecksumCRC32"] == "NhCmhg=="
    assert "ChecksumCRC32" not in s3.get("data", "summed")
    assert "ChecksumCRC32" not in s3.get("data", "summed", ChecksumMode="ENABLED", Range="bytes=0-1")


@pytest.mark.parametrize("operation", ["GetObject", "HeadObject", "GetObjectAttributes"])
def test_a_missing_key_and_a_missing_bucket_have_different_errors(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as no_key:
        s3(operation, Bucket="data", Key="nothing", ObjectAttributes=["ETag"])
    assert (no_key.value.code, no_key.value.status) == ("NoSuchKey", 404)
    assert no_key.value.members == {"Key": "nothing"}
    with pytest.raises(Fault) as no_bucket:
        s3(operation, Bucket="nowhere", Key="nothing", ObjectAttributes=["ETag"])
    assert no_bucket.value.code == "NoSuchBucket"


def test_the_null_version_is_the_only_one(s3: Front, digits: str) -> None:
    assert s3.get("data", "digits", VersionId="null")["Body"] == b"0123456789"
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", VersionId="abc")
    assert (caught.value.code, caught.value.status) == ("InvalidArgument", 400)


def test_a_key_of_the_customer_is_refused(s3: Front, digits: str) -> None:
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", SSECustomerAlgorithm="AES256")
    assert caught.value.code == "NotImplemented"


def test_only_requested_attributes_are_returned(s3: Front) -> None:
    s3.put("data", "summed", b"hello", ChecksumCRC32="NhCmhg==", StorageClass="ONEZONE_IA")
    wanted = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    told = s3("GetObjectAttributes", Bucket="data", Key="summed", ObjectAttributes=wanted)
    assert told == {
        "LastModified": NOON,
        "ETag": "5d41402abc4b2a76b9719d911017c592",
        "Checksum": {"ChecksumCRC32": "NhCmhg==", "ChecksumType": "FULL_OBJECT"},
        "ObjectParts": None,
        "StorageClass": "ONEZONE_IA",
        "ObjectSize": 5,
    }
    told = s3("GetObjectAttributes", Bucket="data", Key="summed", ObjectAttributes=["ObjectSize"])
    assert told == {"LastModified": NOON, "ObjectSize": 5}


def test_an_attribute_that_no_object_has_is_refused(s3: Front, digits: str) -> None:
    with pytest.raises(Fault) as caught:
        s3("GetObjectAttributes", Bucket="data", Key="digits", ObjectAttributes=["ETag", "Colour"])
    assert (caught.value.code, caught.value.members["ArgumentValue"]) == ("InvalidArgument", "Colour")
