"""What a signed request claims, and what proving it yields."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
STREAMING_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

SHA256_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a request claims about its signature, not yet believed.

    `timestamp` is `signed_at` as it was signed. `payload_hash` is the declared one (a hex digest, UNSIGNED-PAYLOAD or
    one of the STREAMING words), None when the request declares none and its body must be hashed. `is_legacy` marks a
    link of Signature Version 2, which carries none but a key, a signature and the time it expires at.
    """

    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str
    timestamp: str
    signed_at: datetime
    expires_in: timedelta | None
    session_token: str | None
    payload_hash: str | None
    is_presigned: bool
    is_legacy: bool = False

    @property
    def declares_body(self) -> bool:
        """Whether the signature covers the digest of the body, so that it can be verified before the body has come."""
        return "x-amz-content-sha256" in self.signed_headers and bool(SHA256_HEX.fullmatch(self.payload_hash or ""))

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


@dataclass(frozen=True, slots=True)
class Seed:
    """What the signatures of a streamed body's chunks grow from."""

    signing_key: bytes
    timestamp: str
    scope: str
    signature: str
