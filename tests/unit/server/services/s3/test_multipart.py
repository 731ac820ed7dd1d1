from base64 import b64decode, b64encode
from datetime import timedelta
from hashlib import md5
from typing import Any

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, Body, Front, read
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.server.services.s3.ownership import canonical_id
from trainyard.wire.fault import Fault

PART = bytes(range(256)) * (5 * 1024**2 // 256)
TAIL = b"the end"


class Upload:
    """One upload in parts of "data/big"."""

    def __init__(self, s3: Front, **options: Any) -> None:
        self.s3 = s3
        self.created = s3("CreateMultipartUpload", Bucket="data", Key="big", **options)
        self.named: list[dict[str, Any]] = []

    def __call__(self, operation: str, **shape: Any) -> dict[str, Any]:
        return self.s3(operation, Bucket="data", Key="big", UploadId=self.created["UploadId"], **shape)

    def put(self, number: int, body: bytes, **shape: Any) -> dict[str, Any]:
        put = self("UploadPart", PartNumber=number, Body=body, **shape)
        told = {name: value for name, value in put.items() if name == "ETag" or name.startswith("Checksum")}
        self.named.append({"PartNumber": number, **told})
        return put

    def complete(self, **shape: Any) -> dict[str, Any]:
        return self("CompleteMultipartUpload", **({"MultipartUpload": {"Parts": self.named}} | shape))

    def refusal(self, operation: str, **shape: Any) -> Fault:
        with pytest.raises(Fault) as caught:
            self(operation, **shape)
        assert self.s3.keys("data") == []
        return caught.value

    def refused_completion(self, **shape: Any) -> Fault:
        return self.refusal("CompleteMultipartUpload", **({"MultipartUpload": {"Parts": self.named}} | shape))


@pytest.fixture
def upload(s3: Front) -> Upload:
    return Upload(s3)


@pytest.fixture
def two_parts(upload: Upload) -> Upload:
    upload.put(1, PART)
    upload.put(2, TAIL)
    return upload


def multipart_etag(*parts: bytes) -> str:
    return f'"{md5(b"".join(md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"'


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


def test_what_an_upload_is_begun_with_is_the_object_s(s3: Front) -> None:
    upload = Upload(s3, ContentType="text/csv", Metadata={"epoch": "7"}, Tagging="a=1", ServerSideEncryption="aws:kms")
    assert upload.created["ServerSideEncryption"] == "aws:kms"
    assert upload.put(1, TAIL)["ServerSideEncryption"] == "aws:kms"
    assert upload.complete()["ServerSideEncryption"] == "aws:kms"
    head = s3("HeadObject", Bucket="data", Key="big")
    assert (head["ContentType"], head["Metadata"], head["TagCount"]) == ("text/csv", {"epoch": "7"}, 1)


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
    first = upload.put(1, PART, **{member: digest_of(kind, [PART])})
    second = upload.put(2, TAIL)
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


def test_a_composite_checksum_is_announced_without_its_count(s3: Front) -> None:
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    upload.put(1, TAIL)
    digest = ChecksumAlgorithm.SHA256
    wrong = digest_of(digest, [TAIL])
    assert upload.refused_completion(ChecksumSHA256=wrong).code == "BadDigest"
    right = digest_of(digest, [b64decode(wrong)])
    assert upload.complete(ChecksumSHA256=right)["ChecksumSHA256"] == f"{right}-1"


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
    fault = upload.refusal("UploadPart", PartNumber=1, Body=TAIL, ChecksumCRC32="NhCmhg==")
    assert fault.code == "InvalidRequest"


def test_a_part_may_be_summed_though_its_upload_is_not(upload: Upload) -> None:
    value = digest_of(ChecksumAlgorithm.CRC32, [TAIL])
    assert upload.put(1, TAIL, ChecksumCRC32=value)["ChecksumCRC32"] == value
    assert upload.complete()["ETag"] == multipart_etag(TAIL)


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


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_the_number_of_a_part_is_between_1_and_10000(upload: Upload, number: int) -> None:
    fault = upload.refusal("UploadPart", PartNumber=number, Body=TAIL)
    assert (fault.code, fault.members["ArgumentName"]) == ("InvalidArgument", "partNumber")


def test_a_part_that_breaks_off_leaves_nothing(upload: Upload) -> None:
    broken = Body([PART], breaks_with=Fault("RequestTimeout", "The client closed the connection."))
    fault = upload.refusal("UploadPart", PartNumber=1, Body=broken, ContentLength=2 * len(PART))
    assert fault.code == "RequestTimeout"
    assert upload("ListParts")["Parts"] == []


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
    assert two_parts.refused_completion(MultipartUpload={"Parts": [first, absent]}).code == "InvalidPart"
    assert two_parts.refused_completion(MultipartUpload={"Parts": [first, changed]}).code == "InvalidPart"
    two_parts.complete()


def test_only_the_last_part_may_be_small(upload: Upload) -> None:
    upload.put(1, TAIL)
    upload.put(2, TAIL)
    assert upload.refused_completion().code == "EntityTooSmall"


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


def test_a_completion_of_what_was_never_begun_is_not_found(s3: Front, two_parts: Upload) -> None:
    two_parts.created["UploadId"] = "never-begun"
    fault = two_parts.refused_completion()
    assert (fault.code, fault.status, fault.members) == ("NoSuchUpload", 404, {"UploadId": "never-begun"})
    s3.put("data", "big", b"something else")
    with pytest.raises(Fault, match="never-begun"):
        two_parts.complete()


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
    assert first["Owner"] == {"ID": canonical_id(OWNER)}
    rest = upload("ListParts", PartNumberMarker=3)
    assert [part["PartNumber"] for part in rest["Parts"]] == [5]
    assert rest["IsTruncated"] is False
    assert upload("ListParts", MaxParts=0)["IsTruncated"] is False


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
    upload.put(1, PART)
    upload.put(4, TAIL)
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
    upload.put(1, PART)
    upload.put(2, TAIL)
    upload.complete()
    got = s3("GetObject", Bucket="data", Key="big", PartNumber=2, ChecksumMode="ENABLED")
    assert (read(got["Body"]), got["ChecksumCRC32"]) == (TAIL, digest_of(ChecksumAlgorithm.CRC32, [TAIL]))


def test_an_upload_for_a_missing_bucket_is_not_begun(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateMultipartUpload", Bucket="nothing", Key="big")
    assert caught.value.code == "NoSuchBucket"
