"""The attributes of an object: system headers, user metadata, tags."""

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.objects.contract import Attributes
from trainyard.objects.encryption.headers import ACCOUNT_KEY, ALGORITHM, BUCKET_KEY, KEY, STORE_KEY
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import invalid_argument, not_served
from trainyard.server.services.s3.tagging import parse_tagging_header
from trainyard.wire.fault import Fault
from trainyard.wire.http import FIELD_NAME

MAX_METADATA_BYTES = 2048
DEFAULT_TYPE = "binary/octet-stream"
STANDARD = "STANDARD"

_STORAGE_CLASS = "x-amz-storage-class"

_CONTENT = {
    "CacheControl": "cache-control",
    "ContentDisposition": "content-disposition",
    "ContentEncoding": "content-encoding",
    "ContentLanguage": "content-language",
    "ContentType": "content-type",
    "Expires": "expires",
}
_ENCRYPTION = {
    "ServerSideEncryption": ALGORITHM,
    "SSEKMSKeyId": KEY,
    "BucketKeyEnabled": BUCKET_KEY,
}
_STORAGE = {
    **_ENCRYPTION,
    "StorageClass": _STORAGE_CLASS,
    "WebsiteRedirectLocation": "x-amz-website-redirect-location",
}
_MEMBERS = {header: member for member, header in (_CONTENT | _STORAGE).items()}


def attributes_of(shape: Shape) -> Attributes:
    """Return the attributes that a request gives to the object it writes."""
    headers = {"content-type": DEFAULT_TYPE, **content_headers(shape), **storage_headers(shape)}
    tags = shape.get("Tagging")
    return Attributes(headers, metadata_of(shape), parse_tagging_header(tags) if tags else {})


def content_headers(shape: Shape) -> dict[str, str]:
    """Return the headers that describe the content."""
    headers = _headers(shape, _CONTENT)
    encoding = _without_chunking(headers.pop("content-encoding", ""))
    return headers | {"content-encoding": encoding} if encoding else headers


def storage_headers(shape: Shape) -> dict[str, str]:
    """Return the headers that say how to store the object."""
    headers = _headers(shape, _STORAGE)
    _require_encryption(headers)
    if headers.get(_STORAGE_CLASS) == STANDARD:
        del headers[_STORAGE_CLASS]
    return headers


def metadata_of(shape: Shape) -> dict[str, str]:
    """Return the user metadata; MetadataTooLarge if it exceeds the limit of S3."""
    metadata: dict[str, str] = shape.get("Metadata") or {}
    # Header text has one character per byte.
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        raise Fault(
            "MetadataTooLarge",
            f"The metadata has {size} bytes; at most {MAX_METADATA_BYTES} are allowed.",
            members={"Size": str(size), "MaxSizeAllowed": str(MAX_METADATA_BYTES)},
        )
    return metadata


def copied_headers(attributes: Attributes) -> dict[str, str]:
    """Return the headers that a copy takes from its source; each write sets the others."""
    return {header: text for header, text in attributes.headers.items() if header in _CONTENT.values()}


def attribute_members(attributes: Attributes) -> Shape:
    """Return the attributes as members of a GetObject or HeadObject answer."""
    shape: Shape = {
        _MEMBERS[header]: _PARSERS.get(header, str)(text)
        for header, text in attributes.headers.items()
        if header in _MEMBERS
    }
    # Another client of the store may have used names that no header can have. As on S3, these are only counted.
    metadata = {
        name: value for name, value in attributes.metadata.items() if FIELD_NAME.fullmatch(f"x-amz-meta-{name}")
    }
    if metadata:
        shape["Metadata"] = metadata
    if len(metadata) < len(attributes.metadata):
        shape["MissingMeta"] = len(attributes.metadata) - len(metadata)
    if attributes.tags:
        shape["TagCount"] = len(attributes.tags)
    return shape


def encryption_members(headers: Mapping[str, str]) -> Shape:
    """Return the encryption of an object, which its headers describe, as members of the answer to a write."""
    return {
        member: _PARSERS.get(header, str)(headers[header])
        for member, header in _ENCRYPTION.items()
        if header in headers
    }


def storage_class(attributes: Attributes) -> str:
    return attributes.headers.get(_STORAGE_CLASS, STANDARD)


def require_served_encryption(algorithm: str) -> None:
    if algorithm not in (STORE_KEY, ACCOUNT_KEY):
        raise not_served(f"the encryption {algorithm}; use {STORE_KEY} or {ACCOUNT_KEY}")


def _require_encryption(headers: Mapping[str, str]) -> None:
    """Refuse a combination of encryption headers that S3 refuses too, and algorithms that the yard does not have."""
    algorithm = headers.get(ALGORITHM)
    if algorithm is not None:
        require_served_encryption(algorithm)
    if KEY in headers and algorithm != ACCOUNT_KEY:
        raise invalid_argument(
            "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : "
            "aws:kms",
            name=ALGORITHM,
            value=algorithm or "",
        )


def _headers(shape: Shape, members: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the request gives, without empty ones."""
    return {header: _text(shape[member]) for member, header in members.items() if shape.get(member, "") != ""}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _without_chunking(encoding: str) -> str:
    """Return the encoding of the object. aws-chunked is the encoding of the request only."""
    return ",".join(word for word in encoding.split(",") if word.strip() and word.strip() != "aws-chunked")


# Parse the members that are not text.
_PARSERS: dict[str, Callable[[str], Any]] = {BUCKET_KEY: "true".__eq__}
