from datetime import timedelta
from hashlib import md5

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, Front
from tests.unit.server.services.s3.uploading import TAIL, Upload
from trainyard.server.services.s3.ownership import canonical_id
from trainyard.wire.fault import Fault


def test_what_an_upload_is_begun_with_is_the_object_s(s3: Front) -> None:
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
