"""Bodies framed and signed as by a client, written from the specification and not from our decoder.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
"""

import hashlib
import hmac
from collections.abc import Sequence

from trainyard.wire.signed_request import Seed


def signed_body(seed: Seed, chunks: Sequence[bytes], trailers: Sequence[tuple[str, str]] | None = None) -> bytes:
    """Return an aws-chunked body whose signature chain starts at the seed."""
    previous = seed.signature
    framed = []

    def sign(kind: str, *digests: str) -> str:
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", seed.timestamp, seed.scope, previous, *digests])
        return hmac.new(seed.signing_key, text.encode(), hashlib.sha256).hexdigest()

    for chunk in [*chunks, b""]:
        previous = sign("PAYLOAD", hashlib.sha256(b"").hexdigest(), hashlib.sha256(chunk).hexdigest())
        framed.append(f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + chunk + (b"\r\n" if chunk else b""))
    if trailers is not None:
        text = "".join(f"{name}:{value}\n" for name, value in trailers)
        previous = sign("TRAILER", hashlib.sha256(text.encode()).hexdigest())
        framed += [f"{name}:{value}\r\n".encode() for name, value in trailers]
        framed.append(f"x-amz-trailer-signature:{previous}\r\n".encode())
    return b"".join(framed) + b"\r\n"
