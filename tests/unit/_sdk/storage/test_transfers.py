from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.storage.file_digests import PART_BYTES
from trainyard._sdk.storage.transfers import (
    download_object,
    join_key,
    list_keys,
    local_path,
    upload_file,
    upload_folder,
)
from trainyard.foundation.errors import InvalidRequest, Unavailable


def test_a_small_file_is_one_call(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    api = RecordingApi()

    upload_file(api, tmp_path / "a.txt", bucket="b", key="k")

    assert api.asked == [("PutObject", {"Bucket": "b", "Key": "k", "Body": b"text"})]


def test_a_large_file_goes_in_parts(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2 * PART_BYTES + 1)
    api = RecordingApi(
        CreateMultipartUpload={"UploadId": "u"}, UploadPart=lambda asked: {"ETag": f"e{asked['PartNumber']}"}
    )

    upload_file(api, tmp_path / "large", bucket="b", key="k")

    sizes = [len(asked["Body"]) for name, asked in api.asked if name == "UploadPart"]
    assert sizes == [PART_BYTES, PART_BYTES, 1]
    parts = api.only("CompleteMultipartUpload")["MultipartUpload"]["Parts"]
    assert parts == [{"PartNumber": number, "ETag": f"e{number}"} for number in (1, 2, 3)]


def test_parts_that_fail_leave_no_upload_open(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(PART_BYTES)

    def fail(asked: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable("gone")

    api = RecordingApi(CreateMultipartUpload={"UploadId": "u"}, UploadPart=fail)
    with pytest.raises(Unavailable):
        upload_file(api, tmp_path / "large", bucket="b", key="k")

    assert api.only("AbortMultipartUpload")["UploadId"] == "u"


def test_a_folder_keeps_its_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("")
    (tmp_path / "a.txt").write_text("")
    api = RecordingApi()

    upload_folder(api, tmp_path, bucket="b", prefix="data/")

    assert [asked["Key"] for _, asked in api.asked] == ["data/a.txt", "data/sub/b.txt"]


def test_a_download_asks_for_ranges_of_one_state_of_the_object(tmp_path: Path) -> None:
    content = bytes(PART_BYTES) + b"end"

    def read(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["IfMatch"] == "tag"
        first, _, last = asked["Range"].removeprefix("bytes=").partition("-")
        return {"Body": content[int(first) : int(last) + 1]}

    api = RecordingApi(HeadObject={"ContentLength": len(content), "ETag": "tag"}, GetObject=read)
    download_object(api, tmp_path / "new" / "file", bucket="b", key="k")

    assert (tmp_path / "new" / "file").read_bytes() == content
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_download_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def fail(asked: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable("gone")

    api = RecordingApi(HeadObject={"ContentLength": 1, "ETag": "tag"}, GetObject=fail)
    with pytest.raises(Unavailable):
        download_object(api, tmp_path / "file", bucket="b", key="k")

    assert list(tmp_path.iterdir()) == []


def test_two_downloads_of_one_object_at_once_do_not_mix_their_bytes(tmp_path: Path) -> None:
    target = tmp_path / "model.tar.gz"
    parts = {"bytes=0-": b"a" * PART_BYTES, f"bytes={PART_BYTES}-": b"b"}

    def part(asked: dict[str, Any]) -> dict[str, Any]:
        start = asked["Range"].split("-")[0] + "-"
        if start != "bytes=0-" and second.asked == []:
            download_object(second, target, bucket="b", key="k")
        return {"Body": parts[start]}

    head = {"ContentLength": PART_BYTES + 1, "ETag": "t"}
    second = RecordingApi(HeadObject={"ContentLength": 3, "ETag": "u"}, GetObject={"Body": b"new"})
    first = RecordingApi(HeadObject=head, GetObject=part)
    download_object(first, target, bucket="b", key="k")

    assert target.read_bytes() == parts["bytes=0-"] + b"b"
    assert list(tmp_path.iterdir()) == [target], "nothing partial is left"


def test_every_page_of_keys_is_read() -> None:
    def page(asked: dict[str, Any]) -> dict[str, Any]:
        if "ContinuationToken" in asked:
            return {"Contents": [{"Key": "c"}], "IsTruncated": False}
        return {"Contents": [{"Key": "a"}, {"Key": "b"}], "IsTruncated": True, "NextContinuationToken": "t"}

    assert list(list_keys(RecordingApi(ListObjectsV2=page), "b", "")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("key", "prefix", "place"),
    [
        ("data/train/a.png", "data", "train/a.png"),
        ("data/train/a.png", "data/", "train/a.png"),
        ("data/train/a.png", "data/tr", "train/a.png"),
        ("data/model.tar.gz", "data/model.tar.gz", "model.tar.gz"),
        ("a.txt", "", "a.txt"),
    ],
)
def test_objects_lie_below_the_folder_as_they_lay_below_the_prefix(key: str, prefix: str, place: str) -> None:
    assert local_path(Path("/into"), key, prefix) == Path("/into") / place


@pytest.mark.parametrize("key", ["data/../../etc/passwd", "data//etc/passwd"])
def test_no_key_leads_out_of_the_folder(key: str) -> None:
    with pytest.raises(InvalidRequest, match="outside"):
        local_path(Path("/into"), key, "data")


def test_empty_parts_of_keys_vanish() -> None:
    assert join_key("", "a/", "/b", "") == "a/b"
