"""The bytes of an object that a request asks for: all, a range, or a part."""

import re
from dataclasses import dataclass

from trainyard.objects.contract import Checksum, ObjectInfo
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import invalid_argument, invalid_request
from trainyard.wire.fault import Fault

MAX_PART_NUMBER = 10_000

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_COPY_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes of an object. `is_partial` if the request named a range or part; `checksum` covers exactly these bytes."""

    offset: int
    size: int
    is_partial: bool = False
    checksum: Checksum | None = None
    parts: int | None = None


def requested_range(shape: Shape, info: ObjectInfo) -> ByteRange:
    """Return what a GetObject or HeadObject asks for: the whole object, a range, or a part."""
    text, number = shape.get("Range"), shape.get("PartNumber")
    if number is not None:
        if text is not None:
            raise invalid_request("Range and partNumber cannot be combined.")
        return _part(require_part_number(number), info)
    if text is None:
        return _whole(info)
    return _range(text, info)


def copied_range(text: str | None, info: ObjectInfo) -> ByteRange:
    """Return what an UploadPartCopy copies of its source. As on S3, the syntax is stricter than for a read."""
    if text is None:
        return _whole(info)
    match = _COPY_RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, -1)
    if first > last:
        raise invalid_argument(
            "x-amz-copy-source-range must have the form bytes=first-last, counted from zero.",
            name="x-amz-copy-source-range",
            value=text,
        )
    if last >= info.size:
        raise invalid_argument(
            f"The range exceeds the source object of {info.size} bytes.",
            name="x-amz-copy-source-range",
            value=text,
        )
    return ByteRange(first, last - first + 1, is_partial=True)


def require_part_number(number: int) -> int:
    """Return the part number if it is valid."""
    if not 1 <= number <= MAX_PART_NUMBER:
        raise invalid_argument(
            f"Part number must be an integer between 1 and {MAX_PART_NUMBER}, inclusive",
            name="partNumber",
            value=number,
        )
    return number


def _whole(info: ObjectInfo) -> ByteRange:
    return ByteRange(0, info.size, checksum=info.checksum)


def _range(text: str, info: ObjectInfo) -> ByteRange:
    """Parse one range. Anything else, such as several ranges, means the whole object, as RFC 9110 permits."""
    match = _RANGE.fullmatch(text.strip())
    if not match or match[0] == "bytes=-":
        return _whole(info)
    first = int(match[1]) if match[1] else max(0, info.size - int(match[2]))
    last = min(int(match[2]), info.size - 1) if match[1] and match[2] else info.size - 1
    if match[1] and match[2] and int(match[2]) < first:
        return _whole(info)
    if first >= info.size:
        raise _unsatisfiable(text, info)
    return ByteRange(first, last - first + 1, is_partial=True)


def _part(number: int, info: ObjectInfo) -> ByteRange:
    """Return one part of an object that was uploaded in parts; any other object has a single part."""
    if number == 1 and not info.parts:
        return ByteRange(0, info.size, is_partial=info.size > 0, checksum=info.checksum)
    offset = 0
    for part in info.parts:
        if part.number == number:
            return ByteRange(offset, part.size, is_partial=part.size > 0, checksum=part.checksum, parts=len(info.parts))
        offset += part.size
    raise Fault(
        "InvalidPartNumber",
        "The requested partnumber is not satisfiable",
        status=416,
        members={"PartNumberRequested": str(number), "ActualPartCount": str(len(info.parts) or 1)},
    )


def _unsatisfiable(text: str, info: ObjectInfo) -> Fault:
    return Fault(
        "InvalidRange",
        "The requested range is not satisfiable",
        status=416,
        members={"RangeRequested": text, "ActualObjectSize": str(info.size)},
        headers={"content-range": f"bytes */{info.size}"},
    )
