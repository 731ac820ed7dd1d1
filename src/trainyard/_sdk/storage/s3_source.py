"""A source of bytes on S3, for formats that are read in place."""

from collections.abc import Iterator, Sequence
from typing import Any

from trainyard._sdk.connection import Api
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import parse_s3_uri
from trainyard.foundation.sources import SourceEntry
from trainyard.session import Session
from trainyard.wire.client import CallFailed


def source_of_session(uri: str) -> "S3Source":
    """Return the source at an `s3://` location, read with the credentials of `Session()`."""
    session = Session()
    # The session closes its connections when it is collected.
    return S3Source(uri, session.api, owner=session)


class S3Source:
    """The objects below an `s3://` location. `owner` keeps the owner of the API client alive."""

    def __init__(self, uri: str, api: Api, *, owner: object = None) -> None:
        location = parse_s3_uri(uri, account="")
        self._owner = owner
        self._api, self._bucket, self.place = api, location.bucket.name, uri.rstrip("/")
        self._prefix = f"{location.key.rstrip('/')}/" if location.key.strip("/") else ""

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        prefix = self._folder(folder)
        found = [each for page in self._pages(prefix, after) for each in page.get("Contents", ())]
        return [SourceEntry(each["Key"].removeprefix(prefix), each["Size"]) for each in found if each["Key"] != prefix]

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        prefix = self._folder(folder)
        pages = self._pages(prefix, f"{after}/" if after else "")
        found = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
        names = [each.removeprefix(prefix).rstrip("/") for each in found]
        # S3 lists the folder `after` again because of the objects in it.
        return [name for name in names if name > after]

    def size(self, name: str) -> int:
        return int(self._call("HeadObject", name, Bucket=self._bucket, Key=self._prefix + name)["ContentLength"])

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        if size == 0:
            return b""
        span = f"bytes={start}-" + ("" if size is None else str(start + size - 1))
        request = {"Range": span} if start or size is not None else {}
        try:
            body: bytes = self._call("GetObject", name, Bucket=self._bucket, Key=self._prefix + name, **request)["Body"]
        except CallFailed as error:
            if error.code != "InvalidRange":
                raise
            return b""
        return body

    def _folder(self, folder: str) -> str:
        return self._prefix + (f"{folder}/" if folder else "")

    def _pages(self, prefix: str, after: str) -> Iterator[dict[str, Any]]:
        request = {"Bucket": self._bucket, "Prefix": prefix, "Delimiter": "/"}
        request |= {"StartAfter": prefix + after} if after else {}
        while True:
            page = self._call("ListObjectsV2", "", **request)
            yield page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def _call(self, operation: str, name: str, **request: str) -> dict[str, Any]:
        try:
            return self._api.call("s3", operation, **request)
        except CallFailed as error:
            if error.status == 404:
                raise NotFound("object", f"{self.place}/{name}") from error
            if error.status >= 500:
                raise Unavailable(f"{self.place} cannot be read now: {error.message}") from error
            raise
