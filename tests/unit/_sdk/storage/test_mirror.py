from pathlib import Path
from typing import Any

from tests.unit.recording import RecordingApi
from trainyard._sdk.storage.mirror import AppendedMirror


class Objects:
    """Objects by key, behind an API."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.api = RecordingApi(ListObjectsV2=self._list, GetObject=self._get)

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        found = [
            {"Key": key, "Size": len(body), "ETag": str(hash(body)), "LastModified": None}
            for key, body in self.content.items()
        ]
        return {"Contents": found}

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        self.ranges.append(request.get("Range"))
        first = int(request["Range"].removeprefix("bytes=").rstrip("-")) if "Range" in request else 0
        return {"Body": self.content[request["Key"]][first:]}


def test_what_is_appended_to_an_object_is_appended_to_its_open_file(tmp_path: Path) -> None:
    objects = Objects()
    objects.content["tb/train/events"] = b"one"
    mirror = AppendedMirror(objects.api, tmp_path, bucket="b", prefix="tb/")
    assert mirror.update() == 1

    with (tmp_path / "train" / "events").open("rb") as reader:
        assert reader.read() == b"one"
        objects.content["tb/train/events"] = b"one two"
        assert mirror.update() == 1
        assert reader.read() == b" two"

    assert mirror.update() == 0
    assert objects.ranges == [None, "bytes=3-"]


def test_a_shorter_object_replaces_the_file(tmp_path: Path) -> None:
    objects = Objects()
    mirror = AppendedMirror(objects.api, tmp_path, bucket="b", prefix="tb/")
    for content in (b"long", b"s", b""):
        objects.content["tb/events"] = content
        mirror.update()
        assert (tmp_path / "events").read_bytes() == content
