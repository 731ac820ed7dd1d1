"""What a signed request claims, and what its verification yields."""

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
    """What a request claims about its signature, not yet verified.

    `timestamp` is `signed_at` in the text form that was signed. `payload_hash` is the declared hash (a hex digest,
    UNSIGNED-PAYLOAD or one of the STREAMING words), or None if the request declares none and its body must be hashed.
    `is_legacy` marks a presigned link of Signature Version 2, which has only a key, a signature and an expiry time.
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
        """Whether the signature covers the digest of the body, so that it can be verified before the body arrives."""
        return "x-amz-content-sha256" in self.signed_headers and bool(SHA256_HEX.fullmatch(self.payload_hash or ""))

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


@dataclass(frozen=True, slots=True)
class Seed:
    """The start of the signature chain over the chunks of a streamed body."""

    signing_key: bytes
    timestamp: str
    scope: str
    signature: str
