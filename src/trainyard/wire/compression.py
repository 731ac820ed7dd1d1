"""Decompression of request bodies; botocore compresses large PutMetricData calls."""

import zlib
from typing import TYPE_CHECKING

from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest
from trainyard.wire.limits import limits_of, too_large

if TYPE_CHECKING:
    from botocore.model import OperationModel


def plain_body(request: HttpRequest, operation: "OperationModel") -> bytes:
    """Return the body, decompressed if it is gzip. Refuse one that would exceed the limit of its operation."""
    if not _is_compressed(request):
        return request.body
    limit_bytes = limits_of(operation).size_bytes
    decompressor = zlib.decompressobj(wbits=31)
    body = _decompress(decompressor, request.body, limit_bytes)
    if decompressor.eof:
        return body
    if len(body) == limit_bytes:
        raise too_large(operation, limit_bytes)
    raise Fault("SerializationException", "The gzip stream of the body is truncated.")


def plain_start(request: HttpRequest, size_bytes: int) -> bytes:
    """Return the first `size_bytes` of the body, decompressed if it is gzip."""
    if not _is_compressed(request):
        return request.body[:size_bytes]
    return _decompress(zlib.decompressobj(wbits=31), request.body, size_bytes)


def _is_compressed(request: HttpRequest) -> bool:
    return bool(request.body) and request.headers.get("content-encoding").strip().lower() == "gzip"


def _decompress(decompressor: "zlib._Decompress", body: bytes, size_bytes: int) -> bytes:
    try:
        return decompressor.decompress(body, size_bytes)
    except zlib.error as error:
        raise Fault("SerializationException", "Content-Encoding is gzip, but the body is not a gzip stream.") from error
