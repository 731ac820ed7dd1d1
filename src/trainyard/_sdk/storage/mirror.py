"""A local copy of objects that are still written, for programs that read files."""

from collections.abc import Iterator
from pathlib import Path

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.transfers import ListedObject, list_objects, local_path
from trainyard.wire.client import CallFailed


class AppendedMirror:
    """Copies the objects below a prefix to a folder, again and again, for files that only grow, such as event files.

    What is new in an object is appended to its file, so that programs that have the file open see it.
    """

    def __init__(self, api: Api, folder: Path, *, bucket: str, prefix: str) -> None:
        self._api, self._folder, self._bucket, self._prefix = api, folder, bucket, prefix
        self._copied: dict[str, str] = {}

    def update(self) -> int:
        """Copy what has changed, and return the number of changed files."""
        changed = [each for each in self._list_remote() if self._copied.get(each.key) != each.etag]
        for each in changed:
            self._copy(each)
            self._copied[each.key] = each.etag
        return len(changed)

    def _list_remote(self) -> Iterator[ListedObject]:
        try:
            yield from list_objects(self._api, self._bucket, self._prefix)
        except CallFailed as error:
            # The job may write its first object later.
            if error.code != "NoSuchBucket":
                raise

    def _copy(self, listed: ListedObject) -> None:
        path = local_path(self._folder, listed.key, self._prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        known = path.stat().st_size if path.exists() else 0
        if listed.size <= known:
            # It was replaced by something shorter, or has the same size: copy it as a whole.
            known = 0
        request = {"Bucket": self._bucket, "Key": listed.key} | ({"Range": f"bytes={known}-"} if known else {})
        if listed.size:
            body: bytes = self._api.call("s3", "GetObject", **request)["Body"]
        else:
            body = b""
        with path.open("ab" if known else "wb") as file:
            file.write(body)
