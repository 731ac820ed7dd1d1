"""Checks that the index and the data files of a store agree, for `trainyard doctor`."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.objects.datafiles import DataFileMissing, DataFiles
from trainyard.objects.index_data import DataIndex
from trainyard.objects.rows import StoredObject, StoredPart


@dataclass(frozen=True, slots=True)
class _HashedRange:
    """A range of a data file that was written as one body, with its MD5."""

    offset: int
    size: int
    md5: str


@dataclass(frozen=True, slots=True)
class _Content:
    """The expected content of a data file, and what it is to a user."""

    what: str
    data: str
    ranges: Sequence[_HashedRange]


def find_problems(index: DataIndex, files: DataFiles, *, deep: bool) -> Sequence[str]:
    """Return one sentence per problem. Changes by a running yard are not problems."""
    damage = index.find_damage()
    if damage:
        return [f"The index is damaged: {line}" for line in damage]
    contents = _contents(index)
    return [*_stray_files(index, files), *_damaged_contents(contents, index, files, deep=deep)]


def _contents(index: DataIndex) -> Iterator[_Content]:
    for stored in index.all_objects():
        yield _Content(str(stored.info.where), stored.data, _ranges(stored))
    for stored_part in index.all_parts():
        yield _part_content(stored_part)


def _ranges(stored: StoredObject) -> Sequence[_HashedRange]:
    info = stored.info
    if not info.parts:
        return [_HashedRange(0, info.size, info.etag)]
    ranges: list[_HashedRange] = []
    offset = 0
    for part in info.parts:
        ranges.append(_HashedRange(offset, part.size, part.etag))
        offset += part.size
    return ranges


def _part_content(stored: StoredPart) -> _Content:
    part = stored.part
    return _Content(f"Part {part.number} of an unfinished upload", stored.data, [_HashedRange(0, part.size, part.etag)])


def _stray_files(index: DataIndex, files: DataFiles) -> Iterator[str]:
    for data in files:
        # In the order of a file's life, so that a later check finds a file that moves on meanwhile.
        if files.is_incoming(data) or index.has_reference(data) or index.is_trash(data):
            continue
        if files.size(data) is not None:
            yield f"The data file {files.path(data)} belongs to no object; it only takes up space."


def _damaged_contents(contents: Iterator[_Content], index: DataIndex, files: DataFiles, *, deep: bool) -> Iterator[str]:
    for content in contents:
        problem = _problem(content, files, deep=deep)
        # Otherwise it was removed during the check.
        if problem is not None and index.has_reference(content.data):
            yield f"{content.what} {problem} ({files.path(content.data)})."


def _problem(content: _Content, files: DataFiles, *, deep: bool) -> str | None:
    size = files.size(content.data)
    expected = sum(span.size for span in content.ranges)
    if size is None:
        return "has lost its data file"
    if size != expected:
        return f"should have {expected} bytes, but its data file has {size}"
    try:
        is_intact = not deep or all(_md5(files, content.data, span) == span.md5 for span in content.ranges)
    except DataFileMissing:
        return "has lost its data file"
    return None if is_intact else "has changed since it was stored: the MD5 of its data file differs"


def _md5(files: DataFiles, data: str, span: _HashedRange) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in files.chunks(data, offset=span.offset, size=span.size):
        digest.update(chunk)
    return digest.hexdigest()
