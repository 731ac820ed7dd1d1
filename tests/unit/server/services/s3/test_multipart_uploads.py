from base64 import b64encode
from datetime import timedelta
from hashlib import md5

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, Body, Front, read
from tests.unit.server.services.s3.multipart_upload import PART, TAIL, Upload, multipart_etag
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.server.services.s3.ownership import canonical_id
from trainyard.wire.fault import Fault


def test_the_attributes_of_an_upload_become_those_of_the_object(s3: Front) -> None:
    upload = Upload(s3, ContentType="text/csv", Metadata={"epoch": "7"}, Tagging="a=1", ServerSideEncryption="aws:kms")
    assert upload.created["ServerSideEncryption"] == "aws:kms"
    assert upload.put(1, TAIL)["ServerSideEncryption"] == "aws:kms"
    assert upload.complete()["ServerSideEncryption"] == "aws:kms"
    head = s3("HeadObject", Bucket="data", Key="big")
    assert (head["ContentType"], head["Metadata"], head["TagCount"]) == ("text/csv", {"epoch": "7"}, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"ChecksumAlgorithm": "SHA256", "ChecksumType": "FULL_OBJECT"},
        {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "COMPOSITE"},
        {"ChecksumType": "FULL_OBJECT"},
        {"ChecksumAlgorithm": "CRC32", "ChecksumType": "HALF_OBJECT"},
    ],
)
def test_a_checksum_type_that_cannot_be_is_refused(s3: Front, options: dict[str, str]) -> None:
    with pytest.raises(Fault) as caught:
        Upload(s3, **options)
    assert caught.value.code == "InvalidRequest"


def test_an_aborted_upload_is_gone(s3: Front, two_parts: Upload) -> None:
    two_parts("AbortMultipartUpload")
    for operation in ("UploadPart", "ListParts", "AbortMultipartUpload"):
        assert two_parts.refusal(operation, PartNumber=1).code == "NoSuchUpload"
    assert two_parts.refused_completion().code == "NoSuchUpload"
    assert s3("ListMultipartUploads", Bucket="data")["Uploads"] == []


def test_an_upload_is_known_by_its_key_only(s3: Front, upload: Upload) -> None:
    with pytest.raises(Fault) as caught:
        s3("UploadPart", Bucket="data", Key="other", UploadId=upload.created["UploadId"], PartNumber=1)
    assert caught.value.code == "NoSuchUpload"


def test_parts_are_listed_in_pages(upload: Upload) -> None:
    for number in (5, 1, 3):
        upload.put(number, TAIL)
    first = upload("ListParts", MaxParts=2)
    assert [part["PartNumber"] for part in first["Parts"]] == [1, 3]
    assert (first["IsTruncated"], first["NextPartNumberMarker"], first["MaxParts"]) == (True, 3, 2)
    assert first["Parts"][0] == {
        "PartNumber": 1,
        "LastModified": NOON,
        "ETag": f'"{md5(TAIL).hexdigest()}"',
        "Size": len(TAIL),
    }
    assert first["Owner"] == {"DisplayName": OWNER, "ID": canonical_id(OWNER)}
    rest = upload("ListParts", PartNumberMarker=3)
    assert [part["PartNumber"] for part in rest["Parts"]] == [5]
    assert rest["IsTruncated"] is False
    assert upload("ListParts", MaxParts=0)["IsTruncated"] is False


def test_the_marker_of_an_upload_means_nothing_without_that_of_a_key(s3: Front) -> None:
    begun = [s3("CreateMultipartUpload", Bucket="data", Key=key)["UploadId"] for key in ("a", "b")]
    page = s3("ListMultipartUploads", Bucket="data", UploadIdMarker=begun[1])
    assert [entry["UploadId"] for entry in page["Uploads"]] == begun
    assert page["UploadIdMarker"] == ""


def test_uploads_are_listed_in_pages(s3: Front) -> None:
    begun = []
    for hour, key in enumerate(["logs/a", "b", "b", "logs/c"]):
        s3.now = NOON + timedelta(hours=hour)
        begun.append(s3("CreateMultipartUpload", Bucket="data", Key=key, ChecksumAlgorithm="CRC32")["UploadId"])
    whole = s3("ListMultipartUploads", Bucket="data")
    assert [(entry["Key"], entry["UploadId"]) for entry in whole["Uploads"]] == [
        ("b", begun[1]),
        ("b", begun[2]),
        ("logs/a", begun[0]),
        ("logs/c", begun[3]),
    ]
    entry = whole["Uploads"][0]
    assert (entry["Initiated"], entry["ChecksumAlgorithm"], entry["ChecksumType"]) == (
        NOON + timedelta(hours=1),
        "CRC32",
        "COMPOSITE",
    )
    found: list[str] = []
    markers: dict[str, str] = {}
    while True:
        page = s3("ListMultipartUploads", Bucket="data", MaxUploads=1, **markers)
        found += [entry["UploadId"] for entry in page["Uploads"]]
        if not page["IsTruncated"]:
            break
        markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    assert found == [begun[1], begun[2], begun[0], begun[3]]


def test_uploads_are_listed_by_folder(s3: Front) -> None:
    for key in ("logs/a b", "top"):
        s3("CreateMultipartUpload", Bucket="data", Key=key)
    page = s3("ListMultipartUploads", Bucket="data", Delimiter="/", EncodingType="url")
    assert [entry["Key"] for entry in page["Uploads"]] == ["top"]
    assert page["CommonPrefixes"] == [{"Prefix": "logs/"}]
    logs = s3("ListMultipartUploads", Bucket="data", Prefix="logs/", EncodingType="url")
    assert [entry["Key"] for entry in logs["Uploads"]] == ["logs/a%20b"]
    assert s3("ListMultipartUploads", Bucket="data", MaxUploads=0)["Uploads"] == []


def test_an_upload_for_a_missing_bucket_is_not_begun(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateMultipartUpload", Bucket="nothing", Key="big")
    assert caught.value.code == "NoSuchBucket"


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


def test_the_parts_of_an_object_are_returned_as_attributes(s3: Front) -> None:
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
