import hashlib
import subprocess
import sys
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foundation.errors import InvalidRequest
from trainyard.objects.checksums import (
    ContentDigests,
    PartDigest,
    checksum_of_parts,
    digest_of,
    etag_of_parts,
    multipart_type,
)
from trainyard.objects.contract import Checksum, ChecksumAlgorithm, ChecksumType, DigestMismatch

CRCS = [ChecksumAlgorithm.CRC32, ChecksumAlgorithm.CRC32C, ChecksumAlgorithm.CRC64NVME]


def part(algorithm: ChecksumAlgorithm, body: bytes) -> PartDigest:
    return PartDigest(digest_of(algorithm, [body]), len(body))


@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_a_digest_does_not_depend_on_how_the_bytes_are_cut(algorithm: ChecksumAlgorithm) -> None:
    assert digest_of(algorithm, [b"12", b"", b"3456", b"789"]) == digest_of(algorithm, [b"123456789"])


@pytest.mark.parametrize("algorithm", CRCS)
@given(bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=6))
def test_crcs_of_parts_combine_to_that_of_the_whole(algorithm: ChecksumAlgorithm, bodies: list[bytes]) -> None:
    parts = [part(algorithm, body) for body in bodies]
    whole = checksum_of_parts(algorithm, ChecksumType.FULL_OBJECT, parts=parts)
    assert whole == Checksum(algorithm, digest_of(algorithm, bodies))


def test_a_composite_checksum_is_the_digest_of_digests_and_their_count() -> None:
    algorithm = ChecksumAlgorithm.SHA256
    joined = hashlib.sha256(hashlib.sha256(b"one").digest() + hashlib.sha256(b"two").digest()).digest()
    parts = [part(algorithm, b"one"), part(algorithm, b"two")]
    whole = checksum_of_parts(algorithm, ChecksumType.COMPOSITE, parts=parts)
    assert whole == Checksum(algorithm, b64encode(joined).decode() + "-2", ChecksumType.COMPOSITE)


def test_an_upload_in_parts_gets_the_default_of_its_algorithm() -> None:
    defaults = {algorithm: multipart_type(algorithm, None) for algorithm in ChecksumAlgorithm}
    assert [algorithm for algorithm, kind in defaults.items() if kind is ChecksumType.FULL_OBJECT] == [
        ChecksumAlgorithm.CRC64NVME
    ]


def test_a_type_that_an_algorithm_has_not_is_refused_with_the_one_it_has() -> None:
    with pytest.raises(InvalidRequest, match=r"FULL_OBJECT .* SHA1; use COMPOSITE"):
        multipart_type(ChecksumAlgorithm.SHA1, ChecksumType.FULL_OBJECT)


@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [
        (ChecksumAlgorithm.CRC32, set(ChecksumType)),
        (ChecksumAlgorithm.CRC32C, set(ChecksumType)),
        (ChecksumAlgorithm.CRC64NVME, {ChecksumType.FULL_OBJECT}),
        (ChecksumAlgorithm.SHA1, {ChecksumType.COMPOSITE}),
        (ChecksumAlgorithm.SHA256, {ChecksumType.COMPOSITE}),
    ],
)
def test_a_multipart_upload_can_request_the_types_that_s3_supports(
    algorithm: ChecksumAlgorithm, kinds: set[ChecksumType]
) -> None:
    for kind in ChecksumType:
        if kind in kinds:
            assert multipart_type(algorithm, kind) is kind
        else:
            with pytest.raises(InvalidRequest):
                multipart_type(algorithm, kind)
            with pytest.raises(InvalidRequest):
                checksum_of_parts(algorithm, kind, parts=[part(algorithm, b"x")])


@pytest.mark.parametrize("algorithm", CRCS[:2])
def test_crcs_of_parts_have_a_composite_checksum_too(algorithm: ChecksumAlgorithm) -> None:
    parts = [part(algorithm, b"one"), part(algorithm, b"two")]
    joined = digest_of(algorithm, [b64decode(each.value) for each in parts])
    whole = checksum_of_parts(algorithm, ChecksumType.COMPOSITE, parts=parts)
    assert whole == Checksum(algorithm, f"{joined}-2", ChecksumType.COMPOSITE)


def test_the_size_the_md5_and_the_requested_checksum_of_a_body_are_computed() -> None:
    digests = ContentDigests([ChecksumAlgorithm.SHA256, ChecksumAlgorithm.CRC32])
    for chunk in (b"1234", b"", b"56789"):
        digests.update(chunk)
    assert (digests.size, digests.etag) == (9, hashlib.md5(b"123456789", usedforsecurity=False).hexdigest())
    sha256 = Checksum(ChecksumAlgorithm.SHA256, b64encode(hashlib.sha256(b"123456789").digest()).decode())
    assert digests.verify([], md5=None, reread=lambda: pytest.fail("it was read")) == sha256
    crc32 = Checksum(ChecksumAlgorithm.CRC32, "y/Q5Jg==")
    md5 = b64encode(bytes.fromhex(digests.etag)).decode()
    assert digests.verify([crc32, sha256], md5=md5, reread=lambda: pytest.fail("it was read")) == crc32
    with pytest.raises(DigestMismatch) as raised:
        digests.verify([crc32], md5=digests.etag, reread=list)
    assert raised.value.algorithm == "MD5"


def test_checksums_that_were_not_requested_are_computed_from_the_body() -> None:
    digests = ContentDigests([])
    digests.update(b"123456789")
    assert digests.verify([], md5=None, reread=lambda: pytest.fail("it was read")) is None
    crc32 = Checksum(ChecksumAlgorithm.CRC32, "y/Q5Jg==")
    assert digests.verify([crc32], md5=None, reread=lambda: [b"1234", b"56789"]) == crc32
    with pytest.raises(DigestMismatch):
        digests.verify([crc32], md5=None, reread=lambda: [b"1234"])


def test_the_etag_of_parts_is_the_md5_of_their_md5s_and_their_count() -> None:
    digests = [hashlib.md5(body, usedforsecurity=False) for body in (b"one", b"two")]
    joined = hashlib.md5(b"".join(digest.digest() for digest in digests), usedforsecurity=False).hexdigest()
    assert etag_of_parts(digest.hexdigest() for digest in digests) == f"{joined}-2"


def test_a_mismatch_names_the_algorithm_and_both_values() -> None:
    digests = ContentDigests([ChecksumAlgorithm.CRC32])
    digests.update(b"123456789")
    with pytest.raises(DigestMismatch, match=r"CRC32 you specified did not match .*: AAAAAA== was sent .* is y/Q5Jg=="):
        digests.verify([Checksum(ChecksumAlgorithm.CRC32, "AAAAAA==")], md5=None, reread=list)


def test_plain_objects_and_crc32_do_not_load_the_native_library() -> None:
    program = (
        "import sys; from trainyard.objects.checksums import *; "
        "ContentDigests([ChecksumAlgorithm.CRC32, ChecksumAlgorithm.SHA256]).update(b'x'); "
        "print('awscrt' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
