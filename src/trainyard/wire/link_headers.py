"""Headers that a presigned link carries in its query.

A link cannot carry HTTP headers. So the SDKs for JavaScript, Go and Ruby move their x-amz- headers into the query, as
boto3 does with Signature Version 2, and S3 reads them from there as if they were headers.
"""

from dataclasses import replace

from trainyard.wire.fault import Fault
from trainyard.wire.http import CONTROLS, FIELD_NAME, Headers, HttpRequest

_SIGNATURE_FIELDS = frozenset(
    (
        *("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signedheaders"),
        *("x-amz-signature", "x-amz-security-token", "x-amz-content-sha256"),
    )
)
_LEGACY_LINK_FIELDS = frozenset({"content-type", "content-md5"})

# Fields that describe the body before there is one: the JavaScript SDK gives every link the checksum of an empty body,
# and S3 ignores it (aws-sdk-go-v2 issue 2610). The other x-amz-checksum- headers are options.
_BODY_FIELD_PREFIXES = (
    "x-amz-checksum-",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
    "x-amz-decoded-content-length",
)
_CHECKSUM_OPTIONS = frozenset({"x-amz-checksum-mode", "x-amz-checksum-algorithm", "x-amz-checksum-type"})


def with_link_headers(request: HttpRequest) -> HttpRequest:
    """Return the request with the headers from its link added; headers that were sent take precedence.

    Raises Fault for a name or value that is not valid in a header, and for a header that the link carries twice.
    """
    if "ignature=" not in request.query:
        return request
    parameters = dict(request.parameters())
    is_legacy = "Signature" in parameters and "AWSAccessKeyId" in parameters
    if not is_legacy and not _is_for_s3(parameters.get("X-Amz-Credential", "")):
        return request
    carried: dict[str, str] = {}
    for name, value in request.parameters():
        lower = name.lower()
        if not _is_header(lower, is_legacy=is_legacy) or lower in request.headers:
            continue
        if lower in carried:
            raise _bad_field(lower, "A link can carry a header only once.")
        carried[lower] = value.encode("utf-8", "replace").decode("latin-1")
        _check_field(lower, carried[lower])
    if not carried:
        return request
    headers = Headers([*request.headers.items(), *carried.items()])
    return replace(request, headers=headers, from_link=frozenset(carried))


def _check_field(name: str, value: str) -> None:
    """Refuse an invalid header: stored with an object, it would break every response that returns it."""
    if not FIELD_NAME.fullmatch(name) or CONTROLS.search(value):
        raise _bad_field(
            name,
            "A header in a link needs a name of letters, digits and hyphens, and a value without line breaks or other "
            "control characters.",
        )


def _bad_field(name: str, message: str) -> Fault:
    return Fault("InvalidArgument", message, members={"ArgumentName": name})


def _is_for_s3(credential: str) -> bool:
    return credential.endswith("/s3/aws4_request")


def _is_header(name: str, *, is_legacy: bool) -> bool:
    if name in _SIGNATURE_FIELDS:
        return False
    if not name.startswith("x-amz-"):
        return is_legacy and name in _LEGACY_LINK_FIELDS
    return name in _CHECKSUM_OPTIONS or not name.startswith(_BODY_FIELD_PREFIXES)
