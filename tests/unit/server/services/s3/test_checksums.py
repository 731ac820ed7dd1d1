from base64 import b64encode
from hashlib import md5
from typing import Any

import pytest

from tests.unit.server.services.s3.front import Body, Front, refused_put
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm


def content_md5(data: bytes) -> str:
    return b64encode(md5(data).digest()).decode()


@pytest.mark.parametrize("algorithm", list(ChecksumAlgorithm))
def test_a_checksum_in_a_header_is_verified_and_stored(s3: Front, algorithm: ChecksumAlgorithm) -> None:
    value, member = digest_of(algorithm, [b"hello"]), f"Checksum{algorithm}"
    put = s3.put("data", "key", b"hello", ChecksumAlgorithm=algorithm.value, **{member: value})
    assert (put[member], put["ChecksumType"]) == (value, "FULL_OBJECT")
    head = s3("HeadObject", Bucket="data", Key="key", ChecksumMode="ENABLED")
    assert (head[member], head["ChecksumType"]) == (value, "FULL_OBJECT")
    s3("DeleteObject", Bucket="data", Key="key")
    assert refused_put(s3, body=b"other", **{member: value}).code == "BadDigest"


@pytest.mark.parametrize("algorithm", list(ChecksumAlgorithm))
def test_a_checksum_in_the_trailer_is_verified_and_stored(s3: Front, algorithm: ChecksumAlgorithm) -> None:
    header = f"x-amz-checksum-{algorithm.lower()}"
    value = digest_of(algorithm, [b"hello"])
    sent: dict[str, Any] = {"headers": {"x-amz-trailer": header}, "ContentLength": 5}
    put = s3("PutObject", Bucket="data", Key="key", Body=Body([b"hel", b"lo"], {header: value}), **sent)
    assert put[f"Checksum{algorithm}"] == value
    s3("DeleteObject", Bucket="data", Key="key")
    assert refused_put(s3, body=Body([b"other"], {header: value}), **sent).code == "BadDigest"


def test_an_announced_trailer_must_come(s3: Front) -> None:
    headers = {"x-amz-trailer": "x-amz-checksum-crc32"}
    fault = refused_put(s3, body=Body([b"hello"]), headers=headers, ContentLength=5)
    assert fault.code == "MalformedTrailerError"


def test_a_content_md5_is_verified(s3: Front) -> None:
    assert refused_put(s3, ContentMD5=content_md5(b"other")).code == "BadDigest"
    s3.put("data", "key", b"hello", ContentMD5=content_md5(b"hello"))
    assert s3.keys("data") == ["key"]


@pytest.mark.parametrize("value", ["nonsense", "", "aGVsbG8=", "ü"])
def test_an_invalid_content_md5_is_refused(s3: Front, value: str) -> None:
    assert refused_put(s3, ContentMD5=value).code == "InvalidDigest"


@pytest.mark.parametrize("value", ["nonsense!", "aGVsbG8=", ""])
def test_an_invalid_checksum_is_refused(s3: Front, value: str) -> None:
    assert refused_put(s3, ChecksumCRC32=value).code == "InvalidRequest"


def test_only_one_checksum_may_be_given(s3: Front) -> None:
    fault = refused_put(s3, ChecksumCRC32="NhCmhg==", ChecksumSHA1="qvTGHdzF6KLavt4PO0gs2a6pQ00=")
    assert fault.code == "InvalidRequest"


def test_the_declared_algorithm_must_be_that_of_the_checksum(s3: Front) -> None:
    assert refused_put(s3, ChecksumAlgorithm="SHA1", ChecksumCRC32="NhCmhg==").code == "InvalidRequest"
    assert refused_put(s3, ChecksumAlgorithm="CRC32").code == "InvalidRequest"


@pytest.mark.parametrize("extra", [{"ChecksumSHA512": "x"}, {"headers": {"x-amz-trailer": "x-amz-checksum-xxhash64"}}])
def test_a_checksum_that_is_not_served_is_refused_put(s3: Front, extra: dict[str, Any]) -> None:
    fault = refused_put(s3, **extra)
    assert (fault.code, fault.status) == ("NotImplemented", 501)
