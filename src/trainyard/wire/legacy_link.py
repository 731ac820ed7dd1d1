"""S3 links of Signature Version 2.

`generate_presigned_url` of boto3 still makes them in the older regions, us-east-1 and us-west-2 among them, unless it
is told otherwise. They sign less than Version 4 does: what they leave unsigned is accepted only where it narrows or
pages a list, and headers that they moved into the query are refused, because nobody would read them there.

https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html
"""

import base64
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from urllib.parse import unquote

from trainyard.foundation.clock import EPOCH
from trainyard.wire.claim import Seed, SignedRequest
from trainyard.wire.http import HttpRequest
from trainyard.wire.percent import decode_parameter, decode_parameters
from trainyard.wire.refusal import LEGACY, Reason, Refused, unsupported

REGION = "us-east-1"  # where S3 takes a request to belong that names no region

_TOKEN = "x-amz-security-token"
_CREDENTIALS = frozenset({"AWSAccessKeyId", "Signature", "Expires", _TOKEN})
_STANDARD = frozenset({"content-type", "content-md5"})
_SIGNED = frozenset(
    (
        *("accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle", "location"),
        *("logging", "metrics", "notification", "object-lock", "partNumber", "policy", "replication", "requestPayment"),
        *("response-cache-control", "response-content-disposition", "response-content-encoding"),
        *("response-content-language", "response-content-type", "response-expires", "restore", "select"),
        *("select-type", "storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning"),
        *("versions", "website"),
    )
)
_LISTING = frozenset(
    (
        *("continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "list-type", "marker"),
        *("max-keys", "max-parts", "max-uploads", "part-number-marker", "prefix", "start-after", "upload-id-marker"),
        *("version-id-marker", "x-id"),
    )
)
_KNOWN = _CREDENTIALS | _STANDARD | _SIGNED | _LISTING


def parse_legacy_link(request: HttpRequest, parameters: Mapping[str, str]) -> SignedRequest:
    """The claim of a link; `parameters` are its query, decoded. Refused where it has a parameter that S3 has not."""
    if any(not parameters.get(name) for name in ("AWSAccessKeyId", "Signature", "Expires")):
        raise Refused(Reason.MALFORMED_QUERY, "A link needs AWSAccessKeyId, Signature and Expires.")
    pairs = decode_parameters(request.query)
    if len(pairs) > len(parameters):
        # The signature does not tell in which order they came, and the last one would count.
        raise Refused(Reason.MALFORMED_QUERY, "A link gives each of its parameters once.")
    for name in parameters:
        if name not in _KNOWN and not name.startswith("x-amz-"):
            raise unsupported(f"{LEGACY} with the parameter {name}")
    declared = request.headers.get("x-amz-content-sha256") or None
    if declared and declared.startswith("STREAMING"):
        raise unsupported(f"{LEGACY} with a streamed body")
    written = parameters["Expires"]
    if not (written.isascii() and written.isdigit() and len(written) <= 11):
        raise Refused(Reason.MALFORMED_QUERY, f'Expires should be a time in seconds, not "{written}"')
    return SignedRequest(
        access_key_id=parameters["AWSAccessKeyId"],
        date="",
        region=REGION,
        service="s3",
        signed_headers=(),
        signature=parameters["Signature"],
        timestamp=written,
        signed_at=EPOCH,
        expires_in=timedelta(seconds=int(written)),
        session_token=parameters.get(_TOKEN) or None,
        payload_hash=declared,
        is_presigned=True,
        is_legacy=True,
    )


def verify_legacy_link(
    signed: SignedRequest, request: HttpRequest, *, secret: str, now: datetime, labels: Mapping[str, str]
) -> Seed:
    if (now - signed.signed_at) > (signed.expires_in or timedelta(0)):
        server_time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        raise Refused(Reason.LINK_EXPIRED, members={"Expires": signed.timestamp, "ServerTime": server_time})
    texts = list(_texts_to_sign(signed, request, labels))
    for text in texts:
        digest = hmac.digest(secret.encode(), text.encode("latin-1", "replace"), "sha1")
        if hmac.compare_digest(base64.b64encode(digest), signed.signature.encode("utf-8", "replace")):
            return Seed(signing_key=b"", timestamp=signed.timestamp, scope="", signature=signed.signature)
    members = {"AWSAccessKeyId": signed.access_key_id, "StringToSign": texts[0], "SignatureProvided": signed.signature}
    raise Refused(Reason.MISMATCH, members=members)


def _texts_to_sign(signed: SignedRequest, request: HttpRequest, labels: Mapping[str, str]) -> Iterator[str]:
    """What may have been signed: a content type that the sender's HTTP library added was not."""
    parameters = dict(decode_parameters(request.query))
    # What counts is what is acted on: a header that was sent hides the one that the link carries.
    md5, kind = (request.headers.get(name) or parameters.get(name, "") for name in ("content-md5", "content-type"))
    kinds = [kind] if "content-type" in parameters or not kind else [kind, ""]
    headers, query = _amz_headers(request, parameters), _signed_query(request)
    for path in _paths(request, labels):
        for each in kinds:
            yield f"{request.method}\n{md5}\n{each}\n{signed.timestamp}\n{headers}{path}{query}"


def _amz_headers(request: HttpRequest, parameters: Mapping[str, str]) -> str:
    """The headers that were signed, whether they were sent or moved into the query."""
    fields = {name: _as_bytes(value) for name, value in parameters.items() if name.startswith("x-amz-")}
    fields |= {name: value.strip() for name, value in request.headers.items() if name.startswith("x-amz-")}
    return "".join(f"{name}:{fields[name]}\n" for name in sorted(fields))


def _paths(request: HttpRequest, labels: Mapping[str, str]) -> Iterator[str]:
    """The path with the bucket in it, also when the host names the bucket."""
    path = request.path or "/"
    bucket, _, key = unquote(path[1:]).partition("/")
    if (bucket, key) != (labels.get("Bucket", ""), labels.get("Key", "")):
        path = f"/{labels.get('Bucket', '')}{path}"
    yield path
    if "Bucket" in labels and "Key" not in labels and not path.endswith("/"):
        yield f"{path}/"  # botocore signs a bucket with this slash and sends it without


def _signed_query(request: HttpRequest) -> str:
    """The sub-resources, told by the decoded names and values by which the request is routed and carried out."""
    signed = []
    for piece in request.query.split("&"):
        written, separator, value = piece.partition("=")
        name = decode_parameter(written)
        if name in _SIGNED:
            signed.append((name, f"{name}={_as_bytes(decode_parameter(value))}" if separator else name))
    signed.sort()
    return f"?{'&'.join(text for _, text in signed)}" if signed else ""


def _as_bytes(text: str) -> str:
    """One character for each byte that is signed, as in the headers of a request."""
    return text.encode().decode("latin-1")
