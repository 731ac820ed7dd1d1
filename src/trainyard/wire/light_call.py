"""One call of a JSON operation, without service models: for callers that cannot wait for botocore's import.

The completion of a shell is one: the user is waiting for the answer to a key.
"""

import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest, Unavailable

_ALGORITHM = "AWS4-HMAC-SHA256"
_CONTENT_TYPE = "application/x-amz-json-1.1"


def call_json(
    endpoint_url: str,
    target: str,
    request: Mapping[str, Any],
    *,
    access_key_id: str,
    secret: str,
    region: str,
    service: str,
    session_token: str | None = None,
    ca_bundle: Path | None = None,
    timeout_s: float,
) -> dict[str, Any]:
    """Call an operation of a JSON 1.1 service and return its response, with the values as they are in JSON.

    `target` names the operation, such as `SageMaker.ListTrainingJobs`. Raises Unavailable for every kind of failure.
    """
    address = urlsplit(endpoint_url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise InvalidRequest(f'"{endpoint_url}" is not an address; write it like http://127.0.0.1:4780.')
    body = json.dumps(request).encode()
    headers = {"content-type": _CONTENT_TYPE, "host": address.netloc, "x-amz-target": target}
    if session_token:
        headers["x-amz-security-token"] = session_token
    signed = _sign(headers, body, access_key_id=access_key_id, secret=secret, region=region, service=service)
    if address.scheme == "https":
        context = ssl.create_default_context(cafile=ca_bundle)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=timeout_s)
    try:
        connection.request("POST", "/", body, signed)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{endpoint_url} does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise Unavailable(f"{endpoint_url} answered {response.status}: {answer}")
    return answer


def _sign(
    headers: Mapping[str, str], body: bytes, *, access_key_id: str, secret: str, region: str, service: str
) -> dict[str, str]:
    """Return the headers with a signature of version 4."""
    timestamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    signed = {**headers, "x-amz-date": timestamp}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{timestamp[:8]}/{region}/{service}/aws4_request"
    text = f"{_ALGORITHM}\n{timestamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    claim = f"{_ALGORITHM} Credential={access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**signed, "authorization": claim}
