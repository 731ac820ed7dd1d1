"""GetObject, HeadObject and GetObjectAttributes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from trainyard.foundation.locations import Location
from trainyard.objects.contract import HasLocalFile, IsLocal, ObjectInfo, ObjectPart, ObjectReader, ReadsNow
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of
from trainyard.server.services.s3.attributes import attribute_members, storage_class
from trainyard.server.services.s3.byte_ranges import ByteRange, requested_range
from trainyard.server.services.s3.checksums import checksum_members, digest_member
from trainyard.server.services.s3.conditions import require_read_conditions
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.server.services.s3.listing import page_limit
from trainyard.wire.http import CONTROLS, FileSlice

# A body up to this size is read into memory; a larger one is sent from its file.
MAX_IN_MEMORY_BYTES = 256 * 1024
READ_CHUNK_BYTES = 1024 * 1024

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
    if isinstance(objects, IsLocal):
        opened = _open_object(call, shape, open_reader=objects.open_local)
    else:
        opened = await asyncio.to_thread(_open_object, call, shape, open_reader=objects.open)
    opened.answer["Body"] = await _body(opened.reader, opened.byte_range)
    return opened.answer


def head_object(call: Call, shape: Shape) -> Shape:
    info = call.yard.objects.info(location_of(call, shape))
    require_read_conditions(shape, info, now=call.now)
    return _members(shape, info, byte_range=requested_range(shape, info))


def get_object_attributes(call: Call, shape: Shape) -> Shape:
    info = call.yard.objects.info(location_of(call, shape))
    attributes: Shape = {
        "ETag": info.etag,
        "Checksum": checksum_members(info.checksum) or None,
        "ObjectParts": _part_page(info, shape) if info.parts else None,
        "StorageClass": storage_class(info.attributes),
        "ObjectSize": info.size,
    }
    wanted = set(shape["ObjectAttributes"])
    for name in wanted - attributes.keys():
        raise invalid_argument("Invalid attribute name specified.", name="x-amz-object-attributes", value=name)
    return {"LastModified": info.modified_at} | {name: attributes[name] for name in attributes if name in wanted}


OPERATIONS: Operations = {
    "GetObject": get_object,
    "HeadObject": head_object,
    "GetObjectAttributes": get_object_attributes,
}


class ChunkedBody:
    """The body of an answer, read in chunks by worker threads. Call `aclose` in any case, read to the end or not."""

    def __init__(self, reader: ObjectReader, byte_range: ByteRange) -> None:
        self._reader = reader
        self._next, self._end = byte_range.offset, byte_range.offset + byte_range.size

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._next >= self._end:
            raise StopAsyncIteration
        data = await asyncio.to_thread(self._reader.read, self._next, min(READ_CHUNK_BYTES, self._end - self._next))
        self._next += len(data)
        return data

    async def aclose(self) -> None:
        await asyncio.to_thread(self._reader.close)


def _members(shape: Shape, info: ObjectInfo, *, byte_range: ByteRange) -> Shape:
    answer = attribute_members(info.attributes)
    answer["AcceptRanges"] = "bytes"
    answer["LastModified"] = info.modified_at
    answer["ContentLength"] = byte_range.size
    answer["ETag"] = f'"{info.etag}"'
    if byte_range.is_partial:
        answer["ContentRange"] = f"bytes {byte_range.offset}-{byte_range.offset + byte_range.size - 1}/{info.size}"
    if byte_range.parts is not None:
        answer["PartsCount"] = byte_range.parts
    if byte_range.checksum is not None and shape.get("ChecksumMode") == "ENABLED":
        answer |= checksum_members(byte_range.checksum)
    for override in _OVERRIDES.keys() & shape.keys():
        answer[_OVERRIDES[override]] = _require_header_value(override, shape[override])
    return answer


def _require_header_value(name: str, value: Any) -> Any:
    if isinstance(value, str) and CONTROLS.search(value):
        raise invalid_argument("A header cannot contain control characters.", name=name, value="")
    return value


@dataclass(frozen=True, slots=True)
class _OpenedObject:
    """An open object, and the answer without its body."""

    reader: ObjectReader
    byte_range: ByteRange
    answer: Shape


def _open_object(call: Call, shape: Shape, *, open_reader: Callable[[Location], ObjectReader]) -> _OpenedObject:
    reader = open_reader(location_of(call, shape))
    try:
        require_read_conditions(shape, reader.info, now=call.now)
        byte_range = requested_range(shape, reader.info)
        return _OpenedObject(reader, byte_range, _members(shape, reader.info, byte_range=byte_range))
    except BaseException:
        reader.close()
        raise


async def _body(reader: ObjectReader, byte_range: ByteRange) -> "bytes | FileSlice | ChunkedBody":
    """Return the bytes if they are few, else a body to read them from, whose consumer closes the reader."""
    if byte_range.size > MAX_IN_MEMORY_BYTES:
        return (
            FileSlice(reader.file, byte_range.offset, byte_range.size)
            if isinstance(reader, HasLocalFile)
            else ChunkedBody(reader, byte_range)
        )
    with reader:
        data = reader.read_now(byte_range.offset, byte_range.size) if isinstance(reader, ReadsNow) else None
        return await asyncio.to_thread(reader.read, byte_range.offset, byte_range.size) if data is None else data


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
