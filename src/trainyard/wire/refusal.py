"""Why a request fails authentication, and the error code that each family of AWS services has for it."""

from dataclasses import dataclass
from enum import Enum, auto

from trainyard.foundation.errors import TrainyardError
from trainyard.wire.fault import Fault

ALGORITHM = "AWS4-HMAC-SHA256"
LEGACY = "Signature Version 2"


class Family(Enum):
    """How a service reports a refused signature. Only S3 signs the path as sent."""

    S3 = auto()
    JSON = auto()  # awsJson, rest-json and rpc-v2-cbor
    QUERY = auto()  # query and ec2


class Reason(Enum):
    UNSIGNED = auto()
    UNSUPPORTED = auto()
    AMBIGUOUS = auto()
    MALFORMED_HEADER = auto()
    MALFORMED_QUERY = auto()
    UNDATED = auto()
    UNKNOWN_KEY = auto()
    INVALID_TOKEN = auto()
    EXPIRED_TOKEN = auto()
    SKEWED = auto()
    LINK_EXPIRED = auto()
    LINK_NOT_YET_VALID = auto()
    HEADERS_NOT_SIGNED = auto()
    PAYLOAD_NOT_DECLARED = auto()
    PAYLOAD_MISMATCH = auto()
    MISMATCH = auto()


class RequestRefused(TrainyardError):
    """The request failed authentication. `fault` gives the error of the service that was called."""

    def __init__(self, reason: Reason, message: str = "", *, members: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason, self.members = reason, members or {}

    def fault(self, family: Family) -> Fault:
        row = _ROWS[self.reason, family]
        members = self.members if family is Family.S3 else None
        return Fault(row.code, row.message or self.message, status=row.status, members=members)


def unsupported_mechanism(mechanism: str) -> RequestRefused:
    return RequestRefused(
        Reason.UNSUPPORTED,
        f"The authorization mechanism you have provided ({mechanism}) is not supported. Please use {ALGORITHM}; "
        'with boto3 that is Config(signature_version="s3v4").',
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """An error code. Without a message here, the refusal's own message is sent."""

    code: str
    status: int = 403
    message: str = ""


_WRONG_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details."
)
_WRONG_SIGNATURE_S3 = (
    "The request signature we calculated does not match the signature you provided. Check your key and signing method."
)
_INVALID_TOKEN = "The security token included in the request is invalid."
_EXPIRED_TOKEN = "The security token included in the request is expired"

_S3 = {
    Reason.UNSIGNED: _Row("AccessDenied", message="Access Denied"),
    Reason.UNSUPPORTED: _Row("InvalidRequest", 400),
    Reason.AMBIGUOUS: _Row("InvalidArgument", 400),
    Reason.MALFORMED_HEADER: _Row("AuthorizationHeaderMalformed", 400),
    Reason.MALFORMED_QUERY: _Row("AuthorizationQueryParametersError", 400),
    Reason.UNDATED: _Row("AccessDenied", message="AWS authentication requires a valid Date or x-amz-date header"),
    Reason.UNKNOWN_KEY: _Row(
        "InvalidAccessKeyId", message="The AWS Access Key Id you provided does not exist in our records."
    ),
    Reason.INVALID_TOKEN: _Row("InvalidToken", 400, message="The provided token is malformed or otherwise invalid."),
    Reason.EXPIRED_TOKEN: _Row("ExpiredToken", 400, message="The provided token has expired."),
    Reason.SKEWED: _Row(
        "RequestTimeTooSkewed", message="The difference between the request time and the current time is too large."
    ),
    Reason.LINK_EXPIRED: _Row("AccessDenied", message="Request has expired"),
    Reason.LINK_NOT_YET_VALID: _Row("AccessDenied", message="Request is not yet valid"),
    Reason.HEADERS_NOT_SIGNED: _Row(
        "AccessDenied", message="There were headers present in the request which were not signed"
    ),
    Reason.PAYLOAD_NOT_DECLARED: _Row(
        "InvalidRequest", 400, message="Missing required header for this request: x-amz-content-sha256"
    ),
    Reason.PAYLOAD_MISMATCH: _Row(
        "XAmzContentSHA256Mismatch",
        400,
        message="The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
    Reason.MISMATCH: _Row("SignatureDoesNotMatch", message=_WRONG_SIGNATURE_S3),
}

_JSON = {
    Reason.UNSIGNED: _Row("MissingAuthenticationTokenException", message="Missing Authentication Token"),
    Reason.UNSUPPORTED: _Row("IncompleteSignatureException"),
    Reason.AMBIGUOUS: _Row("InvalidSignatureException"),
    Reason.MALFORMED_HEADER: _Row("IncompleteSignatureException"),
    Reason.MALFORMED_QUERY: _Row("IncompleteSignatureException"),
    Reason.UNDATED: _Row("IncompleteSignatureException"),
    Reason.UNKNOWN_KEY: _Row("UnrecognizedClientException", message=_INVALID_TOKEN),
    Reason.INVALID_TOKEN: _Row("UnrecognizedClientException", message=_INVALID_TOKEN),
    Reason.EXPIRED_TOKEN: _Row("ExpiredTokenException", message=_EXPIRED_TOKEN),
    Reason.SKEWED: _Row("InvalidSignatureException"),
    Reason.LINK_EXPIRED: _Row("InvalidSignatureException"),
    Reason.LINK_NOT_YET_VALID: _Row("InvalidSignatureException"),
    Reason.HEADERS_NOT_SIGNED: _Row("InvalidSignatureException"),
    Reason.PAYLOAD_NOT_DECLARED: _Row("InvalidSignatureException"),
    Reason.PAYLOAD_MISMATCH: _Row("InvalidSignatureException", message=_WRONG_SIGNATURE),
    Reason.MISMATCH: _Row("InvalidSignatureException", message=_WRONG_SIGNATURE),
}

_QUERY_CODES = {
    "MissingAuthenticationTokenException": "MissingAuthenticationToken",
    "IncompleteSignatureException": "IncompleteSignature",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "UnrecognizedClientException": "InvalidClientTokenId",
    "ExpiredTokenException": "ExpiredToken",
}


def _query_row(row: _Row) -> _Row:
    return _Row(_QUERY_CODES[row.code], 400 if row.code == "IncompleteSignatureException" else row.status, row.message)


_ROWS = {
    **{(reason, Family.S3): row for reason, row in _S3.items()},
    **{(reason, Family.JSON): row for reason, row in _JSON.items()},
    **{(reason, Family.QUERY): _query_row(row) for reason, row in _JSON.items()},
}
