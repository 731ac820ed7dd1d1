"""Digests that a client announces, in a header or after the body, and those that are told in answers."""

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
class Announced:
    """What the sender of a body says its digests are. A checksum without a value comes in the trailer."""

    md5: str | None = None
    algorithm: ChecksumAlgorithm | None = None
    value: str | None = None

    def expected(self, body: ByteStream) -> Sequence[Checksum]:
        """The checksum that the body, read to its end, must have."""
        if self.algorithm is None:
            return ()
        value = self.value
        if value is None:
            value = body.trailers.get(_HEADERS[self.algorithm])
            if value is None:
                raise Fault("MalformedTrailerError", f"The announced trailer {_HEADERS[self.algorithm]} did not come.")
            _check_value(self.algorithm, value)
        return (Checksum(self.algorithm, value),)


def announced(call: Call, shape: Shape) -> Announced:
    """The digests that the request announces, checked for their form."""
    md5 = shape.get("ContentMD5")
    if md5 is not None:
        _checked_md5(md5)
    checksum = announced_checksum(shape)
    algorithm = checksum.algorithm if checksum else _trailing_algorithm(call)
    declared = algorithm_of(shape)
    if declared is not None and declared is not algorithm:
        raise _contradiction(declared, algorithm)
    return Announced(md5, algorithm, checksum.value if checksum else None)


def algorithm_of(shape: Shape) -> ChecksumAlgorithm | None:
    """The algorithm that the request names without a digest, for the yard to compute."""
    name = shape.get("ChecksumAlgorithm")
    if name is None:
        return None
    try:
        return ChecksumAlgorithm(name.upper())
    except ValueError:
        raise _unknown_algorithm(name) from None


def announced_checksum(shape: Shape, *, suffix: str = "") -> Checksum | None:
    """The one checksum that the request carries in a header, where it may have this suffix."""
    found = [
        Checksum(algorithm, shape[member].removesuffix(suffix))
        for algorithm, member in MEMBERS.items()
        if member in shape
    ]
    if len(found) > 1:
        raise invalid_request("Only one x-amz-checksum- header is allowed.")
    if not found:
        return None
    _check_value(found[0].algorithm, found[0].value)
    return found[0]


def verify_body(call: Call) -> None:
    """Compare the body of a request that is a document with the digests its headers announce."""
    headers, body = call.http.headers, call.http.body
    md5 = headers.get("content-md5")
    if md5:
        computed = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        if _checked_md5(md5) != computed:
            raise DigestMismatch("Content-MD5", md5, computed)
    for header, algorithm in _ALGORITHMS.items():
        if header in headers:
            computed = digest_of(algorithm, [body])
            if headers[header] != computed:
                raise DigestMismatch(algorithm, headers[header], computed)


def checksum_members(checksum: Checksum | None) -> Shape:
    """The members of an answer that tell a checksum."""
    if checksum is None:
        return {}
    return {MEMBERS[checksum.algorithm]: checksum.value, "ChecksumType": checksum.type.value}


def digest_member(checksum: Checksum | None) -> Shape:
    """The same for the answers that have no `ChecksumType`."""
    return {} if checksum is None else {MEMBERS[checksum.algorithm]: checksum.value}


def _trailing_algorithm(call: Call) -> ChecksumAlgorithm | None:
    """The checksum that `x-amz-trailer` promises to come after the body."""
    for name in call.http.headers.get("x-amz-trailer").lower().split(","):
        header = name.strip()
        if header in _ALGORITHMS:
            return _ALGORITHMS[header]
        if header.startswith("x-amz-checksum-"):
            raise _unknown_algorithm(header)
    return None


def _unknown_algorithm(name: str) -> Fault:
    return not_served(f"the checksum {name}; use one of {', '.join(ChecksumAlgorithm)}")


def _contradiction(declared: ChecksumAlgorithm, algorithm: ChecksumAlgorithm | None) -> Fault:
    if algorithm is None:
        return invalid_request(
            "x-amz-sdk-checksum-algorithm is given, but no x-amz-checksum- header and no x-amz-trailer with a checksum."
        )
    return invalid_request(f"x-amz-sdk-checksum-algorithm says {declared}, but the checksum that comes is {algorithm}.")


def _checked_md5(text: str) -> str:
    if _size_of_base64(text) != hashlib.md5(usedforsecurity=False).digest_size:
        raise Fault("InvalidDigest", f'The Content-MD5 "{text}" is not the base64 of an MD5 digest.')
    return text


def _check_value(algorithm: ChecksumAlgorithm, value: str) -> None:
    if _size_of_base64(value) != _SIZES[algorithm]:
        raise invalid_request(f'The value "{value}" of {_HEADERS[algorithm]} is not the base64 of such a checksum.')


def _size_of_base64(text: str) -> int | None:
    try:
        return len(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:
        return None
