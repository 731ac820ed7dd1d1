"""Objects in the headers and XML that a yard sends and receives."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote

from trainyard.foundation.locations import Location
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    Listing,
    ObjectInfo,
    ObjectSummary,
    Precondition,
)
from trainyard.objects.encryption.headers import HEADERS
from trainyard.objects.served.connections import YardResponse

# Requests the checksum too.
CHECKSUM_MODE = {"x-amz-checksum-mode": "ENABLED"}

_METADATA_PREFIX = "x-amz-meta-"
_CHECKSUM_PREFIX = "x-amz-checksum-"
_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
# The yard sends these if the writer set none.
_DEFAULT_HEADERS = {"content-type": "binary/octet-stream"}
_ATTRIBUTE_HEADERS = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    *HEADERS,
    "x-amz-website-redirect-location",
)


def parse_info(where: Location, response: YardResponse) -> ObjectInfo:
    """Parse the headers of an object, which do not include its tags and parts."""
    received = {name: response.header(name) for name in _ATTRIBUTE_HEADERS}
    headers = {name: text for name, text in received.items() if text and _DEFAULT_HEADERS.get(name) != text}
    return ObjectInfo(
        where,
        int(response.header("content-length")),
        response.header("etag").strip('"'),
        parsedate_to_datetime(response.header("last-modified")),
        Attributes(headers, response.headers(_METADATA_PREFIX)),
        _checksum(response),
    )


def attribute_headers(attributes: Attributes, checksum: Checksum | None) -> dict[str, str]:
    """Return the headers that write an object with its attributes."""
    headers = dict(attributes.headers)
    headers |= {f"{_METADATA_PREFIX}{name}": text for name, text in attributes.metadata.items()}
    if attributes.tags:
        headers["x-amz-tagging"] = "&".join(f"{quote(name)}={quote(text)}" for name, text in attributes.tags.items())
    if checksum is not None:
        headers[f"{_CHECKSUM_PREFIX}{checksum.algorithm.lower()}"] = checksum.value
    return headers


def condition_headers(precondition: Precondition) -> dict[str, str]:
    """Return the headers of a conditional write."""
    if precondition.absent:
        return {"if-none-match": "*"}
    return {"if-match": f'"{precondition.etag}"'} if precondition.etag is not None else {}


def parse_listing(text: bytes) -> Listing:
    """Parse one page of a listing. Names are percent-encoded because XML cannot contain every key."""
    document = ET.fromstring(text)
    objects = [_summary(each) for each in document.iter(f"{_NAMESPACE}Contents")]
    prefixes = [unquote(_member(each, "Prefix")) for each in document.iter(f"{_NAMESPACE}CommonPrefixes")]
    is_last = _member(document, "IsTruncated") != "true"
    last = max([*(each.key for each in objects[-1:]), *prefixes[-1:]], key=str.encode, default="")
    return Listing(objects, prefixes, None if is_last else last)


def parse_upload_id(text: bytes) -> str:
    return _member(ET.fromstring(text), "UploadId")


def parse_etag(text: bytes) -> str:
    return _member(ET.fromstring(text), "ETag").strip('"')


def completion_document(etags: Mapping[int, str]) -> bytes:
    """Return the document that names the parts of an upload."""
    root = ET.Element("CompleteMultipartUpload", xmlns=_NAMESPACE.strip("{}"))
    for number in sorted(etags):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = f'"{etags[number]}"'
    return ET.tostring(root)


def _checksum(response: YardResponse) -> Checksum | None:
    for algorithm in ChecksumAlgorithm:
        value = response.header(f"{_CHECKSUM_PREFIX}{algorithm.lower()}")
        if value:
            return Checksum(algorithm, value, ChecksumType(response.header(f"{_CHECKSUM_PREFIX}type") or "FULL_OBJECT"))
    return None


def _summary(entry: ET.Element) -> ObjectSummary:
    return ObjectSummary(
        unquote(_member(entry, "Key")),
        int(_member(entry, "Size")),
        _member(entry, "ETag").strip('"'),
        datetime.fromisoformat(_member(entry, "LastModified")),
    )


def _member(element: ET.Element, name: str) -> str:
    return element.findtext(f"{_NAMESPACE}{name}") or ""
