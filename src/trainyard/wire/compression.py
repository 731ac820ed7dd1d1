"""Request bodies that a client compressed, as botocore does with large PutMetricData calls."""

import zlib
from typing import TYPE_CHECKING

from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest
from trainyard.wire.limits import limits_of, too_large

if TYPE_CHECKING:
    from botocore.model import OperationModel


def plain_body(request: HttpRequest, operation: "OperationModel") -> bytes:
    """The body without its gzip encoding; one that would unfold beyond what its operation takes is refused before."""
    if not _is_compressed(request):
        return request.body
    limit_bytes = limits_of(operation).size_bytes
    unpacking = zlib.decompressobj(wbits=31)
    body = _unfold(unpacking, request.body, limit_bytes)
    if unpacking.eof:
        return body
    if len(body) == limit_bytes:
        raise too_large(operation, limit_bytes)
    raise Fault("SerializationException", "The gzip stream of the body ends too early.")


def plain_start(request: HttpRequest, size_bytes: int) -> bytes:
    """As much of the beginning of the body, without its gzip encoding."""
    if not _is_compressed(request):
        return request.body[:size_bytes]
    return _unfold(zlib.decompressobj(wbits=31), request.body, size_bytes)


def _is_compressed(request: HttpRequest) -> bool:
    return bool(request.body) and request.headers.get("content-encoding").strip().lower() == "gzip"


def _unfold(unpacking: "zlib._Decompress", body: bytes, size_bytes: int) -> bytes:
    try:
        return unpacking.decompress(body, size_bytes)
    except zlib.error as error:
        raise Fault("SerializationException", "The body is not the gzip stream that Content-Encoding says.") from error
