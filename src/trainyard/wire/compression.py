"""Request bodies that a client compressed, as botocore does with large PutMetricData calls."""

import zlib

from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest

LIMIT_BYTES = 16 * 1024 * 1024


def plain_body(request: HttpRequest) -> bytes:
    """The body without its gzip encoding; a body that would unfold beyond the limit is refused before it does."""
    encoding = request.headers.get("content-encoding").strip().lower()
    if encoding != "gzip" or not request.body:
        return request.body
    unpacking = zlib.decompressobj(wbits=31)
    try:
        body = unpacking.decompress(request.body, LIMIT_BYTES)
    except zlib.error as error:
        raise Fault("SerializationException", "The body is not the gzip stream that Content-Encoding says.") from error
    if unpacking.eof:
        return body
    if len(body) == LIMIT_BYTES:
        raise Fault("RequestEntityTooLarge", f"The body is larger than {LIMIT_BYTES} bytes.", status=413)
    raise Fault("SerializationException", "The gzip stream of the body ends too early.")
