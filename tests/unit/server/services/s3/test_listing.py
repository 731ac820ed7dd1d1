from typing import Any

import pytest

from tests.unit.server.services.s3.front import NOON, OWNER, Front
from trainyard.server.services.s3.listing import encoding_of, format_token, page_limit, parse_token
from trainyard.server.services.s3.ownership import canonical_id
from trainyard.wire.fault import Fault

KEYS = ["a", "logs/1", "logs/2", "logs/old/3", "models/x", "z"]


@pytest.fixture
def filled(s3: Front) -> Front:
    for key in KEYS:
        s3.put("data", key, b"hello")
    return s3


def keys(page: dict[str, Any], member: str = "Contents") -> list[str]:
    return [entry["Key"] for entry in page[member]]


def prefixes(page: dict[str, Any]) -> list[str]:
    return [entry["Prefix"] for entry in page["CommonPrefixes"]]


def test_a_listing_tells_the_objects_in_order(filled: Front) -> None:
    page = filled("ListObjectsV2", Bucket="data")
    assert keys(page) == KEYS
    assert page["Contents"][0] == {
        "Key": "a",
        "LastModified": NOON,
        "ETag": '"5d41402abc4b2a76b9719d911017c592"',
        "Size": 5,
        "StorageClass": "STANDARD",
        "ChecksumAlgorithm": ["CRC64NVME"],
        "ChecksumType": "FULL_OBJECT",
    }
    assert (page["Name"], page["KeyCount"], page["MaxKeys"], page["IsTruncated"]) == ("data", 6, 1000, False)
    assert page["NextContinuationToken"] is None


def test_a_listing_tells_the_checksum_s_algorithm(s3: Front) -> None:
    s3.put("data", "summed", b"hello", ChecksumCRC32="NhCmhg==")
    entry = s3("ListObjectsV2", Bucket="data")["Contents"][0]
    assert (entry["ChecksumAlgorithm"], entry["ChecksumType"]) == (["CRC32"], "FULL_OBJECT")


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_listing_tells_the_storage_class_that_was_asked_for(s3: Front, delimiter: str) -> None:
    s3.put("data", "plain", b"hello", Metadata={"like": "x-amz-storage-class"})
    s3.put("data", "rare", b"hello", StorageClass="STANDARD_IA")
    entries = s3("ListObjectsV2", Bucket="data", Delimiter=delimiter)["Contents"]
    assert [entry["StorageClass"] for entry in entries] == ["STANDARD", "STANDARD_IA"]


def test_a_marker_of_a_version_needs_one_of_a_key(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("ListObjectVersions", Bucket="data", VersionIdMarker="null")
    assert (caught.value.code, caught.value.members["ArgumentName"]) == ("InvalidArgument", "version-id-marker")


def test_a_prefix_and_a_delimiter_make_folders(filled: Front) -> None:
    for operation in ("ListObjects", "ListObjectsV2"):
        top = filled(operation, Bucket="data", Delimiter="/")
        assert (keys(top), prefixes(top), top["Delimiter"]) == (["a", "z"], ["logs/", "models/"], "/")
        logs = filled(operation, Bucket="data", Delimiter="/", Prefix="logs/")
        assert (keys(logs), prefixes(logs), logs["Prefix"]) == (["logs/1", "logs/2"], ["logs/old/"], "logs/")


def test_the_second_version_pages_by_a_token(filled: Front) -> None:
    found, token, pages = [], None, 0
    while pages == 0 or token:
        page = filled("ListObjectsV2", Bucket="data", Delimiter="/", MaxKeys=1, ContinuationToken=token)
        assert page["ContinuationToken"] == token
        assert page["KeyCount"] == 1
        found += keys(page) + prefixes(page)
        token, pages = page["NextContinuationToken"], pages + 1
        assert page["IsTruncated"] is (token is not None)
    assert found == ["a", "logs/", "models/", "z"]


def test_the_first_version_pages_by_a_marker(filled: Front) -> None:
    found, marker = [], ""
    while True:
        page = filled("ListObjects", Bucket="data", Delimiter="/", MaxKeys=2, Marker=marker)
        assert page["Marker"] == marker
        found += sorted(keys(page) + prefixes(page))
        if not page["IsTruncated"]:
            break
        marker = page["NextMarker"]
    assert found == ["a", "logs/", "models/", "z"]


def test_the_first_version_gives_no_marker_without_a_delimiter(filled: Front) -> None:
    page = filled("ListObjects", Bucket="data", MaxKeys=2)
    assert page["IsTruncated"]
    assert "NextMarker" not in page
    assert keys(filled("ListObjects", Bucket="data", Marker=keys(page)[-1])) == KEYS[2:]


def test_a_listing_may_start_after_a_key(filled: Front) -> None:
    page = filled("ListObjectsV2", Bucket="data", StartAfter="logs/2")
    assert (keys(page), page["StartAfter"]) == (["logs/old/3", "models/x", "z"], "logs/2")
    assert keys(filled("ListObjectsV2", Bucket="data", StartAfter="b")) == KEYS[1:]


def test_a_token_outweighs_where_to_start(filled: Front) -> None:
    token = filled("ListObjectsV2", Bucket="data", MaxKeys=4)["NextContinuationToken"]
    assert keys(filled("ListObjectsV2", Bucket="data", ContinuationToken=token, StartAfter="a")) == KEYS[4:]


def test_a_listing_of_no_keys_is_empty_and_whole(filled: Front) -> None:
    page = filled("ListObjectsV2", Bucket="data", MaxKeys=0)
    assert (keys(page), page["KeyCount"], page["MaxKeys"], page["IsTruncated"]) == ([], 0, 0, False)
    with pytest.raises(Fault) as caught:
        filled("ListObjectsV2", Bucket="nothing", MaxKeys=0)
    assert caught.value.code == "NoSuchBucket"


def test_a_page_holds_at_most_a_thousand(filled: Front) -> None:
    assert filled("ListObjectsV2", Bucket="data", MaxKeys=5000)["MaxKeys"] == 1000
    with pytest.raises(Fault) as caught:
        filled("ListObjectsV2", Bucket="data", MaxKeys=-1)
    assert caught.value.members == {"ArgumentName": "max-keys", "ArgumentValue": "-1"}


def test_version_one_returns_the_owner_and_version_two_on_request(filled: Front) -> None:
    owner = {"DisplayName": OWNER, "ID": canonical_id(OWNER)}
    assert filled("ListObjects", Bucket="data")["Contents"][0]["Owner"] == owner
    assert filled("ListObjectsV2", Bucket="data", FetchOwner=True)["Contents"][0]["Owner"] == owner
    assert "Owner" not in filled("ListObjectsV2", Bucket="data")["Contents"][0]


def test_names_are_percent_encoded_when_asked_for(s3: Front) -> None:
    s3.put("data", "a b/ü+\x01&")
    page = s3("ListObjectsV2", Bucket="data", EncodingType="url", Prefix="a b", StartAfter="a ", Delimiter="+")
    assert (page["EncodingType"], page["Prefix"], page["StartAfter"]) == ("url", "a%20b", "a%20")
    assert (page["Delimiter"], prefixes(page)) == ("%2B", ["a%20b/%C3%BC%2B"])
    assert keys(s3("ListObjects", Bucket="data", EncodingType="url")) == ["a%20b/%C3%BC%2B%01%26"]
    assert keys(s3("ListObjects", Bucket="data")) == ["a b/ü+\x01&"]


def test_markers_are_percent_encoded_too(s3: Front) -> None:
    for key in ("a b", "a c"):
        s3.put("data", key)
    page = s3("ListObjects", Bucket="data", EncodingType="url", MaxKeys=1, Delimiter="/", Marker="a ")
    assert (page["Marker"], page["NextMarker"]) == ("a%20", "a%20b")


def test_a_token_that_no_listing_gave_is_refused(s3: Front) -> None:
    for token in ("abc", "ü", "//8="):
        with pytest.raises(Fault) as caught:
            s3("ListObjectsV2", Bucket="data", ContinuationToken=token)
        assert caught.value.code == "InvalidArgument"


def test_every_object_is_its_own_only_version(filled: Front) -> None:
    first = filled("ListObjectVersions", Bucket="data", MaxKeys=4)
    assert keys(first, "Versions") == KEYS[:4]
    assert {(entry["VersionId"], entry["IsLatest"]) for entry in first["Versions"]} == {("null", True)}
    assert (first["NextKeyMarker"], first["NextVersionIdMarker"]) == ("logs/old/3", "null")
    rest = filled("ListObjectVersions", Bucket="data", KeyMarker="logs/old/3", VersionIdMarker="null")
    assert keys(rest, "Versions") == KEYS[4:]
    assert "NextKeyMarker" not in rest


@pytest.mark.parametrize("operation", ["ListObjects", "ListObjectsV2", "ListObjectVersions"])
def test_the_objects_of_a_missing_bucket_are_not_listed(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="nothing")
    assert caught.value.code == "NoSuchBucket"


@pytest.mark.parametrize("text", ["a", "ü/😀", "a\nb\x01", "k" * 1024])
def test_a_token_is_read_as_it_was_written(text: str) -> None:
    token = format_token(text)
    assert token.isascii()
    assert parse_token(token) == text


@pytest.mark.parametrize("token", ["a", "%%%", "ü", "a b", "_w=="])
def test_an_invalid_token_is_an_invalid_argument(token: str) -> None:
    with pytest.raises(Fault) as caught:
        parse_token(token)
    assert caught.value.members == {"ArgumentName": "continuation-token", "ArgumentValue": token}


@pytest.mark.parametrize(("asked", "given"), [(None, 1000), (0, 0), (7, 7), (1000, 1000), (2**31 - 1, 1000)])
def test_a_page_is_as_long_as_asked_for_but_no_longer_than_full(asked: int | None, given: int) -> None:
    shape = {} if asked is None else {"MaxKeys": asked}
    assert page_limit(shape, "MaxKeys", name="max-keys") == given


def test_names_are_encoded_only_on_demand() -> None:
    assert encoding_of({})("a b/+ü\r") == "a b/+ü\r"
    assert encoding_of({"EncodingType": "url"})("a b/+ü\r") == "a%20b/%2B%C3%BC%0D"


def test_a_default_bucket_that_the_sdk_looks_for_by_listing_is_missing_as_head_bucket_says_it(s3: Front) -> None:
    default = f"sagemaker-eu-west-3-{OWNER}"
    for request, code in (
        ({"Bucket": default, "Prefix": "team", "ExpectedBucketOwner": OWNER}, "404"),
        ({"Bucket": default, "Prefix": "team"}, "NoSuchBucket"),
        ({"Bucket": "missing", "Prefix": "team", "ExpectedBucketOwner": OWNER}, "NoSuchBucket"),
    ):
        with pytest.raises(Fault) as caught:
            s3("ListObjectsV2", **request)
        assert (caught.value.code, caught.value.status) == (code, 404)
