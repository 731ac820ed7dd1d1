"""Files to S3 and back, in parts, so that no file need fit into memory."""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from trainyard.connection import Api
from trainyard.file_digests import PART_BYTES, FileChanged, FileDigest, checksum_of, encoded, part_sizes
from trainyard.foundation.errors import InvalidRequest
from trainyard.wire.client import CallFailed

_MOST_COPIED_BYTES = 5 * 1024**3  # in one call


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """Where one object is."""

    bucket: str
    key: str

    @property
    def copy_source(self) -> str:
        return f"{self.bucket}/{quote(self.key)}"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object in a listing."""

    key: str
    size: int
    etag: str
    modified_at: datetime


def upload_file(api: Api, path: Path, *, bucket: str, key: str) -> None:
    """Bring one file to S3, whole or not at all."""
    with path.open("rb") as file:
        first = file.read(PART_BYTES)
        if len(first) < PART_BYTES:
            api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=first)
            return
        file.seek(0)
        with _upload_in_parts(api, ObjectAddress(bucket, key)) as upload:
            for part in iter(lambda: file.read(PART_BYTES), b""):
                upload.send(part)


def upload_content(
    api: Api, path: Path, content: FileDigest, *, place: ObjectAddress, pulse: Callable[[], None]
) -> str:
    """Bring one file to S3 if it still has this content, and return the ETag; FileChanged where it has not.

    `pulse` is called before each part.
    """
    sizes, digests = part_sizes(content.size), []
    with path.open("rb") as file:
        if len(sizes) == 1:
            pulse()
            body = file.read(content.size + 1)
            return _put_content(api, path, body, content=content, place=place)
        with _upload_in_parts(api, place, ChecksumAlgorithm="SHA256") as upload:
            for size in sizes:
                pulse()
                part = file.read(size)
                digests.append(hashlib.sha256(part).digest())
                upload.send(part, ChecksumSHA256=encoded(digests[-1]))
            if file.read(1) or checksum_of(digests, content.size) != content.checksum:
                raise FileChanged(path)
        return upload.etag


def copy_content(api: Api, source: ObjectAddress, content: FileDigest, *, place: ObjectAddress) -> str | None:
    """Copy an object if it has this content, without its bytes coming here, and return the ETag; None where not."""
    try:
        if content.size > _MOST_COPIED_BYTES:
            return _copy_parts(api, source, content, place=place)
        asked = {"Bucket": place.bucket, "Key": place.key, "CopySource": source.copy_source}
        copied = api.call("s3", "CopyObject", **asked)["CopyObjectResult"]
    except CallFailed as error:
        if error.status in (404, 412, 416):
            return None
        raise
    etag: str = copied["ETag"]
    return etag if copied.get("ChecksumSHA256") == content.checksum else None


def upload_folder(api: Api, folder: Path, *, bucket: str, prefix: str) -> None:
    """Bring every file below a folder to S3, under its path in the folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            upload_file(api, path, bucket=bucket, key=joined(prefix, path.relative_to(folder).as_posix()))


def download_object(api: Api, target: Path, *, bucket: str, key: str) -> None:
    """Bring one object to a file, which is there only when it is whole."""
    head = api.call("s3", "HeadObject", Bucket=bucket, Key=key)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two downloads of one object may be under way at once, and each has a file of its own until it is whole.
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with partial.open("xb") as file:
            for start in range(0, head["ContentLength"], PART_BYTES):
                asked = f"bytes={start}-{start + PART_BYTES - 1}"
                part = api.call("s3", "GetObject", Bucket=bucket, Key=key, Range=asked, IfMatch=head["ETag"])
                file.write(part["Body"])
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def keys_below(api: Api, bucket: str, prefix: str) -> Iterator[str]:
    """The keys that begin with a prefix."""
    return (each["Key"] for each in _listed(api, bucket, prefix))


def entries_below(api: Api, bucket: str, prefix: str) -> Iterator[ListedObject]:
    """The objects whose keys begin with a prefix, in the order of the keys."""
    for each in _listed(api, bucket, prefix):
        yield ListedObject(each["Key"], each["Size"], each["ETag"], each["LastModified"])


def place_below(folder: Path, key: str, prefix: str) -> Path:
    """Where the object of a key belongs in a folder that takes all below a prefix; never outside that folder."""
    inside = key.removeprefix(prefix.rstrip("/") + "/")
    if inside == key:  # the prefix is the key itself, or ends in the middle of a name
        inside = key.removeprefix(prefix.rpartition("/")[0]).lstrip("/")
    parts = PurePosixPath(inside).parts
    if not parts or ".." in parts or PurePosixPath(inside).is_absolute():
        raise InvalidRequest(f'The key "{key}" would be written outside of "{folder}".')
    return folder.joinpath(*parts)


def joined(*parts: str) -> str:
    """A key of parts that may be empty."""
    return "/".join(stripped for part in parts if (stripped := part.strip("/")))


def _listed(api: Api, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    # Encoded, because XML cannot carry every character that a key may have.
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "EncodingType": "url"}
    while True:
        page = api.call("s3", "ListObjectsV2", **asked)
        is_encoded = page.get("EncodingType") == "url"
        for each in page.get("Contents", ()):
            yield {**each, "Key": unquote(each["Key"])} if is_encoded else each
        if not page.get("IsTruncated"):
            return
        asked["ContinuationToken"] = page["NextContinuationToken"]


def _put_content(api: Api, path: Path, body: bytes, *, content: FileDigest, place: ObjectAddress) -> str:
    if len(body) != content.size:
        raise FileChanged(path)
    asked = {"Bucket": place.bucket, "Key": place.key, "Body": body, "ChecksumSHA256": content.checksum}
    try:
        etag: str = api.call("s3", "PutObject", **asked)["ETag"]
    except CallFailed as error:
        if error.code == "BadDigest":
            raise FileChanged(path) from error
        raise
    return etag


def _copy_parts(api: Api, source: ObjectAddress, content: FileDigest, *, place: ObjectAddress) -> str | None:
    start = 0
    with _upload_in_parts(api, place, ChecksumAlgorithm="SHA256") as upload:
        for size in part_sizes(content.size):
            upload.copy(source, start=start, size=size)
            start += size
    return upload.etag if upload.checksum == content.checksum else None


class _PartsUpload:
    """An object that is put together of parts."""

    def __init__(self, api: Api, where: dict[str, str]) -> None:
        self._api, self._where = api, where
        self._parts: list[dict[str, Any]] = []
        self.etag = self.checksum = ""

    def send(self, part: bytes, **more: str) -> None:
        number = len(self._parts) + 1
        answer = self._api.call("s3", "UploadPart", **self._where, PartNumber=number, Body=part, **more)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"], **more})

    def copy(self, source: ObjectAddress, *, start: int, size: int) -> None:
        number = len(self._parts) + 1
        span = f"bytes={start}-{start + size - 1}"
        asked = {"CopySource": source.copy_source, "CopySourceRange": span}
        answer = self._api.call("s3", "UploadPartCopy", **self._where, PartNumber=number, **asked)["CopyPartResult"]
        kept = {name: answer[name] for name in ("ETag", "ChecksumSHA256") if name in answer}
        self._parts.append({"PartNumber": number, **kept})

    def complete(self) -> None:
        parts = {"Parts": self._parts}
        answer = self._api.call("s3", "CompleteMultipartUpload", **self._where, MultipartUpload=parts)
        self.etag, self.checksum = answer.get("ETag", ""), answer.get("ChecksumSHA256", "")

    def abort(self) -> None:
        self._api.call("s3", "AbortMultipartUpload", **self._where)


@contextmanager
def _upload_in_parts(api: Api, place: ObjectAddress, **options: str) -> Iterator[_PartsUpload]:
    """An upload that is completed at the end of the block, or given up where the block fails."""
    where = {"Bucket": place.bucket, "Key": place.key}
    begun = api.call("s3", "CreateMultipartUpload", **where, **options)["UploadId"]
    upload = _PartsUpload(api, {**where, "UploadId": begun})
    try:
        yield upload
        upload.complete()
    except BaseException:
        upload.abort()
        raise
