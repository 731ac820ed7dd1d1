"""Whether the index and the data files of a store agree, for `trainyard doctor`."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.objects.datafiles import DataFileMissing, DataFiles
from trainyard.objects.index_data import DataIndex
from trainyard.objects.rows import StoredObject, StoredPart


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a data file that came in one body, whose MD5 is known."""

    offset: int
    size: int
    md5: str


@dataclass(frozen=True, slots=True)
class _Content:
    """What a data file should hold, and what it is to a user."""

    what: str
    data: str
    pieces: Sequence[_Piece]


def find_problems(index: DataIndex, files: DataFiles, *, deep: bool) -> Sequence[str]:
    """One sentence for each problem. What a running yard does meanwhile is not taken for one."""
    damage = index.damage()
    if damage:
        return [f"The index is damaged: {line}" for line in damage]
    contents = _contents(index)
    return [*_stray_files(index, files), *_spoilt_contents(contents, index, files, deep=deep)]


def _contents(index: DataIndex) -> Iterator[_Content]:
    for stored in index.all_objects():
        yield _Content(str(stored.info.where), stored.data, _pieces(stored))
    for stored_part in index.all_parts():
        yield _part_content(stored_part)


def _pieces(stored: StoredObject) -> Sequence[_Piece]:
    info = stored.info
    if not info.parts:
        return [_Piece(0, info.size, info.etag)]
    pieces: list[_Piece] = []
    offset = 0
    for part in info.parts:
        pieces.append(_Piece(offset, part.size, part.etag))
        offset += part.size
    return pieces


def _part_content(stored: StoredPart) -> _Content:
    part = stored.part
    return _Content(f"Part {part.number} of an unfinished upload", stored.data, [_Piece(0, part.size, part.etag)])


def _stray_files(index: DataIndex, files: DataFiles) -> Iterator[str]:
    for data in files:
        # In the order in which a file goes through these, so that one that moves on is met by a later look.
        if files.is_arriving(data) or index.names(data) or index.discards(data):
            continue
        if files.size(data) is not None:
            yield f"The data file {files.path(data)} belongs to nothing; it only takes up space."


def _spoilt_contents(contents: Iterator[_Content], index: DataIndex, files: DataFiles, *, deep: bool) -> Iterator[str]:
    for content in contents:
        problem = _problem(content, files, deep=deep)
        if problem is not None and index.names(content.data):  # otherwise it was removed while we looked
            yield f"{content.what} {problem} ({files.path(content.data)})."


def _problem(content: _Content, files: DataFiles, *, deep: bool) -> str | None:
    size = files.size(content.data)
    expected = sum(piece.size for piece in content.pieces)
    if size is None:
        return "has lost its data file"
    if size != expected:
        return f"should have {expected} bytes, but its data file has {size}"
    try:
        is_intact = not deep or all(_md5(files, content.data, piece) == piece.md5 for piece in content.pieces)
    except DataFileMissing:
        return "has lost its data file"
    return None if is_intact else "is not what was stored: the MD5 of its data file differs"


def _md5(files: DataFiles, data: str, piece: _Piece) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in files.chunks(data, offset=piece.offset, size=piece.size):
        digest.update(chunk)
    return digest.hexdigest()
