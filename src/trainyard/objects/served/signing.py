"""Requests to a yard, signed as S3 wants it: AWS Signature Version 4, with the body left out of it."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"

_ALGORITHM = "AWS4-HMAC-SHA256"
_BLANKS = re.compile(r"[ \t]+")
_PLAIN = "-_.~"  # besides letters and digits, what is never escaped


@dataclass(frozen=True, slots=True)
class Keys:
    """Who asks, and in which region."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    region: str


def target_of(bucket: str, key: str, query: Mapping[str, str]) -> str:
    """Path and query, in the one spelling that is both sent and signed."""
    path = f"/{bucket}/{quote(key, safe=_PLAIN + '/')}" if key else f"/{bucket}"
    if not query:
        return path
    pairs = [f"{quote(name, safe=_PLAIN)}={quote(query[name], safe=_PLAIN)}" for name in sorted(query)]
    return f"{path}?{'&'.join(pairs)}"


def signed(
    keys: Keys, method: str, target: str, *, host: str, headers: Mapping[str, str], now: datetime
) -> dict[str, str]:
    """The headers, with those that prove who sends them. All that are given are signed."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    whole = {**headers, "host": host, "x-amz-date": moment, "x-amz-content-sha256": UNSIGNED}
    if keys.session_token:
        whole["x-amz-security-token"] = keys.session_token
    names = sorted(whole)
    path, _, query = target.partition("?")
    fields = [f"{name}:{_BLANKS.sub(' ', whole[name]).strip(' ')}" for name in names]
    request = "\n".join([method, path, query, *fields, "", ";".join(names), UNSIGNED])
    scope = f"{moment[:8]}/{keys.region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = _signing_key(keys.secret_access_key, moment[:8], keys.region)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key_id}/{scope}"
    whole["authorization"] = f"{_ALGORITHM} {credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return whole


@lru_cache(maxsize=8)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    """It changes once a day."""
    key = hmac.digest(f"AWS4{secret}".encode(), date.encode(), "sha256")
    for part in (region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
