"""Signs requests to a yard with AWS Signature Version 4; the body is not signed."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"

_ALGORITHM = "AWS4-HMAC-SHA256"
_SPACES = re.compile(r"[ \t]+")
# Never escaped, besides letters and digits.
_UNESCAPED = "-_.~"


@dataclass(frozen=True, slots=True)
class AttemptKeys:
    """The temporary credentials of an attempt, and their region."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    region: str


def target_of(bucket: str, key: str, query: Mapping[str, str]) -> str:
    """Return path and query in the form that is both sent and signed."""
    path = f"/{bucket}/{quote(key, safe=_UNESCAPED + '/')}" if key else f"/{bucket}"
    if not query:
        return path
    pairs = [f"{quote(name, safe=_UNESCAPED)}={quote(query[name], safe=_UNESCAPED)}" for name in sorted(query)]
    return f"{path}?{'&'.join(pairs)}"


def sign_headers(
    keys: AttemptKeys, method: str, target: str, *, host: str, headers: Mapping[str, str], now: datetime
) -> dict[str, str]:
    """Return the headers with the signature added; it covers all given headers."""
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {**headers, "host": host, "x-amz-date": timestamp, "x-amz-content-sha256": UNSIGNED_PAYLOAD}
    if keys.session_token:
        signed["x-amz-security-token"] = keys.session_token
    names = sorted(signed)
    path, _, query = target.partition("?")
    fields = [f"{name}:{_SPACES.sub(' ', signed[name]).strip(' ')}" for name in names]
    request = "\n".join([method, path, query, *fields, "", ";".join(names), UNSIGNED_PAYLOAD])
    scope = f"{timestamp[:8]}/{keys.region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, timestamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = _signing_key(keys.secret_access_key, timestamp[:8], keys.region)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key_id}/{scope}"
    signed["authorization"] = f"{_ALGORITHM} {credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return signed


@lru_cache(maxsize=8)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    """Return the signing key, which changes once a day."""
    key = hmac.digest(f"AWS4{secret}".encode(), date.encode(), "sha256")
    for part in (region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
