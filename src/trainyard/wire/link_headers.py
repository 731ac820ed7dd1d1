"""Headers that a link carries in its query.

Who makes a link cannot send headers with it. So the SDKs for JavaScript, Go and Ruby move their x-amz- headers into the
query, boto3 does with Signature Version 2, and S3 reads them there as if they were headers.
"""

from dataclasses import replace

from trainyard.wire.fault import Fault
from trainyard.wire.http import CONTROLS, FIELD_NAME, Headers, HttpRequest

_OF_SIGNATURE = frozenset(
    (
        *("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signedheaders"),
        *("x-amz-signature", "x-amz-security-token", "x-amz-content-sha256"),
    )
)
_OF_LEGACY_LINK = frozenset({"content-type", "content-md5"})

# What is said of the body when there is none yet: the JavaScript SDK gives every link the checksum of an empty one, and
# S3 takes no notice of it (aws-sdk-go-v2 issue 2610). The other x-amz-checksum- headers only choose.
_OF_BODY = ("x-amz-checksum-", "x-amz-sdk-checksum-algorithm", "x-amz-trailer", "x-amz-decoded-content-length")
_CHOICES = frozenset({"x-amz-checksum-mode", "x-amz-checksum-algorithm", "x-amz-checksum-type"})


def with_link_headers(request: HttpRequest) -> HttpRequest:
    """The request with the headers that its link carries; a header that was also sent is left as it was sent.

    Fault for a header that could not have been sent as one, and for one that is carried twice.
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
    """Refuse what no client could send as a header: kept with an object, it would break every answer that gives it."""
    if not FIELD_NAME.fullmatch(name) or CONTROLS.search(value):
        raise _bad_field(
            name,
            "A link can carry only what a header can: letters, digits and hyphens in its name, and no line break or "
            "other control character in its value.",
        )


def _bad_field(name: str, message: str) -> Fault:
    return Fault("InvalidArgument", message, members={"ArgumentName": name})


def _is_for_s3(credential: str) -> bool:
    return credential.endswith("/s3/aws4_request")


def _is_header(name: str, *, is_legacy: bool) -> bool:
    if name in _OF_SIGNATURE:
        return False
    if not name.startswith("x-amz-"):
        return is_legacy and name in _OF_LEGACY_LINK
    return name in _CHOICES or not name.startswith(_OF_BODY)
