from base64 import b64decode
from typing import Any

import pytest

from tests.unit.server.services.s3.front import Front
from tests.unit.server.services.s3.multipart_upload import PART, TAIL, Upload, multipart_etag
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.wire.fault import Fault


def test_parts_become_one_object(s3: Front, two_parts: Upload) -> None:
    assert s3.keys("data") == []
    completed = two_parts.complete()
    assert completed == {
        "Location": "http://yard.test:7000/data/big",
        "Bucket": "data",
        "Key": "big",
        "ETag": multipart_etag(PART, TAIL),
    }
    got = s3.get("data", "big")
    assert (got["Body"], got["ETag"]) == (PART + TAIL, completed["ETag"])
    assert s3("ListMultipartUploads", Bucket="data")["Uploads"] == []


def test_parts_may_come_in_any_order_and_twice(s3: Front, upload: Upload) -> None:
    upload.put(7, b"replaced")
    upload.put(7, TAIL)
    upload.put(3, PART)
    upload.named = [upload.named[2], upload.named[1]]
    upload.complete()
    assert s3.get("data", "big")["Body"] == PART + TAIL


@pytest.mark.parametrize(
    ("algorithm", "wanted", "told"),
    [
        ("CRC32", None, "COMPOSITE"),
        ("CRC32C", "FULL_OBJECT", "FULL_OBJECT"),
        ("CRC64NVME", None, "FULL_OBJECT"),
        ("SHA1", "COMPOSITE", "COMPOSITE"),
        ("SHA256", None, "COMPOSITE"),
    ],
)
def test_parts_are_summed_as_the_upload_says(s3: Front, algorithm: str, wanted: str | None, told: str) -> None:
    options = {"ChecksumType": wanted} if wanted else {}
    upload = Upload(s3, ChecksumAlgorithm=algorithm, **options)
    assert (upload.created["ChecksumAlgorithm"], upload.created["ChecksumType"]) == (algorithm, told)
    member, kind = f"Checksum{algorithm}", ChecksumAlgorithm(algorithm)
    first, second = upload.put_summed(1, PART), upload.put_summed(2, TAIL)
    assert (first[member], second[member]) == (digest_of(kind, [PART]), digest_of(kind, [TAIL]))
    completed = upload.complete()
    if told == "FULL_OBJECT":
        assert completed[member] == digest_of(kind, [PART, TAIL])
    else:
        assert completed[member].endswith("-2")
    head = s3("HeadObject", Bucket="data", Key="big", ChecksumMode="ENABLED")
    assert (head[member], head["ChecksumType"]) == (completed[member], told)


def test_the_checksum_of_the_whole_is_verified(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    upload.put(1, TAIL)
    wrong, right = digest_of(ChecksumAlgorithm.CRC32, [b"x"]), digest_of(ChecksumAlgorithm.CRC32, [TAIL])
    assert upload.refused_completion(ChecksumCRC32=wrong).code == "BadDigest"
    assert upload.refused_completion(ChecksumSHA1="qvTGHdzF6KLavt4PO0gs2a6pQ00=").code == "InvalidRequest"
    assert upload.refused_completion(ChecksumType="COMPOSITE").code == "InvalidRequest"
    assert upload.complete(ChecksumCRC32=right, ChecksumType="FULL_OBJECT")["ChecksumCRC32"] == right


@pytest.mark.parametrize("count", ["", "-1"])
def test_a_composite_checksum_is_announced_with_its_count_or_without(s3: Front, count: str) -> None:
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    upload.put_summed(1, TAIL)
    digest = ChecksumAlgorithm.SHA256
    wrong = digest_of(digest, [TAIL])
    assert upload.refused_completion(ChecksumSHA256=f"{wrong}{count}").code == "BadDigest"
    right = digest_of(digest, [b64decode(wrong)])
    assert upload.refused_completion(ChecksumSHA256=f"{right}-2").code == "InvalidRequest"
    assert upload.complete(ChecksumSHA256=f"{right}{count}")["ChecksumSHA256"] == f"{right}-1"


def test_a_composite_checksum_needs_that_of_each_part_again(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="SHA1")
    upload.put_summed(1, PART)
    upload.put_summed(2, TAIL)
    del upload.named[1]["ChecksumSHA1"]
    fault = upload.refused_completion()
    assert (fault.code, "part 2" in fault.message) == ("InvalidRequest", True)


def test_a_checksum_of_the_whole_does_not_need_those_of_the_parts(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType="full_object")
    upload.put(1, PART)
    upload.put(2, TAIL)
    named = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in upload.named]
    completed = upload.complete(MultipartUpload={"Parts": named})
    assert completed["ChecksumCRC32"] == digest_of(ChecksumAlgorithm.CRC32, [PART, TAIL])


def test_a_completion_names_at_least_one_part(upload: Upload) -> None:
    upload.put(1, TAIL)
    incomplete: list[dict[str, Any] | None] = [
        None,
        {},
        {"Parts": []},
        {"Parts": [{"PartNumber": 1}]},
        {"Parts": [{"ETag": '"x"'}]},
    ]
    for empty in incomplete:
        assert upload.refused_completion(MultipartUpload=empty).code == "MalformedXML"


def test_a_completion_names_the_parts_in_order(two_parts: Upload) -> None:
    first, second = two_parts.named
    assert two_parts.refused_completion(MultipartUpload={"Parts": [second, first]}).code == "InvalidPartOrder"
    assert two_parts.refused_completion(MultipartUpload={"Parts": [first, first]}).code == "InvalidPartOrder"


def test_a_completion_names_parts_that_are_there_and_unchanged(two_parts: Upload) -> None:
    first, second = two_parts.named
    absent, changed = {**second, "PartNumber": 3}, {**second, "ETag": first["ETag"]}
    fault = two_parts.refused_completion(MultipartUpload={"Parts": [first, absent]})
    assert (fault.code, fault.members) == (
        "InvalidPart",
        {"UploadId": two_parts.created["UploadId"], "PartNumber": "3", "ETag": second["ETag"].strip('"')},
    )
    assert two_parts.refused_completion(MultipartUpload={"Parts": [first, changed]}).code == "InvalidPart"
    two_parts.complete()


def test_only_the_last_part_may_be_small(upload: Upload) -> None:
    upload.put(1, TAIL)
    upload.put(2, TAIL)
    fault = upload.refused_completion()
    etag = upload.named[0]["ETag"].strip('"')
    assert (fault.code, fault.members) == (
        "EntityTooSmall",
        {"ProposedSize": str(len(TAIL)), "MinSizeAllowed": str(5 * 1024**2), "PartNumber": "1", "ETag": etag},
    )


def test_the_number_of_a_part_is_at_least_one(upload: Upload) -> None:
    upload.put(1, TAIL)
    named = {"Parts": [{**upload.named[0], "PartNumber": -4}]}
    assert upload.refused_completion(MultipartUpload=named).code == "InvalidArgument"


def test_the_size_of_the_whole_may_be_announced(two_parts: Upload) -> None:
    assert two_parts.refused_completion(MpuObjectSize=7).code == "InvalidRequest"
    assert two_parts.complete(MpuObjectSize=len(PART + TAIL))["Key"] == "big"


def test_a_completion_may_demand_that_nothing_is_there(s3: Front, upload: Upload) -> None:
    upload.put(1, TAIL)
    s3.put("data", "big", b"there before")
    with pytest.raises(Fault) as caught:
        upload.complete(IfNoneMatch="*")
    assert (caught.value.status, caught.value.members) == (412, {"Condition": "If-None-Match"})
    assert s3.get("data", "big")["Body"] == b"there before"
    s3("DeleteObject", Bucket="data", Key="big")
    assert upload.complete(IfNoneMatch="*")["Key"] == "big"


def test_a_completion_asked_for_again_is_answered_again(two_parts: Upload) -> None:
    assert two_parts.complete() == two_parts.complete()


def test_completing_an_unknown_upload_is_not_found(s3: Front, two_parts: Upload) -> None:
    two_parts.created["UploadId"] = "never-begun"
    fault = two_parts.refused_completion()
    assert (fault.code, fault.status, fault.members) == ("NoSuchUpload", 404, {"UploadId": "never-begun"})
    s3.put("data", "big", b"something else")
    with pytest.raises(Fault) as caught:
        two_parts.complete()
    assert caught.value.code == "NoSuchUpload"
