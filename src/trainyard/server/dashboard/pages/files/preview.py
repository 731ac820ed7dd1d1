"""Shows what is in a file: the kind of preview that fits its first bytes, of a bounded part of it.

An answer has a `kind`, which `preview.js` knows how to draw. Names decide nothing that matters for safety: a picture is
one by its first bytes, and everything else is data for tables and text.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from trainyard.server.dashboard.api import YardApi
from trainyard.server.dashboard.pages.files.archives import (
    Contents,
    NoSuchMember,
    archive_kind,
    decompress_start,
    list_archive,
    open_member,
    read_start,
)
from trainyard.server.dashboard.pages.files.arrays import (
    NUMPY_MAGIC,
    numpy_array,
    safetensors_header_size,
    safetensors_tensors,
)
from trainyard.server.dashboard.pages.files.object_file import FoundObject, ReadingLimit, read_as_file, read_range
from trainyard.server.dashboard.pages.files.pictures import HEAD_BYTES, MAX_BYTES, picture_of
from trainyard.server.dashboard.pages.files.texts import (
    MAX_JSON_BYTES,
    PIECE_BYTES,
    byte_dump,
    indented_json,
    is_text,
    separated_table,
    text_piece,
)
from trainyard.server.dashboard.pages.files.torch_files import MAX_PICKLE_BYTES, pickle_start, torch_tensors
from trainyard.server.parquet_process import MAX_BYTES as MAX_PARQUET_BYTES
from trainyard.server.parquet_process import Unreadable, read_parquet_head
from trainyard.server.services.contract import Shape

# Of an archive, before decompression.
_ARCHIVE_BYTES, _ARCHIVE_S = 512 * 1024 * 1024, 5.0
# Of a member of an archive, after decompression.
MAX_MEMBER_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = max(HEAD_BYTES, PIECE_BYTES)
_MAX_ARRAYS = 200
_TOO_FAR = "The file lies too far inside its archive to be shown here; download the archive."

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class PreviewContent:
    """What a preview is made of: a name, a size, and how to read a part of it."""

    name: str
    size: int
    read: Callable[[int, int], Awaitable[bytes]]


def content_of_object(api: YardApi, found: FoundObject) -> PreviewContent:
    async def read(first: int, size_bytes: int) -> bytes:
        return await read_range(api, found, first, size_bytes)

    return PreviewContent(found.name, found.size, read)


async def content_of_member(api: YardApi, found: FoundObject, member: str) -> PreviewContent:
    """Return the start of a member of an archive; all of it, if it is not too large."""
    kind = await find_archive_kind(api, found)

    def read_member(file: io.BufferedReader) -> bytes:
        with open_member(file, kind, member) as opened:
            return read_start(opened, MAX_MEMBER_BYTES + 1)

    data = await _read_archive(api, found, read_member)
    name = member.rstrip("/").rpartition("/")[2]
    return _in_memory(name, data)


async def find_archive_kind(api: YardApi, found: FoundObject) -> str:
    return archive_kind(await read_range(api, found, 0, 512))


async def read_contents(api: YardApi, found: FoundObject) -> Contents:
    """Return the members of an archive."""
    kind = await find_archive_kind(api, found)

    def list_members(file: io.BufferedReader) -> Contents:
        return list_archive(file, kind)

    return await read_as_file(api, found, list_members, limit_bytes=_ARCHIVE_BYTES, limit_s=_ARCHIVE_S)


async def preview_object(api: YardApi, found: FoundObject, *, first: int, is_raw: bool) -> Shape:
    """Preview an object: what it contains if it is an archive, or the text that it was compressed from."""
    start = await read_range(api, found, 0, 512)
    kind = archive_kind(start)
    if pickle_start(start) is not None:
        return await preview(content_of_object(api, found), first=0, is_raw=is_raw)
    if kind == "zip" and found.name.endswith(".npz"):
        return await _numpy_arrays(api, found)
    if kind == "gzip" and not found.name.endswith((".tar.gz", ".tgz")):
        return await _compressed_text(api, found)
    if kind:
        contents = await read_contents(api, found)
        files = [member for member in contents.members if member.kind == "file"]
        size = sum(member.size for member in files)
        return {"kind": "archive", "files": len(files), "bytes": size, "note": contents.note}
    return await preview(content_of_object(api, found), first=first, is_raw=is_raw)


async def preview(content: PreviewContent, *, first: int, is_raw: bool) -> Shape:
    """Preview a file that is no archive. `is_raw` shows tables and JSON as the text that they are."""
    if content.size == 0:
        return {"kind": "empty"}
    if first:
        return text_piece(await content.read(first, PIECE_BYTES), first=first, total=content.size)
    head = await content.read(0, _HEAD_BYTES)
    return await _known_format(content, head) or await _text(content, head, is_raw=is_raw) or byte_dump(head)


async def _known_format(content: PreviewContent, head: bytes) -> Shape | None:
    if picture := picture_of(head):
        kind = "picture" if picture.is_drawable and content.size <= MAX_BYTES else "large_picture"
        about = {"contentType": picture.content_type, "width": picture.width, "height": picture.height}
        return {"kind": kind} | about
    if head.startswith(NUMPY_MAGIC) and (array := numpy_array(head)):
        return {"kind": "array"} | array
    if size := safetensors_header_size(head):
        header = head[8 : 8 + size] if len(head) >= 8 + size else await content.read(8, size)
        if found := safetensors_tensors(header):
            return {"kind": "tensors"} | found
    if (start := pickle_start(head)) is not None and (
        found := await asyncio.to_thread(torch_tensors, await content.read(start, MAX_PICKLE_BYTES))
    ):
        return {"kind": "tensors"} | found
    if head.startswith(b"PAR1"):
        return await _parquet(content)
    return None


async def _parquet(content: PreviewContent) -> Shape:
    if content.size > MAX_PARQUET_BYTES:
        return {"kind": "note", "note": "Rows are shown of Parquet files of up to 64 MiB; download this one."}
    data = await content.read(0, content.size)
    try:
        found = await asyncio.to_thread(read_parquet_head, data)
    except Unreadable as error:
        return {"kind": "note", "note": str(error)}
    return {"kind": "table", "hasMore": found["total"] > len(found["rows"])} | found


async def _text(content: PreviewContent, head: bytes, *, is_raw: bool) -> Shape | None:
    if not is_text(head):
        return None
    name = content.name.lower()
    if not is_raw and name.endswith((".csv", ".tsv")):
        table = separated_table(head, is_whole=len(head) >= content.size)
        if table:
            return table
    if not is_raw and name.endswith((".json", ".manifest", ".ipynb")) and content.size <= MAX_JSON_BYTES:
        document = await asyncio.to_thread(indented_json, await content.read(0, content.size))
        if document:
            return document
    return text_piece(head[:PIECE_BYTES], first=0, total=content.size)


async def _compressed_text(api: YardApi, found: FoundObject) -> Shape:
    def read_text(file: io.BufferedReader) -> bytes:
        return decompress_start(file, _HEAD_BYTES)

    data = await _read_archive(api, found, read_text)
    shown = await preview(_in_memory(found.name.removesuffix(".gz"), data), first=0, is_raw=False)
    return shown | {"note": "Decompressed; only the start is shown."} if len(data) == _HEAD_BYTES else shown


async def _numpy_arrays(api: YardApi, found: FoundObject) -> Shape:
    """List the arrays of an .npz file, which is a zip archive of numpy files."""

    def read_heads(file: io.BufferedReader) -> list[Shape]:
        names = [member.name for member in list_archive(file, "zip").members if member.name.endswith(".npy")]
        arrays = list[Shape]()
        for name in names[:_MAX_ARRAYS]:
            with open_member(file, "zip", name) as opened:
                array = numpy_array(opened.read(4096))
            if array:
                arrays.append({"name": name.removesuffix(".npy"), "bytes": None} | array)
        return arrays

    arrays = await _read_archive(api, found, read_heads)
    elements = sum(array["elements"] for array in arrays)
    return {
        "kind": "tensors",
        "tensors": arrays,
        "total": len(arrays),
        "elements": elements,
        "metadata": {},
    }


async def _read_archive(api: YardApi, found: FoundObject, read: Callable[[io.BufferedReader], Read]) -> Read:
    try:
        return await read_as_file(api, found, read, limit_bytes=_ARCHIVE_BYTES, limit_s=_ARCHIVE_S)
    except ReadingLimit as error:
        raise NoSuchMember(_TOO_FAR) from error


def _in_memory(name: str, data: bytes) -> PreviewContent:
    async def read(first: int, size_bytes: int) -> bytes:
        return data[first : first + size_bytes]

    return PreviewContent(name, len(data), read)
