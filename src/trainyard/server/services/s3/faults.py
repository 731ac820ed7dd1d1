"""How S3 words what goes wrong."""

from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidRequest,
    LimitExceeded,
    NotPermitted,
    Unavailable,
)
from trainyard.objects.contract import DigestMismatch, InvalidPart, PartTooSmall, PreconditionFailed, StorageFull
from trainyard.wire.fault import Fault, FaultRow, FaultTable

FAULTS = FaultTable(
    rows={
        AlreadyExists: FaultRow("BucketAlreadyOwnedByYou", 409),
        InvalidRequest: FaultRow("InvalidRequest", 400),
        Conflict: FaultRow("OperationAborted", 409),
        LimitExceeded: FaultRow("EntityTooLarge", 400),
        StorageFull: FaultRow("QuotaExceeded", 403),
        NotPermitted: FaultRow("AccessDenied", 403),
        Unavailable: FaultRow("ServiceUnavailable", 503),
        Corrupt: FaultRow("InternalError", 500),
        PreconditionFailed: FaultRow("PreconditionFailed", 412),
        DigestMismatch: FaultRow("BadDigest", 400),
        InvalidPart: FaultRow("InvalidPart", 400),
        PartTooSmall: FaultRow("EntityTooSmall", 400),
    },
    # Tests of clients compare these sentences; the names are in the members.
    kinds={
        "bucket": FaultRow("NoSuchBucket", 404, "BucketName", words="The specified bucket does not exist"),
        "key": FaultRow("NoSuchKey", 404, "Key", words="The specified key does not exist."),
        "upload": FaultRow(
            "NoSuchUpload",
            404,
            "UploadId",
            words="The specified upload does not exist. The upload ID may be invalid, or the upload may have been "
            "aborted or completed.",
        ),
    },
)


def not_served(what: str) -> Fault:
    return Fault("NotImplemented", f"Trainyard does not serve {what}.", status=501)


def unserved_header(header: str, why: str) -> Fault:
    """The 501 for what a header demands and S3 does not serve either."""
    return Fault(
        "NotImplemented",
        "A header you provided implies functionality that is not implemented",
        status=501,
        members={"Header": header, "additionalMessage": why},
    )


def invalid_argument(message: str, *, name: str, value: object) -> Fault:
    return Fault("InvalidArgument", message, members={"ArgumentName": name, "ArgumentValue": str(value)})


def invalid_request(message: str) -> Fault:
    return Fault("InvalidRequest", message)


def malformed(message: str) -> Fault:
    return Fault("MalformedXML", message)


def failed_condition(condition: str) -> Fault:
    """The 412 that names the header whose demand was not met."""
    return Fault(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        status=412,
        members={"Condition": condition},
    )


def no_such_version(key: str, version: str) -> Fault:
    return Fault(
        "NoSuchVersion",
        f'There is no version "{version}" of "{key}": buckets here are not versioned, each object is version "null".',
        status=404,
        members={"Key": key, "VersionId": version},
    )


def too_large(proposed: int, limit: int) -> Fault:
    return Fault(
        "EntityTooLarge",
        f"The proposed upload of {proposed} bytes is over the limit of {limit}; upload it in parts.",
        members={"ProposedSize": str(proposed), "MaxSizeAllowed": str(limit)},
    )
