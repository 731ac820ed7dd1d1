"""Multipart uploads: S3's rules, and the checksum of the whole object."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import Location
from trainyard.objects.checksums import PartDigest, checksum_of_parts, digest_of, multipart_type
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    CompletedPart,
    DigestMismatch,
    InvalidPart,
    ObjectPart,
    PartTooSmall,
    Upload,
)

# Except for the last part.
MINIMUM_PART_BYTES = 5 << 20
MAX_PARTS = 10_000


def new_upload(
    where: Location,
    attributes: Attributes,
    *,
    now: datetime,
    algorithm: ChecksumAlgorithm | None,
    checksum_type: ChecksumType | None,
) -> Upload:
    """Create an upload. Its id starts with its time, so that ids sort by start."""
    kind = multipart_type(algorithm, checksum_type) if algorithm else None
    return Upload(f"{to_micros(now):016x}{secrets.token_hex(12)}", where, now, attributes, algorithm, kind)


def find_named_parts(named: Sequence[CompletedPart], known: Mapping[int, ObjectPart]) -> Sequence[ObjectPart]:
    """Return the parts that a completion names, checked as S3 checks them."""
    if not named:
        raise InvalidPart("The completion names no parts; name at least one.")
    parts: list[ObjectPart] = []
    for wanted in named:
        if parts and wanted.number <= parts[-1].number:
            raise _invalid_part(wanted, f"is named after part {parts[-1].number}; name them in ascending order")
        parts.append(_find_named_part(wanted, known.get(wanted.number)))
    for part in parts[:-1]:
        if part.size < MINIMUM_PART_BYTES:
            raise PartTooSmall(
                f"Part {part.number} has {part.size} bytes; every part but the last needs {MINIMUM_PART_BYTES}.",
                number=part.number,
                etag=part.etag,
                size=part.size,
            )
    return parts


def whole_checksum(
    upload: Upload,
    parts: Sequence[ObjectPart],
    *,
    expected: Checksum | None,
    read: Callable[[ObjectPart], Iterable[bytes]],
) -> Checksum | None:
    """Return the checksum to store for the joined object; DigestMismatch if it differs from `expected`.

    Parts that were uploaded without this checksum are read again.
    """
    algorithm = upload.algorithm or (expected.algorithm if expected else None)
    if algorithm is None:
        return None
    if expected is not None and expected.algorithm is not algorithm:
        raise InvalidRequest(
            f"The upload uses {algorithm}; its completion cannot be checked with {expected.algorithm}."
        )
    kind = upload.checksum_type or multipart_type(algorithm, expected.type if expected else None)
    digests = [_part_digest(algorithm, part, read) for part in parts]
    whole = checksum_of_parts(algorithm, kind, parts=digests)
    # Clients send a composite value with or without the number of parts.
    if expected is not None and expected.value not in (whole.value, whole.value.partition("-")[0]):
        raise DigestMismatch(algorithm, expected.value, whole.value)
    return whole


def _find_named_part(wanted: CompletedPart, known: ObjectPart | None) -> ObjectPart:
    if known is None:
        raise _invalid_part(wanted, "was not uploaded")
    if wanted.etag != known.etag:
        raise _invalid_part(wanted, f"has the ETag {known.etag}, not {wanted.etag}")
    if wanted.checksum is not None and known.checksum is not None and wanted.checksum != known.checksum.value:
        raise _invalid_part(wanted, f"has the checksum {known.checksum.value}, not {wanted.checksum}")
    return known


def _invalid_part(part: CompletedPart, why: str) -> InvalidPart:
    return InvalidPart(f"Part {part.number} {why}.", number=part.number, etag=part.etag)


def _part_digest(
    algorithm: ChecksumAlgorithm, part: ObjectPart, read: Callable[[ObjectPart], Iterable[bytes]]
) -> PartDigest:
    counted = part.checksum
    if counted is not None and counted.algorithm is algorithm:
        return PartDigest(counted.value, part.size)
    return PartDigest(digest_of(algorithm, read(part)), part.size)
