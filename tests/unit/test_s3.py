from pathlib import Path

import pytest

from tests.unit.recording import RecordingApi
from trainyard.foundation.errors import InvalidRequest
from trainyard.s3 import S3Downloader, S3Uploader, determine_bucket_and_prefix, parse_s3_url, s3_path_join
from trainyard.session import Session


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (("s3://", "bucket", "key"), "s3://bucket/key"),
        (("s3://bucket/", "/a/", "b/"), "s3://bucket/a/b"),
        (("s3://bucket/a//b", "c"), "s3://bucket/a/b/c"),
        (("/a", "", "b"), "a/b"),
    ],
)
def test_parts_of_a_location_are_joined_by_single_slashes(parts: tuple[str, ...], joined: str) -> None:
    assert s3_path_join(*parts) == joined
    assert s3_path_join(*parts, with_end_slash=True) == f"{joined}/"


def test_a_location_has_a_bucket_and_a_key() -> None:
    assert parse_s3_url("s3://bucket/deep/key") == ("bucket", "deep/key")
    assert parse_s3_url("s3://bucket") == ("bucket", "")
    with pytest.raises(InvalidRequest, match='"http://bucket/key" is not a location on S3'):
        parse_s3_url("http://bucket/key")


def test_a_file_is_uploaded_under_its_name_with_its_key_and_its_progress(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2")
    api, sent = RecordingApi(), list[int]()
    session = Session(api=api)
    where = S3Uploader.upload(str(tmp_path / "data.csv"), "s3://b/in", "key-1", session, callback=sent.append)
    assert where == "s3://b/in/data.csv"
    put = api.only("PutObject")
    assert (put["Key"], put["ServerSideEncryption"], put["SSEKMSKeyId"]) == ("in/data.csv", "aws:kms", "key-1")
    assert sent == [3]


def test_text_and_bytes_are_written_and_read() -> None:
    api = RecordingApi(GetObject={"Body": "grün".encode()})
    session = Session(api=api)
    assert S3Uploader.upload_string_as_file_body("grün", "s3://b/k", sagemaker_session=session) == "s3://b/k"
    assert api.only("PutObject")["Body"] == "grün".encode()
    assert S3Downloader.read_file("s3://b/k", sagemaker_session=session) == "grün"


def test_listings_are_of_locations() -> None:
    api = RecordingApi(ListObjectsV2={"Contents": [{"Key": "a/1"}, {"Key": "a/2"}]})
    assert S3Downloader.list("s3://b/a", sagemaker_session=Session(api=api)) == ["s3://b/a/1", "s3://b/a/2"]


def test_the_default_bucket_comes_with_the_prefix_of_the_session() -> None:
    session = Session(api=RecordingApi(), default_bucket="mine", default_bucket_prefix="team")
    assert determine_bucket_and_prefix(None, "x", session) == ("mine", "team/x")
    assert determine_bucket_and_prefix("other", "x", session) == ("other", "x")
