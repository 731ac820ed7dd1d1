"""Presigned S3 links of Signature Version 2.

boto3's `generate_presigned_url` still makes them by default in the older regions, such as us-east-1 and us-west-2.
They sign less than Version 4 does. Unsigned parameters are accepted only if they filter or page a listing, and any
parameter that S3 does not know is refused.

https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html
"""

import base64
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from urllib.parse import unquote

from trainyard.foundation.clock import EPOCH
from trainyard.wire.addressing import decode_parameter, decode_parameters
from trainyard.wire.http import HttpRequest
from trainyard.wire.refusal import LEGACY, Reason, RequestRefused, unsupported_mechanism
from trainyard.wire.signed_request import Seed, SignedRequest

# S3 assumes this region for a request that names none.
REGION = "us-east-1"

_TOKEN = "x-amz-security-token"
_CREDENTIAL_PARAMETERS = frozenset({"AWSAccessKeyId", "Signature", "Expires", _TOKEN})
_STANDARD_HEADERS = frozenset({"content-type", "content-md5"})
_SIGNED_PARAMETERS = frozenset(
    (
        *("accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle", "location"),
        *("logging", "metrics", "notification", "object-lock", "partNumber", "policy", "replication", "requestPayment"),
        *("response-cache-control", "response-content-disposition", "response-content-encoding"),
        *("response-content-language", "response-content-type", "response-expires", "restore", "select"),
        *("select-type", "storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning"),
        *("versions", "website"),
    )
)
_LIST_PARAMETERS = frozenset(
    (
        *("continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "list-type", "marker"),
        *("max-keys", "max-parts", "max-uploads", "part-number-marker", "prefix", "start-after", "upload-id-marker"),
        *("version-id-marker", "x-id"),
    )
)
_KNOWN_PARAMETERS = _CREDENTIAL_PARAMETERS | _STANDARD_HEADERS | _SIGNED_PARAMETERS | _LIST_PARAMETERS


def parse_legacy_link(request: HttpRequest, parameters: Mapping[str, str]) -> SignedRequest:
    """Parse the claim of a link. `parameters` is its decoded query; parameters unknown to S3 are refused."""
    if any(not parameters.get(name) for name in ("AWSAccessKeyId", "Signature", "Expires")):
        raise RequestRefused(Reason.MALFORMED_QUERY, "A link needs AWSAccessKeyId, Signature and Expires.")
    pairs = decode_parameters(request.query)
    if len(pairs) > len(parameters):
        # The signature does not cover the order of parameters, and the last one would win.
        raise RequestRefused(Reason.MALFORMED_QUERY, "A link can give each parameter only once.")
    for name in parameters:
        if name not in _KNOWN_PARAMETERS and not name.startswith("x-amz-"):
            raise unsupported_mechanism(f"{LEGACY} with the parameter {name}")
    declared = request.headers.get("x-amz-content-sha256") or None
    if declared and declared.startswith("STREAMING"):
        raise unsupported_mechanism(f"{LEGACY} with a streamed body")
    expires = parameters["Expires"]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 11):
        raise RequestRefused(Reason.MALFORMED_QUERY, f'Expires should be a time in seconds, not "{expires}"')
    return SignedRequest(
        access_key_id=parameters["AWSAccessKeyId"],
        date="",
        region=REGION,
        service="s3",
        signed_headers=(),
        signature=parameters["Signature"],
        timestamp=expires,
        signed_at=EPOCH,
        expires_in=timedelta(seconds=int(expires)),
        session_token=parameters.get(_TOKEN) or None,
        payload_hash=declared,
        is_presigned=True,
        is_legacy=True,
    )


def verify_legacy_link(
    signed: SignedRequest, request: HttpRequest, *, secret: str, now: datetime, labels: Mapping[str, str]
) -> Seed:
    """Verify a link of Signature Version 2; RequestRefused if it has expired or its signature does not match."""
    if (now - signed.signed_at) > (signed.expires_in or timedelta(0)):
        server_time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        raise RequestRefused(Reason.LINK_EXPIRED, members={"Expires": signed.timestamp, "ServerTime": server_time})
    texts = list(_texts_to_sign(signed, request, labels))
    for text in texts:
        digest = hmac.digest(secret.encode(), text.encode("latin-1", "replace"), "sha1")
        if hmac.compare_digest(base64.b64encode(digest), signed.signature.encode("utf-8", "replace")):
            return Seed(signing_key=b"", timestamp=signed.timestamp, scope="", signature=signed.signature)
    members = {"AWSAccessKeyId": signed.access_key_id, "StringToSign": texts[0], "SignatureProvided": signed.signature}
    raise RequestRefused(Reason.MISMATCH, members=members)


def _texts_to_sign(signed: SignedRequest, request: HttpRequest, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts that may have been signed: without the content type too, as the HTTP library may add it later."""
    parameters = dict(decode_parameters(request.query))
    # Verify the value that takes effect: a header that was sent overrides the one in the link.
    md5, kind = (request.headers.get(name) or parameters.get(name, "") for name in ("content-md5", "content-type"))
    kinds = [kind] if "content-type" in parameters or not kind else [kind, ""]
    headers, query = _amz_headers(request, parameters), _signed_query(request)
    for path in _paths(request, labels):
        for each in kinds:
            yield f"{request.method}\n{md5}\n{each}\n{signed.timestamp}\n{headers}{path}{query}"


def _amz_headers(request: HttpRequest, parameters: Mapping[str, str]) -> str:
    """Return the signed x-amz- headers, from the request and from its query."""
    fields = {name: _as_latin_1(value) for name, value in parameters.items() if name.startswith("x-amz-")}
    fields |= {name: value.strip() for name, value in request.headers.items() if name.startswith("x-amz-")}
    return "".join(f"{name}:{fields[name]}\n" for name in sorted(fields))


def _paths(request: HttpRequest, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the signed paths. They start with the bucket even if the host names it."""
    path = request.path or "/"
    bucket, _, key = unquote(path[1:]).partition("/")
    if (bucket, key) != (labels.get("Bucket", ""), labels.get("Key", "")):
        path = f"/{labels.get('Bucket', '')}{path}"
    yield path
    if "Bucket" in labels and "Key" not in labels and not path.endswith("/"):
        # botocore signs the path of a bucket with a final slash and sends it without.
        yield f"{path}/"


def _signed_query(request: HttpRequest) -> str:
    """Return the signed sub-resources, with the decoded names and values that routing uses."""
    signed = []
    for piece in request.query.split("&"):
        encoded_name, separator, value = piece.partition("=")
        name = decode_parameter(encoded_name)
        if name in _SIGNED_PARAMETERS:
            signed.append((name, f"{name}={_as_latin_1(decode_parameter(value))}" if separator else name))
    signed.sort()
    return f"?{'&'.join(text for _, text in signed)}" if signed else ""


def _as_latin_1(text: str) -> str:
    """Return one character per UTF-8 byte, as in the headers of a request."""
    return text.encode().decode("latin-1")
