"""What a yard tells of objects, in headers and in XML, and what is told it in headers."""

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
from trainyard.objects.served.connections import Answer

TELLING = {"x-amz-checksum-mode": "ENABLED"}  # asks for the checksum too

_META = "x-amz-meta-"
_CHECKSUM = "x-amz-checksum-"
_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_NOT_SAID = {"content-type": "binary/octet-stream"}  # by which the yard answers what was never said
_SAID = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    "x-amz-server-side-encryption",
    "x-amz-website-redirect-location",
)


def info_of(where: Location, answer: Answer) -> ObjectInfo:
    """What the headers of an object tell. Neither its tags nor its parts are among them."""
    said = {name: answer.header(name) for name in _SAID}
    headers = {name: text for name, text in said.items() if text and _NOT_SAID.get(name) != text}
    return ObjectInfo(
        where,
        int(answer.header("content-length")),
        answer.header("etag").strip('"'),
        parsedate_to_datetime(answer.header("last-modified")),
        Attributes(headers, answer.headers(_META)),
        _checksum(answer),
    )


def attribute_headers(attributes: Attributes, checksum: Checksum | None) -> dict[str, str]:
    """The headers by which an object is written with its attributes."""
    headers = dict(attributes.headers)
    headers |= {f"{_META}{name}": text for name, text in attributes.metadata.items()}
    if attributes.tags:
        headers["x-amz-tagging"] = "&".join(f"{quote(name)}={quote(text)}" for name, text in attributes.tags.items())
    if checksum is not None:
        headers[f"{_CHECKSUM}{checksum.algorithm.lower()}"] = checksum.value
    return headers


def condition_headers(precondition: Precondition) -> dict[str, str]:
    """The headers of a write that demands a state of its target."""
    if precondition.absent:
        return {"if-none-match": "*"}
    return {"if-match": f'"{precondition.etag}"'} if precondition.etag is not None else {}


def listing_of(text: bytes) -> Listing:
    """One page, whose names are percent-encoded because XML cannot carry every key."""
    told = ET.fromstring(text)
    objects = [_summary(each) for each in told.iter(f"{_NAMESPACE}Contents")]
    prefixes = [unquote(_member(each, "Prefix")) for each in told.iter(f"{_NAMESPACE}CommonPrefixes")]
    is_last = _member(told, "IsTruncated") != "true"
    last = max([*(each.key for each in objects[-1:]), *prefixes[-1:]], key=str.encode, default="")
    return Listing(objects, prefixes, None if is_last else last)


def upload_id_of(text: bytes) -> str:
    return _member(ET.fromstring(text), "UploadId")


def etag_of(text: bytes) -> str:
    return _member(ET.fromstring(text), "ETag").strip('"')


def completion(etags: Mapping[int, str]) -> bytes:
    """The document that names the parts of an upload."""
    root = ET.Element("CompleteMultipartUpload", xmlns=_NAMESPACE.strip("{}"))
    for number in sorted(etags):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = f'"{etags[number]}"'
    return ET.tostring(root)


def _checksum(answer: Answer) -> Checksum | None:
    for algorithm in ChecksumAlgorithm:
        value = answer.header(f"{_CHECKSUM}{algorithm.lower()}")
        if value:
            return Checksum(algorithm, value, ChecksumType(answer.header(f"{_CHECKSUM}type") or "FULL_OBJECT"))
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
