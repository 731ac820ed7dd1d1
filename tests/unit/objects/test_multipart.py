from datetime import timedelta

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    CompletedPart,
    InvalidPart,
    ObjectPart,
    PartTooSmall,
)
from trainyard.objects.multipart import MINIMUM_PART_BYTES, named_parts, new_upload, whole_checksum
from trainyard.testing.objects.samples import ALICE, NOON

WHERE = Location(BucketRef(ALICE, "bucket"), "key")


def part(number: int, size: int = MINIMUM_PART_BYTES) -> ObjectPart:
    return ObjectPart(number, size, f"etag-{number}", NOON)


def test_ids_of_uploads_rise_with_their_starts() -> None:
    uploads = [
        new_upload(WHERE, Attributes(), now=NOON + timedelta(microseconds=n), algorithm=None, checksum_type=None)
        for n in range(50)
    ]
    assert sorted(uploads, key=lambda upload: upload.id) == uploads


def test_messages_name_the_part_and_what_is_wrong_with_it() -> None:
    known = {1: part(1), 2: part(2, size=7), 3: part(3)}
    refused: list[tuple[type[Exception], str, list[CompletedPart]]] = [
        (InvalidPart, "Part 4 was not uploaded", [CompletedPart(4, "etag-4")]),
        (InvalidPart, "Part 1 has the ETag etag-1, not x", [CompletedPart(1, "x")]),
        (InvalidPart, "Part 1 is named after part 3", [CompletedPart(3, "etag-3"), CompletedPart(1, "etag-1")]),
        (InvalidPart, "names no part", []),
        (PartTooSmall, "Part 2 has 7 bytes", [CompletedPart(2, "etag-2"), CompletedPart(3, "etag-3")]),
    ]
    for error, message, named in refused:
        with pytest.raises(error, match=message):
            named_parts(named, known)


def test_a_checksum_counted_when_a_part_came_is_not_counted_again() -> None:
    algorithm = ChecksumAlgorithm.CRC32
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=algorithm, checksum_type=ChecksumType.FULL_OBJECT)
    counted = ObjectPart(1, 3, "etag", NOON, Checksum(algorithm, digest_of(algorithm, [b"abc"])))
    read: list[int] = []

    def again(wanted: ObjectPart) -> list[bytes]:
        read.append(wanted.number)
        return [b"def"]

    whole = whole_checksum(upload, [counted, part(2, size=3)], expected=None, read=again)
    assert whole == Checksum(algorithm, digest_of(algorithm, [b"abcdef"]))
    assert read == [2]


def test_a_composite_checksum_is_accepted_with_and_without_its_count() -> None:
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=ChecksumAlgorithm.SHA1, checksum_type=None)
    whole = whole_checksum(upload, [part(1)], expected=None, read=lambda _: [b"x"])
    assert whole is not None
    assert whole.value.endswith("-1")
    for value in (whole.value, whole.value.removesuffix("-1")):
        expected = Checksum(ChecksumAlgorithm.SHA1, value, ChecksumType.COMPOSITE)
        assert whole_checksum(upload, [part(1)], expected=expected, read=lambda _: [b"x"]) == whole


def test_an_upload_is_not_checked_by_another_algorithm_than_its_own() -> None:
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=ChecksumAlgorithm.SHA1, checksum_type=None)
    other = Checksum(ChecksumAlgorithm.CRC32, "AAAAAA==")
    with pytest.raises(InvalidRequest, match="keeps SHA1"):
        whole_checksum(upload, [part(1)], expected=other, read=lambda _: [b"x"])
