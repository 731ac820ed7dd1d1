"""Checks that the index and the data files of a store agree, for `trainyard doctor`."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import Corrupt, Unavailable
from trainyard.objects.datafiles import DataFileMissing, DataFiles, is_sealed
from trainyard.objects.encryption.keyring import Keyring
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.objects.encryption.sealed_files import SealedContent, sealed_size
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


def find_problems(index: DataIndex, files: DataFiles, *, keyring: Keyring, deep: bool) -> Sequence[str]:
    """Return one sentence per problem. Changes by a running yard are not problems, nor are unusable keys."""
    damage = index.find_damage()
    if damage:
        return [f"The index is damaged: {line}" for line in damage]
    check = _ContentCheck(files, keyring, deep=deep)
    return [*_stray_files(index, files), *_damaged_contents(_contents(index), index, check)]


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


def _damaged_contents(contents: Iterator[_Content], index: DataIndex, check: "_ContentCheck") -> Iterator[str]:
    for content in contents:
        problem = check.problem(content)
        # Otherwise it was removed during the check.
        if problem is not None and index.has_reference(content.data):
            yield f"{content.what} {problem} ({check.files.path(content.data)})."


@dataclass(frozen=True, slots=True)
class _ContentCheck:
    files: DataFiles
    keyring: Keyring
    deep: bool

    def problem(self, content: _Content) -> str | None:
        """Return what is wrong with a data file as the end of a sentence; None if nothing is."""
        size = self.files.size(content.data)
        expected = sum(sealed_size(span.size) if is_sealed(content.data) else span.size for span in content.ranges)
        if size is None:
            return "has lost its data file"
        if size != expected:
            return f"should have {expected} bytes, but its data file has {size}"
        if not self.deep:
            return None
        try:
            found = self._md5s(content)
        except DataFileMissing:
            return "has lost its data file"
        except Corrupt as error:
            return f"is damaged: {error.message.removesuffix('.')}"
        # The user disabled or deleted its key, or the master key is missing, which another check reports.
        except (KeyUnusable, Unavailable):
            return None
        is_intact = all(md5 == span.md5 for md5, span in zip(found, content.ranges, strict=True))
        return None if is_intact else "has changed since it was stored: the MD5 of its data file differs"

    def _md5s(self, content: _Content) -> list[str]:
        """Return the MD5 of each range of the content."""
        if not is_sealed(content.data):
            return [
                _md5(self.files.chunks(content.data, offset=span.offset, size=span.size)) for span in content.ranges
            ]
        with self.files.open(content.data) as file:
            sealed = SealedContent(file, [span.size for span in content.ranges], self.keyring)
            return [_md5(chunks) for chunks in sealed.segment_chunks()]


def _md5(chunks: Iterable[bytes]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
