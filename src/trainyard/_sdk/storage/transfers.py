"""Upload and download files in parts, so that large files do not fill the memory."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.file_digests import (
    PART_BYTES,
    FileChanged,
    FileDigest,
    checksum_of,
    encode_digest,
    part_sizes,
)
from trainyard.foundation.errors import InvalidRequest
from trainyard.wire.client import CallFailed

# The limit of S3 for one CopyObject call.
_MAX_COPY_BYTES = 5 * 1024**3

# More members of the requests that create objects, such as SSEKMSKeyId.
ExtraArguments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """The bucket and the key of an object."""

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


def upload_file(
    api: Api,
    path: Path,
    *,
    bucket: str,
    key: str,
    extra: ExtraArguments | None = None,
    after_part: Callable[[int], None] = lambda _size: None,
) -> None:
    """Upload one file, completely or not at all. `after_part` is called with each part's size."""
    with path.open("rb") as file:
        first = file.read(PART_BYTES)
        if len(first) < PART_BYTES:
            api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=first, **(extra or {}))
            after_part(len(first))
            return
        file.seek(0)
        with _multipart_upload(api, ObjectAddress(bucket, key), **(extra or {})) as upload:
            for part in iter(lambda: file.read(PART_BYTES), b""):
                upload.send(part)
                after_part(len(part))


def upload_content(
    api: Api,
    path: Path,
    content: FileDigest,
    *,
    target: ObjectAddress,
    before_part: Callable[[], None],
    after_part: Callable[[int], None],
) -> str:
    """Upload one file with a known digest and return the ETag. Raises FileChanged if the content has changed.

    `before_part` is called before each part, `after_part` with its size.
    """
    sizes, digests = part_sizes(content.size), []
    with path.open("rb") as file:
        if len(sizes) == 1:
            before_part()
            body = file.read(content.size + 1)
            etag = _put_content(api, path, body, content=content, target=target)
            after_part(content.size)
            return etag
        with _multipart_upload(api, target, ChecksumAlgorithm="SHA256") as upload:
            for size in sizes:
                before_part()
                part = file.read(size)
                digests.append(hashlib.sha256(part).digest())
                upload.send(part, ChecksumSHA256=encode_digest(digests[-1]))
                after_part(size)
            if file.read(1) or checksum_of(digests, content.size) != content.checksum:
                raise FileChanged(path)
        return upload.etag


def copy_content(api: Api, source: ObjectAddress, content: FileDigest, *, target: ObjectAddress) -> str | None:
    """Copy an object on the server and return the ETag; None if the source is gone or has other content."""
    try:
        if content.size > _MAX_COPY_BYTES:
            return _copy_parts(api, source, content, target=target)
        request = {"Bucket": target.bucket, "Key": target.key, "CopySource": source.copy_source}
        copied = api.call("s3", "CopyObject", **request)["CopyObjectResult"]
    except CallFailed as error:
        if error.status in (404, 412, 416):
            return None
        raise
    etag: str = copied["ETag"]
    return etag if copied.get("ChecksumSHA256") == content.checksum else None


def upload_folder(
    api: Api,
    folder: Path,
    *,
    bucket: str,
    prefix: str,
    extra: ExtraArguments | None = None,
    after_part: Callable[[int], None] = lambda _size: None,
) -> None:
    """Upload every file below a folder, with its path in the folder as the key."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            key = join_key(prefix, path.relative_to(folder).as_posix())
            upload_file(api, path, bucket=bucket, key=key, extra=extra, after_part=after_part)


def download_object(
    api: Api, target: Path, *, bucket: str, key: str, after_part: Callable[[int], None] = lambda _size: None
) -> None:
    """Download one object. The file appears only when it is complete. `after_part` is called with each part's size."""
    head = api.call("s3", "HeadObject", Bucket=bucket, Key=key)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two downloads of one object may run at the same time, so each has its own temporary file.
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with partial.open("xb") as file:
            for start in range(0, head["ContentLength"], PART_BYTES):
                span = f"bytes={start}-{start + PART_BYTES - 1}"
                part = api.call("s3", "GetObject", Bucket=bucket, Key=key, Range=span, IfMatch=head["ETag"])
                file.write(part["Body"])
                after_part(len(part["Body"]))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def list_keys(api: Api, bucket: str, prefix: str) -> Iterator[str]:
    """Yield the keys with a prefix."""
    return (each["Key"] for each in _list_contents(api, bucket, prefix))


def list_objects(api: Api, bucket: str, prefix: str) -> Iterator[ListedObject]:
    """Yield the objects with a prefix, sorted by key."""
    for each in _list_contents(api, bucket, prefix):
        yield ListedObject(each["Key"], each["Size"], each["ETag"], each["LastModified"])


def local_path(folder: Path, key: str, prefix: str) -> Path:
    """Return the path to which a download writes an object. Raises InvalidRequest if it is outside the folder."""
    inside = key.removeprefix(prefix.rstrip("/") + "/")
    # Equal if the prefix is the key itself, or ends in the middle of a name.
    if inside == key:
        inside = key.removeprefix(prefix.rpartition("/")[0]).lstrip("/")
    parts = PurePosixPath(inside).parts
    if not parts or ".." in parts or PurePosixPath(inside).is_absolute():
        raise InvalidRequest(f'The key "{key}" would be written outside of "{folder}".')
    return folder.joinpath(*parts)


def join_key(*parts: str) -> str:
    """Join the parts of a key. Empty parts are skipped."""
    return "/".join(stripped for part in parts if (stripped := part.strip("/")))


def _list_contents(api: Api, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    # URL encoding, because XML cannot represent every character of a key.
    request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "EncodingType": "url"}
    while True:
        page = api.call("s3", "ListObjectsV2", **request)
        is_encoded = page.get("EncodingType") == "url"
        for each in page.get("Contents", ()):
            yield {**each, "Key": unquote(each["Key"])} if is_encoded else each
        if not page.get("IsTruncated"):
            return
        request["ContinuationToken"] = page["NextContinuationToken"]


def _put_content(api: Api, path: Path, body: bytes, *, content: FileDigest, target: ObjectAddress) -> str:
    if len(body) != content.size:
        raise FileChanged(path)
    request = {"Bucket": target.bucket, "Key": target.key, "Body": body, "ChecksumSHA256": content.checksum}
    try:
        etag: str = api.call("s3", "PutObject", **request)["ETag"]
    except CallFailed as error:
        if error.code == "BadDigest":
            raise FileChanged(path) from error
        raise
    return etag


def _copy_parts(api: Api, source: ObjectAddress, content: FileDigest, *, target: ObjectAddress) -> str | None:
    start = 0
    with _multipart_upload(api, target, ChecksumAlgorithm="SHA256") as upload:
        for size in part_sizes(content.size):
            upload.copy(source, start=start, size=size)
            start += size
    return upload.etag if upload.checksum == content.checksum else None


class _ClientMultipartUpload:
    """A multipart upload of S3."""

    def __init__(self, api: Api, upload: dict[str, str]) -> None:
        self._api, self._upload = api, upload
        self._parts: list[dict[str, Any]] = []
        self.etag = self.checksum = ""

    def send(self, part: bytes, **more: str) -> None:
        number = len(self._parts) + 1
        response = self._api.call("s3", "UploadPart", **self._upload, PartNumber=number, Body=part, **more)
        self._parts.append({"PartNumber": number, "ETag": response["ETag"], **more})

    def copy(self, source: ObjectAddress, *, start: int, size: int) -> None:
        number = len(self._parts) + 1
        span = f"bytes={start}-{start + size - 1}"
        request = {"CopySource": source.copy_source, "CopySourceRange": span}
        copied = self._api.call("s3", "UploadPartCopy", **self._upload, PartNumber=number, **request)["CopyPartResult"]
        tags = {name: copied[name] for name in ("ETag", "ChecksumSHA256") if name in copied}
        self._parts.append({"PartNumber": number, **tags})

    def complete(self) -> None:
        parts = {"Parts": self._parts}
        response = self._api.call("s3", "CompleteMultipartUpload", **self._upload, MultipartUpload=parts)
        self.etag, self.checksum = response.get("ETag", ""), response.get("ChecksumSHA256", "")

    def abort(self) -> None:
        self._api.call("s3", "AbortMultipartUpload", **self._upload)


@contextmanager
def _multipart_upload(api: Api, target: ObjectAddress, **options: str) -> Iterator[_ClientMultipartUpload]:
    """Create an upload that is completed at the end of the block, or aborted if the block fails."""
    address = {"Bucket": target.bucket, "Key": target.key}
    upload_id = api.call("s3", "CreateMultipartUpload", **address, **options)["UploadId"]
    upload = _ClientMultipartUpload(api, {**address, "UploadId": upload_id})
    try:
        yield upload
        upload.complete()
    except BaseException:
        upload.abort()
        raise
