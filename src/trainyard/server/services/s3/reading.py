"""Objects given back: GetObject, HeadObject and GetObjectAttributes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from trainyard.foundation.locations import Location
from trainyard.objects.contract import IsNear, LiesInFile, ObjectInfo, ObjectPart, ObjectReader
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of
from trainyard.server.services.s3.attributes import attribute_members, storage_class
from trainyard.server.services.s3.checksums import checksum_members, digest_member
from trainyard.server.services.s3.conditions import check_read
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.server.services.s3.paging import page_limit
from trainyard.server.services.s3.ranges import Span, span_of
from trainyard.wire.http import CONTROLS, FileSlice

# A body up to here is read at once rather than sent from the file afterwards.
SMALL_BYTES = 256 * 1024
BITE_BYTES = 1024 * 1024

_OVERRIDES = {
    "ResponseCacheControl": "CacheControl",
    "ResponseContentDisposition": "ContentDisposition",
    "ResponseContentEncoding": "ContentEncoding",
    "ResponseContentLanguage": "ContentLanguage",
    "ResponseContentType": "ContentType",
    "ResponseExpires": "Expires",
}


async def get_object(call: Call, shape: Shape) -> Shape:
    objects = call.yard.objects
    if isinstance(objects, IsNear):
        opened = _opened(call, shape, how=objects.open_near)
    else:
        opened = await asyncio.to_thread(_opened, call, shape, how=objects.open)
    opened.answer["Body"] = await _body(opened.reader, opened.span)
    return opened.answer


def head_object(call: Call, shape: Shape) -> Shape:
    info = call.yard.objects.info(location_of(call, shape))
    check_read(shape, info, now=call.now)
    return _members(shape, info, span=span_of(shape, info))


def get_object_attributes(call: Call, shape: Shape) -> Shape:
    info = call.yard.objects.info(location_of(call, shape))
    told: Shape = {
        "ETag": info.etag,
        "Checksum": checksum_members(info.checksum) or None,
        "ObjectParts": _part_page(info, shape) if info.parts else None,
        "StorageClass": storage_class(info.attributes),
        "ObjectSize": info.size,
    }
    wanted = set(shape["ObjectAttributes"])
    for name in wanted - told.keys():
        raise invalid_argument("Invalid attribute name specified.", name="x-amz-object-attributes", value=name)
    return {"LastModified": info.modified_at} | {name: told[name] for name in told if name in wanted}


OPERATIONS: Operations = {
    "GetObject": get_object,
    "HeadObject": head_object,
    "GetObjectAttributes": get_object_attributes,
}


class Bites:
    """The body of an answer, read piece by piece in worker threads. `aclose` must be called, read to the end or not."""

    def __init__(self, reader: ObjectReader, span: Span) -> None:
        self._reader = reader
        self._next, self._end = span.offset, span.offset + span.size

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._next >= self._end:
            raise StopAsyncIteration
        data = await asyncio.to_thread(self._reader.read, self._next, min(BITE_BYTES, self._end - self._next))
        self._next += len(data)
        return data

    async def aclose(self) -> None:
        await asyncio.to_thread(self._reader.close)


def _members(shape: Shape, info: ObjectInfo, *, span: Span) -> Shape:
    answer = attribute_members(info.attributes)
    answer["AcceptRanges"] = "bytes"
    answer["LastModified"] = info.modified_at
    answer["ContentLength"] = span.size
    answer["ETag"] = f'"{info.etag}"'
    if span.is_piece:
        answer["ContentRange"] = f"bytes {span.offset}-{span.offset + span.size - 1}/{info.size}"
    if span.parts is not None:
        answer["PartsCount"] = span.parts
    if span.checksum is not None and shape.get("ChecksumMode") == "ENABLED":
        answer |= checksum_members(span.checksum)
    for override in _OVERRIDES.keys() & shape.keys():
        answer[_OVERRIDES[override]] = _checked_override(override, shape[override])
    return answer


def _checked_override(name: str, value: Any) -> Any:
    if isinstance(value, str) and CONTROLS.search(value):
        raise invalid_argument("A header cannot have a line break or another control character.", name=name, value="")
    return value


@dataclass(frozen=True, slots=True)
class _Opened:
    """An object that is about to be given back, and all of the answer but its body."""

    reader: ObjectReader
    span: Span
    answer: Shape


def _opened(call: Call, shape: Shape, *, how: Callable[[Location], ObjectReader]) -> _Opened:
    reader = how(location_of(call, shape))
    try:
        check_read(shape, reader.info, now=call.now)
        span = span_of(shape, reader.info)
        return _Opened(reader, span, _members(shape, reader.info, span=span))
    except BaseException:
        reader.close()
        raise


async def _body(reader: ObjectReader, span: Span) -> "bytes | FileSlice | Bites":
    """The bytes themselves when they are few; otherwise a way to them, and who goes it closes the reader's file."""
    if span.size > SMALL_BYTES:
        return FileSlice(reader.file, span.offset, span.size) if isinstance(reader, LiesInFile) else Bites(reader, span)
    with reader:
        data = reader.read_now(span.offset, span.size) if isinstance(reader, LiesInFile) else None
        return await asyncio.to_thread(reader.read, span.offset, span.size) if data is None else data


def _part_page(info: ObjectInfo, shape: Shape) -> Shape:
    marker, limit = shape.get("PartNumberMarker") or 0, page_limit(shape, "MaxParts", name="x-amz-max-parts")
    rest = [part for part in info.parts if part.number > marker]
    page = rest[:limit]
    return {
        "TotalPartsCount": len(info.parts),
        "PartNumberMarker": marker,
        "NextPartNumberMarker": page[-1].number if page else marker,
        "MaxParts": limit,
        "IsTruncated": len(rest) > len(page) > 0,
        "Parts": [_part_members(part) for part in page],
    }


def _part_members(part: ObjectPart) -> Shape:
    return {"PartNumber": part.number, "Size": part.size} | digest_member(part.checksum)
