"""Digests that clients send, in a header or after the body, and those in answers."""

import binascii
import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import Checksum, ChecksumAlgorithm, DigestMismatch
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.s3.faults import invalid_request, not_served
from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream

MEMBERS = {algorithm: f"Checksum{algorithm}" for algorithm in ChecksumAlgorithm}

_HEADERS = {algorithm: f"x-amz-checksum-{algorithm.lower()}" for algorithm in ChecksumAlgorithm}
_ALGORITHMS = {header: algorithm for algorithm, header in _HEADERS.items()}
_SIZES = {
    ChecksumAlgorithm.CRC32: 4,
    ChecksumAlgorithm.CRC32C: 4,
    ChecksumAlgorithm.CRC64NVME: 8,
    ChecksumAlgorithm.SHA1: 20,
    ChecksumAlgorithm.SHA256: 32,
}


@dataclass(frozen=True, slots=True)
class ExpectedDigests:
    """The digests that a client sends for a body. A checksum without a value comes in the trailer."""

    md5: str | None = None
    algorithm: ChecksumAlgorithm | None = None
    value: str | None = None

    def checksums(self, body: ByteStream) -> Sequence[Checksum]:
        """Return the checksums that the body must have, once it was read to its end."""
        if self.algorithm is None:
            return ()
        value = self.value
        if value is None:
            value = body.trailers.get(_HEADERS[self.algorithm])
            if value is None:
                raise Fault(
                    "MalformedTrailerError", f"The body ended without the announced trailer {_HEADERS[self.algorithm]}."
                )
            _require_checksum_value(self.algorithm, value)
        return (Checksum(self.algorithm, value),)


def expected_digests(call: Call, shape: Shape) -> ExpectedDigests:
    """Return the digests that the request gives for its body, checked for their form."""
    md5 = shape.get("ContentMD5")
    if md5 is not None:
        _require_md5(md5)
    checksum = checksum_of_request(shape)
    algorithm = checksum.algorithm if checksum else _trailing_algorithm(call)
    declared = algorithm_of(shape)
    if declared is not None and declared is not algorithm:
        raise _contradiction(declared, algorithm)
    return ExpectedDigests(md5, algorithm, checksum.value if checksum else None)


def algorithm_of(shape: Shape) -> ChecksumAlgorithm | None:
    """Return the algorithm that the request names without a digest, for the yard to compute."""
    name = shape.get("ChecksumAlgorithm")
    if name is None:
        return None
    try:
        return ChecksumAlgorithm(name.upper())
    except ValueError:
        raise _unknown_algorithm(name) from None


def checksum_of_request(shape: Shape, *, suffix: str = "") -> Checksum | None:
    """Return the checksum that the request has in a header, without the suffix it may have."""
    found = [
        Checksum(algorithm, shape[member].removesuffix(suffix))
        for algorithm, member in MEMBERS.items()
        if member in shape
    ]
    if len(found) > 1:
        raise invalid_request("Only one x-amz-checksum- header is allowed.")
    if not found:
        return None
    _require_checksum_value(found[0].algorithm, found[0].value)
    return found[0]


def verify_body(call: Call) -> None:
    """Compare the XML body of a request with the digests in its headers."""
    headers, body = call.http.headers, call.http.body
    md5 = headers.get("content-md5")
    if md5:
        computed = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        if _require_md5(md5) != computed:
            raise DigestMismatch("Content-MD5", md5, computed)
    for header, algorithm in _ALGORITHMS.items():
        if header in headers:
            computed = digest_of(algorithm, [body])
            if headers[header] != computed:
                raise DigestMismatch(algorithm, headers[header], computed)


def checksum_members(checksum: Checksum | None) -> Shape:
    """Return a checksum as members of an answer."""
    if checksum is None:
        return {}
    return {MEMBERS[checksum.algorithm]: checksum.value, "ChecksumType": checksum.type.value}


def digest_member(checksum: Checksum | None) -> Shape:
    """Return a checksum as members of an answer that has no `ChecksumType`."""
    return {} if checksum is None else {MEMBERS[checksum.algorithm]: checksum.value}


def _trailing_algorithm(call: Call) -> ChecksumAlgorithm | None:
    """Return the algorithm of the checksum that `x-amz-trailer` announces after the body."""
    for name in call.http.headers.get("x-amz-trailer").lower().split(","):
        header = name.strip()
        if header in _ALGORITHMS:
            return _ALGORITHMS[header]
        if header.startswith("x-amz-checksum-"):
            raise _unknown_algorithm(header)
    return None


def _unknown_algorithm(name: str) -> Fault:
    return not_served(f"the checksum {name}; use {', '.join(ChecksumAlgorithm)}")


def _contradiction(declared: ChecksumAlgorithm, algorithm: ChecksumAlgorithm | None) -> Fault:
    if algorithm is None:
        return invalid_request(
            "x-amz-sdk-checksum-algorithm needs an x-amz-checksum- header or an x-amz-trailer with a checksum."
        )
    return invalid_request(f"x-amz-sdk-checksum-algorithm is {declared}, but the request has a {algorithm} checksum.")


def _require_md5(text: str) -> str:
    if _size_of_base64(text) != hashlib.md5(usedforsecurity=False).digest_size:
        raise Fault("InvalidDigest", f'The Content-MD5 "{text}" is not a base64-encoded MD5 digest.')
    return text


def _require_checksum_value(algorithm: ChecksumAlgorithm, value: str) -> None:
    if _size_of_base64(value) != _SIZES[algorithm]:
        raise invalid_request(
            f'The value "{value}" of {_HEADERS[algorithm]} is not a base64-encoded {algorithm} checksum.'
        )


def _size_of_base64(text: str) -> int | None:
    try:
        return len(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:
        return None
