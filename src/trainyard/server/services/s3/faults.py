"""The error codes and messages of S3, and the request options that the yard refuses."""

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
from trainyard.objects.encryption.keys import ALIAS_KIND, KEY_KIND, KeyDestroyed, KeyDisabled, KeyPendingDeletion
from trainyard.server.services.contract import Shape
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
        KeyDisabled: FaultRow("KMS.DisabledException", 400),
        KeyDestroyed: FaultRow("KMS.NotFoundException", 400),
        KeyPendingDeletion: FaultRow("KMS.KMSInvalidStateException", 400),
    },
    # The tests of clients compare these sentences; the members have the names.
    not_found={
        "bucket": FaultRow("NoSuchBucket", 404, "BucketName", words="The specified bucket does not exist"),
        KEY_KIND: FaultRow("KMS.NotFoundException", 400, words="Key '{name}' does not exist"),
        ALIAS_KIND: FaultRow("KMS.NotFoundException", 400, words="Alias {name} is not found."),
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

# Each option changes who may read an object, how it is stored or when it may be deleted. Ignoring one silently would
# mislead the client, so it is refused by name.
_CUSTOMER_KEYS = "encryption with customer-provided keys (SSE-C)"
GRANTS = "access control lists; only its account can access an object"
_LOCKS = "object locks, retention and legal holds"
_DIRECTORY_BUCKETS = "the conditions and appends of directory buckets"
_CHECKSUMS = "this checksum algorithm; use CRC32, CRC32C, CRC64NVME, SHA1 or SHA256"

_UNSERVED = {
    "SSECustomerAlgorithm": _CUSTOMER_KEYS,
    "SSECustomerKey": _CUSTOMER_KEYS,
    "SSECustomerKeyMD5": _CUSTOMER_KEYS,
    "CopySourceSSECustomerAlgorithm": _CUSTOMER_KEYS,
    "CopySourceSSECustomerKey": _CUSTOMER_KEYS,
    "CopySourceSSECustomerKeyMD5": _CUSTOMER_KEYS,
    "SSEKMSEncryptionContext": "an encryption context for objects",
    "GrantFullControl": GRANTS,
    "GrantRead": GRANTS,
    "GrantReadACP": GRANTS,
    "GrantWrite": GRANTS,
    "GrantWriteACP": GRANTS,
    "ObjectLockMode": _LOCKS,
    "ObjectLockRetainUntilDate": _LOCKS,
    "ObjectLockLegalHoldStatus": _LOCKS,
    "ObjectLockEventHold": _LOCKS,
    "ObjectLockEventHoldDurationDays": _LOCKS,
    "ObjectLockEventHoldDurationYears": _LOCKS,
    "WriteOffsetBytes": _DIRECTORY_BUCKETS,
    "IfMatchLastModifiedTime": _DIRECTORY_BUCKETS,
    "IfMatchSize": _DIRECTORY_BUCKETS,
    "IfMatchInitiatedTime": _DIRECTORY_BUCKETS,
    "ChecksumSHA512": _CHECKSUMS,
    "ChecksumMD5": _CHECKSUMS,
    "ChecksumXXHASH64": _CHECKSUMS,
    "ChecksumXXHASH3": _CHECKSUMS,
    "ChecksumXXHASH128": _CHECKSUMS,
}

# These state what always holds: the owner alone has full control.
_OWNER_ONLY_ACLS = frozenset({"private", "bucket-owner-full-control"})


def not_served(what: str) -> Fault:
    return Fault("NotImplemented", f"Trainyard does not serve {what}.", status=501)


def unsupported_header(header: str, why: str) -> Fault:
    """Return the 501 for a header that S3 does not implement either."""
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


def malformed_xml(message: str) -> Fault:
    return Fault("MalformedXML", message)


def failed_condition(condition: str) -> Fault:
    """Return the 412 that names the failed header."""
    return Fault(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        status=412,
        members={"Condition": condition},
    )


def no_such_version(key: str, version: str) -> Fault:
    return Fault(
        "NoSuchVersion",
        f'There is no version "{version}" of "{key}"; without versioning, the version of every object is "null".',
        status=404,
        members={"Key": key, "VersionId": version},
    )


def too_large(proposed: int, limit: int) -> Fault:
    return Fault(
        "EntityTooLarge",
        f"The proposed upload of {proposed} bytes exceeds the limit of {limit} bytes; upload it in parts.",
        members={"ProposedSize": str(proposed), "MaxSizeAllowed": str(limit)},
    )


def refuse_unserved(shape: Shape) -> None:
    """Raise NotImplemented for an option in the request that the yard does not serve."""
    for member in _UNSERVED.keys() & shape.keys():
        raise not_served(f"{_UNSERVED[member]} ({member})")
    acl = shape.get("ACL")
    if acl is not None and acl not in _OWNER_ONLY_ACLS:
        raise not_served(f'{GRANTS} (ACL "{acl}")')
