"""The aws-chunked body encoding: frames of `size[;chunk-signature=…]`, data, and trailing fields after the last.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
"""

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping

from trainyard.wire.claim import Seed
from trainyard.wire.fault import Fault
from trainyard.wire.refusal import Family, Reason, Refused

MIN_SIGNED_CHUNK_BYTES = 8192
MAX_FRAME_HEADER_BYTES = 1024
MAX_TRAILER_BYTES = 16 * 1024

_NO_BYTES_SHA256 = hashlib.sha256(b"").hexdigest()
_SIGNATURE_FIELD = b"chunk-signature="
_TRAILER_SIGNATURE = "x-amz-trailer-signature"


_Step = Callable[["ChunkedDecoder", bytes, int], int]


class ChunkedDecoder:
    """Takes the encoded body in pieces of any size and gives back the data in it.

    With a seed every chunk must carry the signature that continues the chain. The bytes of a chunk are passed on as
    they come, before its signature can be checked: only after `finish` may they be believed. `trailers` are the names
    that must follow the data, no more and no fewer; None when the body has no place for any. Every error is a Fault in
    S3's words; after one the decoder is of no use.
    """

    def __init__(self, seed: Seed | None, *, decoded_length: int, trailers: Collection[str] | None = None) -> None:
        self._chain = _SignatureChain(seed) if seed else None
        self._missing_bytes = decoded_length
        self._trailer_names = None if trailers is None else {name.lower() for name in trailers}
        self._held = bytearray()  # the part of a frame header, chunk end or trailer that has come so far
        self._chunk_left = 0
        self._chunk_signature = ""
        self._has_small_chunk = False
        self._step: _Step = ChunkedDecoder._read_header

    def feed(self, data: bytes) -> list[bytes]:
        """The decoded bytes in the next piece of the body."""
        self._decoded: list[bytes] = []
        position = 0
        while position < len(data):
            position = self._step(self, data, position)
        return self._decoded

    def finish(self) -> Mapping[str, str]:
        """The trailing fields by lower-case name, once all of the body has been fed."""
        if self._step is not ChunkedDecoder._read_tail:
            raise _incomplete("The request body ended before its last chunk.")
        if self._missing_bytes:
            raise _incomplete(f"The request body lacks {self._missing_bytes} of the bytes that it announced.")
        if self._trailer_names is None:
            if bytes(self._held) not in (b"", b"\r\n"):
                raise _incomplete("The request body does not end as it should after its last chunk.")
            return {}
        return self._trailers()

    def _read_header(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position) + 1
        self._held += data[position : end or None]
        if len(self._held) > MAX_FRAME_HEADER_BYTES:
            raise _malformed("A chunk header is too long.")
        if not end:
            return len(data)
        line = bytes(self._held)
        self._held.clear()
        self._begin_chunk(line)
        return end

    def _begin_chunk(self, line: bytes) -> None:
        size, _, extension = line.rstrip(b"\r\n").partition(b";")
        if not line.endswith(b"\r\n") or not size or len(size) > 16 or not _HEX.issuperset(size):
            raise _malformed("A chunk does not begin with its size in hexadecimal digits.")
        self._chunk_left = int(size, 16)
        if self._chunk_left > self._missing_bytes:
            raise _incomplete("The request body has more bytes than its x-amz-decoded-content-length announced.")
        self._missing_bytes -= self._chunk_left
        if self._chain:
            self._begin_signed_chunk(extension)
        if self._chunk_left:
            self._step = ChunkedDecoder._read_data
            return
        self._end_chunk()
        self._step = ChunkedDecoder._read_tail

    def _begin_signed_chunk(self, extension: bytes) -> None:
        if not extension.startswith(_SIGNATURE_FIELD):
            raise _malformed("A chunk carries no chunk-signature.")
        self._chunk_signature = extension[len(_SIGNATURE_FIELD) :].decode("latin-1")
        if self._chunk_left and self._has_small_chunk:
            raise Fault(
                "InvalidChunkSizeError",
                f"Only the last chunk is allowed to have a size less than {MIN_SIGNED_CHUNK_BYTES} bytes",
                status=403,
            )
        self._has_small_chunk = self._chunk_left < MIN_SIGNED_CHUNK_BYTES

    def _read_data(self, data: bytes, position: int) -> int:
        end = min(position + self._chunk_left, len(data))
        piece = data[position:end]  # no copy when it is all of the data
        if self._chain:
            self._chain.update(piece)
        self._decoded.append(piece)
        self._chunk_left -= len(piece)
        if not self._chunk_left:
            self._end_chunk()
            self._step = ChunkedDecoder._read_chunk_end
        return end

    def _end_chunk(self) -> None:
        if self._chain:
            self._chain.check_chunk(self._chunk_signature)

    def _read_chunk_end(self, data: bytes, position: int) -> int:
        end = position + 2 - len(self._held)
        self._held += data[position:end]
        if not b"\r\n".startswith(self._held):
            raise _malformed("A chunk is longer than its size says.")
        if len(self._held) == 2:
            self._held.clear()
            self._step = ChunkedDecoder._read_header
        return min(end, len(data))

    def _read_tail(self, data: bytes, position: int) -> int:
        self._held += data[position:]
        if len(self._held) > MAX_TRAILER_BYTES:
            raise _malformed_trailer("The trailing fields are too long.")
        return len(data)

    def _trailers(self) -> Mapping[str, str]:
        fields: dict[str, str] = {}
        # AWS's own example ends a trailing field with "\n\r\n", so an empty line does not end them.
        for line in self._held.decode("latin-1").split("\n"):
            name, separator, value = line.strip().partition(":")
            if name and (not separator or name.lower() in fields):
                raise _malformed_trailer(f'"{name}" is not a trailing field, or there twice.')
            if name:
                fields[name.lower()] = value.strip()
        signature = fields.pop(_TRAILER_SIGNATURE, "")
        if fields.keys() != self._trailer_names:
            raise _malformed_trailer("The trailing fields are not those that x-amz-trailer announced.")
        if self._chain:
            self._chain.check_trailers(fields, signature)
        return fields


class _SignatureChain:
    """Each chunk's signature covers the one before it, so that none can be dropped, moved or repeated."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._previous = seed.signature
        self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def check_chunk(self, signature: str) -> None:
        digest = self._hash.hexdigest()
        self._hash = hashlib.sha256()
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{_NO_BYTES_SHA256}\n{digest}", signature)

    def check_trailers(self, fields: Mapping[str, str], signature: str) -> None:
        canonical = "".join(f"{name}:{fields[name]}\n" for name in sorted(fields))
        self._check("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(canonical.encode("latin-1")).hexdigest(), signature)

    def _check(self, algorithm: str, digests: str, signature: str) -> None:
        seed = self._seed
        text = f"{algorithm}\n{seed.timestamp}\n{seed.scope}\n{self._previous}\n{digests}"
        computed = hmac.digest(seed.signing_key, text.encode(), "sha256").hex()
        if not hmac.compare_digest(computed.encode(), signature.encode("latin-1", "replace")):
            raise Refused(Reason.MISMATCH).fault(Family.S3)
        self._previous = computed


_HEX = frozenset(b"0123456789abcdefABCDEF")


def _incomplete(message: str) -> Fault:
    return Fault("IncompleteBody", message)


def _malformed(message: str) -> Fault:
    return Fault("InvalidRequest", f"The aws-chunked body is malformed. {message}")


def _malformed_trailer(message: str) -> Fault:
    return Fault(
        "MalformedTrailerError",
        "The request contained trailing data that was not well-formed or did not conform to our published schema. "
        + message,
    )
