from base64 import b64encode
from hashlib import md5

import pytest

from tests.unit.server.services.s3.front import NOON, Body, Front, read
from tests.unit.server.services.s3.uploading import PART, TAIL, Upload, multipart_etag
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.wire.fault import Fault


def test_a_part_is_read_by_its_number(s3: Front, two_parts: Upload) -> None:
    two_parts.complete()
    second = s3.get("data", "big", PartNumber=2)
    assert (second["Body"], second["PartsCount"]) == (TAIL, 2)
    assert second["ContentRange"] == f"bytes {len(PART)}-{len(PART + TAIL) - 1}/{len(PART + TAIL)}"
    assert s3("HeadObject", Bucket="data", Key="big", PartNumber=1)["ContentLength"] == len(PART)
    assert "PartsCount" not in s3("HeadObject", Bucket="data", Key="big")
    with pytest.raises(Fault) as caught:
        s3.get("data", "big", PartNumber=3)
    assert caught.value.members == {"PartNumberRequested": "3", "ActualPartCount": "2"}


@pytest.mark.parametrize("number", [0, -3, 10_001])
def test_a_part_that_no_object_has_cannot_be_read(s3: Front, digits: str, number: int) -> None:
    for operation in ("GetObject", "HeadObject"):
        with pytest.raises(Fault) as caught:
            s3(operation, Bucket="data", Key="digits", PartNumber=number)
        assert (caught.value.code, caught.value.status) == ("InvalidArgument", 400)


def test_a_part_is_verified(upload: Upload) -> None:
    wrong = digest_of(ChecksumAlgorithm.CRC32, [b"x"])
    assert upload.refusal("UploadPart", PartNumber=1, Body=TAIL, ChecksumCRC32=wrong).code == "BadDigest"
    md5_of_other = b64encode(md5(b"x").digest()).decode()
    assert upload.refusal("UploadPart", PartNumber=1, Body=TAIL, ContentMD5=md5_of_other).code == "BadDigest"
    assert upload("ListParts")["Parts"] == []


def test_a_part_is_summed_by_the_trailer(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="CRC32")
    value = digest_of(ChecksumAlgorithm.CRC32, [TAIL])
    body = Body([TAIL], {"x-amz-checksum-crc32": value})
    put = upload(
        "UploadPart",
        PartNumber=1,
        Body=body,
        ContentLength=len(TAIL),
        headers={"x-amz-trailer": "x-amz-checksum-crc32"},
    )
    assert put["ChecksumCRC32"] == value


def test_a_part_with_another_algorithm_than_its_upload_is_refused(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    for shape in ({"ChecksumCRC32": "NhCmhg=="}, {}):
        assert upload.refusal("UploadPart", PartNumber=1, Body=TAIL, **shape).code == "InvalidRequest"


def test_a_part_may_be_summed_though_its_upload_is_not(upload: Upload) -> None:
    value = digest_of(ChecksumAlgorithm.CRC32, [TAIL])
    assert upload.put(1, TAIL, ChecksumCRC32=value)["ChecksumCRC32"] == value
    assert upload.complete()["ETag"] == multipart_etag(TAIL)


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_the_number_of_a_part_is_between_1_and_10000(upload: Upload, number: int) -> None:
    fault = upload.refusal("UploadPart", PartNumber=number, Body=TAIL)
    assert (fault.code, fault.members["ArgumentName"]) == ("InvalidArgument", "partNumber")


def test_a_part_that_breaks_off_leaves_nothing(upload: Upload) -> None:
    broken = Body([PART], breaks_with=Fault("RequestTimeout", "The client closed the connection."))
    fault = upload.refusal("UploadPart", PartNumber=1, Body=broken, ContentLength=2 * len(PART))
    assert fault.code == "RequestTimeout"
    assert upload("ListParts")["Parts"] == []


def test_a_part_may_be_copied(s3: Front, upload: Upload) -> None:
    s3.put("data", "source", PART)
    whole = upload("UploadPartCopy", PartNumber=1, CopySource="data/source")
    assert whole["CopyPartResult"]["ETag"] == f'"{md5(PART).hexdigest()}"'
    assert whole["CopyPartResult"]["LastModified"] == NOON
    piece = upload("UploadPartCopy", PartNumber=2, CopySource="data/source", CopySourceRange="bytes=10-19")
    parts = [
        {"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]} for number, answer in ((1, whole), (2, piece))
    ]
    upload.complete(MultipartUpload={"Parts": parts})
    assert s3.get("data", "big")["Body"] == PART + PART[10:20]


def test_a_copied_part_is_summed_as_the_upload_says(s3: Front) -> None:
    s3.put("data", "source", TAIL)
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    copied = upload("UploadPartCopy", PartNumber=1, CopySource="data/source")["CopyPartResult"]
    assert copied["ChecksumSHA256"] == digest_of(ChecksumAlgorithm.SHA256, [TAIL])


@pytest.mark.parametrize(
    "text", ["bytes=0-7", "bytes=7-7", "bytes=3-2", "bytes=3-", "bytes=-3", "0-3", "bytes=0-1,3-4", ""]
)
def test_a_range_of_the_source_must_lie_in_it(s3: Front, upload: Upload, text: str) -> None:
    s3.put("data", "source", TAIL)
    with pytest.raises(Fault) as caught:
        upload("UploadPartCopy", PartNumber=1, CopySource="data/source", CopySourceRange=text)
    assert (caught.value.code, caught.value.members["ArgumentValue"]) == ("InvalidArgument", text)
    assert upload("ListParts")["Parts"] == []


def test_a_part_is_copied_on_condition(s3: Front, upload: Upload) -> None:
    s3.put("data", "source", TAIL)
    with pytest.raises(Fault) as caught:
        upload("UploadPartCopy", PartNumber=1, CopySource="data/source", CopySourceIfMatch='"other"')
    assert caught.value.status == 412
    assert upload("ListParts")["Parts"] == []


def test_the_parts_of_an_object_are_told_as_attributes(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="CRC32")
    upload.put_summed(1, PART)
    upload.put_summed(4, TAIL)
    upload.complete()
    told = s3("GetObjectAttributes", Bucket="data", Key="big", ObjectAttributes=["ObjectParts"])["ObjectParts"]
    assert (told["TotalPartsCount"], told["IsTruncated"]) == (2, False)
    assert told["Parts"] == [
        {"PartNumber": 1, "Size": len(PART), "ChecksumCRC32": digest_of(ChecksumAlgorithm.CRC32, [PART])},
        {"PartNumber": 4, "Size": len(TAIL), "ChecksumCRC32": digest_of(ChecksumAlgorithm.CRC32, [TAIL])},
    ]
    page = s3("GetObjectAttributes", Bucket="data", Key="big", ObjectAttributes=["ObjectParts"], MaxParts=1)
    assert (page["ObjectParts"]["IsTruncated"], page["ObjectParts"]["NextPartNumberMarker"]) == (True, 1)


def test_the_checksum_of_a_part_comes_with_the_part(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="CRC32")
    upload.put_summed(1, PART)
    upload.put_summed(2, TAIL)
    upload.complete()
    got = s3("GetObject", Bucket="data", Key="big", PartNumber=2, ChecksumMode="ENABLED")
    assert (read(got["Body"]), got["ChecksumCRC32"]) == (TAIL, digest_of(ChecksumAlgorithm.CRC32, [TAIL]))
