"""Files to S3 and back, in parts, so that no file need fit into memory."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trainyard.connection import Api
from trainyard.foundation.errors import InvalidRequest

PART_BYTES = 16 * 1024 * 1024


def upload_file(api: Api, path: Path, *, bucket: str, key: str) -> None:
    """Bring one file to S3, whole or not at all."""
    with path.open("rb") as file:
        first = file.read(PART_BYTES)
        if len(first) < PART_BYTES:
            api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=first)
            return
        file.seek(0)
        _upload_parts(api, iter(lambda: file.read(PART_BYTES), b""), bucket=bucket, key=key)


def upload_folder(api: Api, folder: Path, *, bucket: str, prefix: str) -> None:
    """Bring every file below a folder to S3, under its path in the folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            upload_file(api, path, bucket=bucket, key=joined(prefix, path.relative_to(folder).as_posix()))


def download_object(api: Api, target: Path, *, bucket: str, key: str) -> None:
    """Bring one object to a file, which is there only when it is whole."""
    head = api.call("s3", "HeadObject", Bucket=bucket, Key=key)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("wb") as file:
            for start in range(0, head["ContentLength"], PART_BYTES):
                asked = f"bytes={start}-{start + PART_BYTES - 1}"
                part = api.call("s3", "GetObject", Bucket=bucket, Key=key, Range=asked, IfMatch=head["ETag"])
                file.write(part["Body"])
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def keys_below(api: Api, bucket: str, prefix: str) -> Iterator[str]:
    """The keys that begin with a prefix."""
    page = api.call("s3", "ListObjectsV2", Bucket=bucket, Prefix=prefix)
    while True:
        yield from (entry["Key"] for entry in page.get("Contents", ()))
        if not page.get("IsTruncated"):
            return
        token = page["NextContinuationToken"]
        page = api.call("s3", "ListObjectsV2", Bucket=bucket, Prefix=prefix, ContinuationToken=token)


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


def _upload_parts(api: Api, parts: Iterator[bytes], *, bucket: str, key: str) -> None:
    upload = api.call("s3", "CreateMultipartUpload", Bucket=bucket, Key=key)["UploadId"]
    where = {"Bucket": bucket, "Key": key, "UploadId": upload}
    done = []
    try:
        for number, part in enumerate(parts, 1):
            answer = api.call("s3", "UploadPart", **where, PartNumber=number, Body=part)
            done.append({"PartNumber": number, "ETag": answer["ETag"]})
        api.call("s3", "CompleteMultipartUpload", **where, MultipartUpload={"Parts": done})
    except BaseException:
        api.call("s3", "AbortMultipartUpload", **where)
        raise
