"""What a client says about an object: system headers, metadata of its own, tags."""

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.objects.contract import Attributes
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.tagging import parse_tagging_header
from trainyard.wire.fault import Fault
from trainyard.wire.http import FIELD_NAME

MAX_METADATA_BYTES = 2048
DEFAULT_TYPE = "binary/octet-stream"
STANDARD = "STANDARD"

_STORAGE_CLASS = "x-amz-storage-class"
_BUCKET_KEY = "x-amz-server-side-encryption-bucket-key-enabled"

_DESCRIPTION = {
    "CacheControl": "cache-control",
    "ContentDisposition": "content-disposition",
    "ContentEncoding": "content-encoding",
    "ContentLanguage": "content-language",
    "ContentType": "content-type",
    "Expires": "expires",
}
_ENCRYPTION = {
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "BucketKeyEnabled": _BUCKET_KEY,
}
_KEEPING = {
    **_ENCRYPTION,
    "StorageClass": _STORAGE_CLASS,
    "WebsiteRedirectLocation": "x-amz-website-redirect-location",
}
_MEMBERS = {header: member for member, header in (_DESCRIPTION | _KEEPING).items()}


def attributes_of(shape: Shape) -> Attributes:
    """All that the request says of the object it writes."""
    headers = {"content-type": DEFAULT_TYPE, **description_of(shape), **keeping_of(shape)}
    tags = shape.get("Tagging")
    return Attributes(headers, metadata_of(shape), parse_tagging_header(tags) if tags else {})


def description_of(shape: Shape) -> dict[str, str]:
    """The headers that describe the content."""
    headers = _headers(shape, _DESCRIPTION)
    encoding = _without_chunking(headers.pop("content-encoding", ""))
    return headers | {"content-encoding": encoding} if encoding else headers


def keeping_of(shape: Shape) -> dict[str, str]:
    """The headers that say how the object is to be kept."""
    headers = _headers(shape, _KEEPING)
    if headers.get(_STORAGE_CLASS) == STANDARD:
        del headers[_STORAGE_CLASS]
    return headers


def metadata_of(shape: Shape) -> dict[str, str]:
    """The client's own metadata, within the limit that S3 sets."""
    metadata: dict[str, str] = shape.get("Metadata") or {}
    # The text of a header has one character for each byte of it.
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        raise Fault(
            "MetadataTooLarge",
            f"The metadata has {size} bytes; {MAX_METADATA_BYTES} are allowed.",
            members={"Size": str(size), "MaxSizeAllowed": str(MAX_METADATA_BYTES)},
        )
    return metadata


def carried_over(attributes: Attributes) -> dict[str, str]:
    """The headers that a copy takes along from its source; the rest is decided by each write."""
    return {header: text for header, text in attributes.headers.items() if header in _DESCRIPTION.values()}


def attribute_members(attributes: Attributes) -> Shape:
    """The members of a GetObject or HeadObject answer that give the attributes back."""
    shape: Shape = {
        _MEMBERS[header]: _READ.get(header, str)(text)
        for header, text in attributes.headers.items()
        if header in _MEMBERS
    }
    # What another client of the store kept under a name that no header can have is counted, as S3 does.
    kept = attributes.metadata.items()
    metadata = {name: value for name, value in kept if FIELD_NAME.fullmatch(f"x-amz-meta-{name}")}
    if metadata:
        shape["Metadata"] = metadata
    if len(metadata) < len(attributes.metadata):
        shape["MissingMeta"] = len(attributes.metadata) - len(metadata)
    if attributes.tags:
        shape["TagCount"] = len(attributes.tags)
    return shape


def encryption_members(attributes: Attributes) -> Shape:
    """The members of a write's answer that repeat the encryption asked for."""
    return {
        member: _READ.get(header, str)(attributes.headers[header])
        for member, header in _ENCRYPTION.items()
        if header in attributes.headers
    }


def storage_class(attributes: Attributes) -> str:
    return attributes.headers.get(_STORAGE_CLASS, STANDARD)


def _headers(shape: Shape, members: Mapping[str, str]) -> dict[str, str]:
    """Those that the request gives; one that is there and empty says nothing."""
    return {header: _text(shape[member]) for member, header in members.items() if shape.get(member, "") != ""}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _without_chunking(encoding: str) -> str:
    """The encoding of the object; aws-chunked is that of the request only."""
    return ",".join(word for word in encoding.split(",") if word.strip() and word.strip() != "aws-chunked")


# How the members that are not text are read back from it.
_READ: dict[str, Callable[[str], Any]] = {_BUCKET_KEY: "true".__eq__}
