from typing import Any

import pytest

from tests.unit.server.services.s3.front import Front, refused_put
from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotPermitted,
    TrainyardError,
    Unavailable,
)
from trainyard.objects.contract import DigestMismatch, InvalidPart, PartTooSmall, PreconditionFailed
from trainyard.server.services.s3 import FAULTS


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (AlreadyExists("bucket", "data"), "BucketAlreadyOwnedByYou", 409),
        (InvalidRequest("Not so."), "InvalidRequest", 400),
        (Conflict("bucket", "data", "is busy"), "OperationAborted", 409),
        (LimitExceeded("Too much."), "EntityTooLarge", 400),
        (NotPermitted("You may not."), "AccessDenied", 403),
        (Unavailable("The disk is full."), "ServiceUnavailable", 503),
        (Corrupt("The file is cut off."), "InternalError", 500),
        (PreconditionFailed("It changed."), "PreconditionFailed", 412),
        (DigestMismatch("CRC32", "a", "b"), "BadDigest", 400),
        (InvalidPart("Part 3 is not there."), "InvalidPart", 400),
        (PartTooSmall("Part 1 is small.", number=1, etag="abc", size=7), "EntityTooSmall", 400),
    ],
)
def test_every_error_of_the_store_has_the_code_of_s3(error: TrainyardError, code: str, status: int) -> None:
    fault = FAULTS.fault(error)
    assert (fault.code, fault.status, fault.message) == (code, status, error.message)


@pytest.mark.parametrize(
    ("kind", "code", "member", "message"),
    [
        ("bucket", "NoSuchBucket", "BucketName", "The specified bucket does not exist"),
        ("key", "NoSuchKey", "Key", "The specified key does not exist."),
        (
            *("upload", "NoSuchUpload", "UploadId"),
            "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or "
            "completed.",
        ),
    ],
)
def test_missing_things_are_reported_in_the_words_of_s3_and_named_in_a_member(
    kind: str, code: str, member: str, message: str
) -> None:
    fault = FAULTS.fault(NotFound(kind, "a/b"))
    assert (fault.code, fault.status, fault.message, fault.members) == (code, 404, message, {member: "a/b"})


@pytest.mark.parametrize(
    "option",
    [
        {"ACL": "public-read"},
        {"GrantFullControl": "id=abc"},
        {"SSECustomerAlgorithm": "AES256"},
        {"ObjectLockMode": "GOVERNANCE"},
        {"ObjectLockLegalHoldStatus": "ON"},
        {"WriteOffsetBytes": 3},
    ],
)
def test_an_option_that_is_not_served_is_refused_by_name(s3: Front, option: dict[str, Any]) -> None:
    fault = refused_put(s3, **option)
    assert (fault.code, fault.status) == ("NotImplemented", 501)
    assert next(iter(option)) in fault.message or "public-read" in fault.message


@pytest.mark.parametrize("acl", ["private", "bucket-owner-full-control"])
def test_an_acl_that_states_the_default_is_accepted(s3: Front, acl: str) -> None:
    s3.put("data", "key", b"hello", ACL=acl)
    assert s3.keys("data") == ["key"]
