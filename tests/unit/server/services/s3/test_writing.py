from hashlib import md5

import pytest

from tests.unit.server.services.s3.front import Body, Front, refused_put
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm, ObjectStore
from trainyard.wire.fault import Fault


def test_what_is_put_is_got_back(s3: Front) -> None:
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


def test_a_put_replaces_what_was_there(s3: Front) -> None:
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


def test_a_body_of_many_megabytes_is_kept_whole(s3: Front) -> None:
    pieces = [bytes([number]) * 300_000 for number in range(25)]
    size = sum(map(len, pieces))
    crc = digest_of(ChecksumAlgorithm.CRC32, pieces)
    s3("PutObject", Bucket="data", Key="key", Body=Body(pieces), ContentLength=size, ChecksumCRC32=crc)
    assert s3.get("data", "key")["Body"] == b"".join(pieces)
