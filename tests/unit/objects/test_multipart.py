from dataclasses import replace
from datetime import UTC, datetime, timedelta

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
    DigestMismatch,
    InvalidPart,
    ObjectPart,
    PartTooSmall,
)
from trainyard.objects.multipart import MINIMUM_PART_BYTES, find_named_parts, new_upload, whole_checksum
from trainyard.testing.objects.samples import ALICE, NOON

WHERE = Location(BucketRef(ALICE, "bucket"), "key")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def part(number: int, size: int = MINIMUM_PART_BYTES) -> ObjectPart:
    return ObjectPart(number, size, f"etag-{number}", NOON)


def test_ids_of_uploads_rise_with_their_starts() -> None:
    uploads = [
        new_upload(WHERE, Attributes(), now=NOON + timedelta(microseconds=n), algorithm=None, checksum_type=None)
        for n in range(50)
    ]
    assert sorted(uploads, key=lambda upload: upload.id) == uploads


def test_messages_name_the_part_and_its_problem() -> None:
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
            find_named_parts(named, known)


def test_a_refusal_says_which_part_it_is_about_as_it_was_named() -> None:
    known = {1: part(1), 2: part(2, size=7), 3: part(3)}
    with pytest.raises(InvalidPart) as invalid:
        find_named_parts([CompletedPart(1, "etag-1"), CompletedPart(3, "x")], known)
    assert (invalid.value.number, invalid.value.etag) == (3, "x")
    with pytest.raises(InvalidPart) as twice:
        find_named_parts([CompletedPart(3, "etag-3"), CompletedPart(3, "etag-3")], known)
    assert (twice.value.number, twice.value.etag) == (3, "etag-3")
    with pytest.raises(PartTooSmall) as small:
        find_named_parts([CompletedPart(2, "etag-2"), CompletedPart(3, "etag-3")], known)
    assert (small.value.number, small.value.etag, small.value.size) == (2, "etag-2", 7)
    with pytest.raises(InvalidPart) as none:
        find_named_parts([], known)
    assert (none.value.number, none.value.etag) == (0, "")


def test_the_named_parts_are_found_and_the_last_can_be_small() -> None:
    known = {1: part(1), 2: part(2, size=7), 3: part(3)}
    named = [CompletedPart(1, "etag-1"), CompletedPart(3, "etag-3")]
    assert find_named_parts(named, known) == [known[1], known[3]]
    assert find_named_parts([CompletedPart(1, "etag-1"), CompletedPart(2, "etag-2")], known) == [known[1], known[2]]


@pytest.mark.parametrize(
    ("counted", "named", "is_accepted"),
    [(None, "x", True), ("x", None, True), ("x", "x", True), ("x", "y", False)],
)
def test_a_named_checksum_is_compared_with_the_computed_one(
    counted: str | None, named: str | None, is_accepted: bool
) -> None:
    checksum = Checksum(ChecksumAlgorithm.SHA1, counted) if counted else None
    known = {1: ObjectPart(1, 3, "etag-1", NOON, checksum)}
    if is_accepted:
        assert find_named_parts([CompletedPart(1, "etag-1", named)], known) == [known[1]]
    else:
        with pytest.raises(InvalidPart, match="Part 1 has the checksum x, not y") as raised:
            find_named_parts([CompletedPart(1, "etag-1", named)], known)
        assert raised.value.number == 1


def test_uploads_of_one_moment_have_ids_of_their_own_that_cannot_be_guessed() -> None:
    uploads = [
        new_upload(WHERE, Attributes(), now=NOON, algorithm=None, checksum_type=ChecksumType.COMPOSITE)
        for _ in range(9)
    ]
    assert len({upload.id for upload in uploads}) == 9
    assert len({upload.id[:16] for upload in uploads}) == 1
    assert {len(upload.id) for upload in uploads} == {16 + 24}
    assert {(upload.where, upload.started_at, upload.checksum_type) for upload in uploads} == {(WHERE, NOON, None)}
    assert len(new_upload(WHERE, Attributes(), now=EPOCH, algorithm=None, checksum_type=None).id) == 16 + 24


def test_without_an_algorithm_no_checksum_is_stored_and_nothing_is_read() -> None:
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=None, checksum_type=None)
    assert whole_checksum(upload, [part(1)], expected=None, read=lambda _: pytest.fail("it was read")) is None


def test_a_checksum_that_only_the_completion_names_is_of_the_type_that_it_names() -> None:
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=None, checksum_type=None)
    algorithm = ChecksumAlgorithm.CRC32
    whole = Checksum(algorithm, digest_of(algorithm, [b"x"]), ChecksumType.FULL_OBJECT)
    assert whole_checksum(upload, [part(1, size=1)], expected=whole, read=lambda _: [b"x"]) == whole
    for value in ("AAAAAA==", f"{whole.value}-1", ""):
        with pytest.raises(DigestMismatch) as raised:
            whole_checksum(upload, [part(1, size=1)], expected=replace(whole, value=value), read=lambda _: [b"x"])
        assert raised.value.algorithm == algorithm


def test_a_part_with_another_algorithm_is_read_again() -> None:
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=ChecksumAlgorithm.SHA1, checksum_type=None)
    counted = ObjectPart(1, 1, "etag", NOON, Checksum(ChecksumAlgorithm.CRC32, "AAAAAA=="))
    expected = whole_checksum(upload, [part(1, size=1)], expected=None, read=lambda _: [b"x"])
    assert whole_checksum(upload, [counted], expected=None, read=lambda _: [b"x"]) == expected


def test_a_checksum_computed_with_a_part_is_not_computed_again() -> None:
    algorithm = ChecksumAlgorithm.CRC32
    upload = new_upload(WHERE, Attributes(), now=NOON, algorithm=algorithm, checksum_type=ChecksumType.FULL_OBJECT)
    counted = ObjectPart(1, 3, "etag", NOON, Checksum(algorithm, digest_of(algorithm, [b"abc"])))
    read: list[int] = []

    def reread(wanted: ObjectPart) -> list[bytes]:
        read.append(wanted.number)
        return [b"def"]

    whole = whole_checksum(upload, [counted, part(2, size=3)], expected=None, read=reread)
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
    with pytest.raises(InvalidRequest, match="uses SHA1"):
        whole_checksum(upload, [part(1)], expected=other, read=lambda _: [b"x"])
