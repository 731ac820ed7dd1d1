"""Converts values of the contract to columns and small JSON texts, and back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import (
    Attributes,
    Bucket,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    ObjectInfo,
    ObjectPart,
)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and the data file that holds its bytes."""

    data: str
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of an upload and the data file that holds its bytes."""

    data: str
    part: ObjectPart


def checksum_text(checksum: Checksum | None) -> str | None:
    return None if checksum is None else f"{checksum.algorithm} {checksum.type} {checksum.value}"


def read_checksum(text: str | None) -> Checksum | None:
    if text is None:
        return None
    algorithm, kind, value = text.split(" ")
    # Indexing an enum takes a third of the time of calling it.
    return Checksum(ChecksumAlgorithm[algorithm], value, ChecksumType[kind])


def attributes_text(attributes: Attributes) -> str | None:
    """Return JSON; None for the many objects without attributes."""
    if not (attributes.headers or attributes.metadata or attributes.tags):
        return None
    return json.dumps([dict(attributes.headers), dict(attributes.metadata), dict(attributes.tags)])


def read_attributes(text: str | None) -> Attributes:
    return Attributes() if text is None else Attributes(*json.loads(text))


def parts_text(parts: Sequence[ObjectPart]) -> str | None:
    if not parts:
        return None
    return json.dumps([part_row(part) for part in parts])


def read_parts(text: str | None) -> Sequence[ObjectPart]:
    return () if text is None else tuple(read_part(*row) for row in json.loads(text))


def part_row(part: ObjectPart) -> tuple[int, int, str, int, str | None]:
    return part.number, part.size, part.etag, to_micros(part.modified_at), checksum_text(part.checksum)


def read_part(number: int, size: int, etag: str, modified_at: int, checksum: str | None) -> ObjectPart:
    return ObjectPart(number, size, etag, from_micros(modified_at), read_checksum(checksum))


def read_stored_part(
    data: str, number: int, size: int, etag: str, modified_at: int, checksum: str | None
) -> StoredPart:
    return StoredPart(data, read_part(number, size, etag, modified_at, checksum))


def tags_text(tags: Mapping[str, str]) -> str:
    return json.dumps(dict(tags))


def read_bucket(account: str, name: str, region: str, created_at: int, tags: str) -> Bucket:
    return Bucket(BucketRef(account, name), region, from_micros(created_at), json.loads(tags))
