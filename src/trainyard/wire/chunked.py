"""The aws-chunked body encoding: chunks of `size[;chunk-signature=…]` and data, then trailing fields.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
"""

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping

from trainyard.wire.fault import Fault
from trainyard.wire.refusal import Family, Reason, RequestRefused
from trainyard.wire.signed_request import Seed

MIN_SIGNED_CHUNK_BYTES = 8192
MAX_FRAME_HEADER_BYTES = 1024
MAX_TRAILER_BYTES = 16 * 1024

_NO_BYTES_SHA256 = hashlib.sha256(b"").hexdigest()
_SIGNATURE_FIELD = b"chunk-signature="
_TRAILER_SIGNATURE = "x-amz-trailer-signature"


_Step = Callable[["ChunkedDecoder", bytes, int], int]


class ChunkedDecoder:
    """Decodes an encoded body that arrives in pieces of any size.

    With a seed, every chunk must carry the signature that continues the chain. The bytes of a chunk are passed on
    before its signature can be checked: trust them only after `finish`. `trailers` names exactly the fields that must
    follow the data; None if the encoding allows none. Every error is a Fault in S3's words; discard the decoder after
    an error.
    """

    def __init__(self, seed: Seed | None, *, decoded_length: int, trailers: Collection[str] | None = None) -> None:
        self._chain = _SignatureChain(seed) if seed else None
        self._missing_bytes = decoded_length
        self._trailer_names = None if trailers is None else {name.lower() for name in trailers}
        # The part of a chunk header, chunk end or trailer received so far.
        self._buffer = bytearray()
        self._chunk_left = 0
        self._chunk_signature = ""
        self._has_small_chunk = False
        self._step: _Step = ChunkedDecoder._read_header

    def feed(self, data: bytes) -> list[bytes]:
        """Return the decoded bytes in the next piece of the body."""
        self._decoded: list[bytes] = []
        position = 0
        while position < len(data):
            position = self._step(self, data, position)
        return self._decoded

    def finish(self) -> Mapping[str, str]:
        """Return the trailing fields by lower-case name. Call it after feeding the whole body."""
        if self._step is not ChunkedDecoder._read_tail:
            raise _incomplete_body("The request body ended before its last chunk.")
        if self._missing_bytes:
            raise _incomplete_body(f"The request body lacks {self._missing_bytes} of the bytes it announced.")
        if self._trailer_names is None:
            if bytes(self._buffer) not in (b"", b"\r\n"):
                raise _incomplete_body("The request body has unexpected data after its last chunk.")
            return {}
        return self._trailers()

    def _read_header(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position) + 1
        self._buffer += data[position : end or None]
        if len(self._buffer) > MAX_FRAME_HEADER_BYTES:
            raise _malformed_body("A chunk header is too long.")
        if not end:
            return len(data)
        line = bytes(self._buffer)
        self._buffer.clear()
        self._begin_chunk(line)
        return end

    def _begin_chunk(self, line: bytes) -> None:
        size, _, extension = line.rstrip(b"\r\n").partition(b";")
        if not line.endswith(b"\r\n") or not size or len(size) > 16 or not _HEX.issuperset(size):
            raise _malformed_body("A chunk does not start with its size in hexadecimal digits.")
        self._chunk_left = int(size, 16)
        if self._chunk_left > self._missing_bytes:
            raise _incomplete_body("The request body is longer than its x-amz-decoded-content-length.")
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
            raise _malformed_body("A chunk has no chunk-signature.")
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
        # Slicing all of `data` does not copy it.
        piece = data[position:end]
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
        end = position + 2 - len(self._buffer)
        self._buffer += data[position:end]
        if not b"\r\n".startswith(self._buffer):
            raise _malformed_body("A chunk is longer than its declared size.")
        if len(self._buffer) == 2:
            self._buffer.clear()
            self._step = ChunkedDecoder._read_header
        return min(end, len(data))

    def _read_tail(self, data: bytes, position: int) -> int:
        self._buffer += data[position:]
        if len(self._buffer) > MAX_TRAILER_BYTES:
            raise _malformed_trailer("The trailing fields are too long.")
        return len(data)

    def _trailers(self) -> Mapping[str, str]:
        fields: dict[str, str] = {}
        # AWS's own example ends a trailing field with "\n\r\n", so an empty line does not end the trailer.
        for line in self._buffer.decode("latin-1").split("\n"):
            name, separator, value = line.strip().partition(":")
            if name and (not separator or name.lower() in fields):
                raise _malformed_trailer(f'"{name}" is not a trailing field, or appears twice.')
            if name:
                fields[name.lower()] = value.strip()
        signature = fields.pop(_TRAILER_SIGNATURE, "")
        if fields.keys() != self._trailer_names:
            raise _malformed_trailer("The trailing fields differ from those in x-amz-trailer.")
        if self._chain:
            self._chain.check_trailers(fields, signature)
        return fields


class _SignatureChain:
    """Verifies chunk signatures. Each covers the one before it, so no chunk can be dropped, moved or repeated."""

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
            raise RequestRefused(Reason.MISMATCH).fault(Family.S3)
        self._previous = computed


_HEX = frozenset(b"0123456789abcdefABCDEF")


def _incomplete_body(message: str) -> Fault:
    return Fault("IncompleteBody", message)


def _malformed_body(message: str) -> Fault:
    return Fault("InvalidRequest", f"The aws-chunked body is malformed. {message}")


def _malformed_trailer(message: str) -> Fault:
    return Fault(
        "MalformedTrailerError",
        "The request contained trailing data that was not well-formed or did not conform to our published schema. "
        + message,
    )
