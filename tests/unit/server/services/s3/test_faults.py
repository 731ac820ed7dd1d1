import pytest

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
        (NotFound("bucket", "data"), "NoSuchBucket", 404),
        (NotFound("key", "a/b"), "NoSuchKey", 404),
        (NotFound("upload", "abc"), "NoSuchUpload", 404),
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
        (PartTooSmall("Part 1 is small."), "EntityTooSmall", 400),
    ],
)
def test_every_error_of_the_store_has_the_code_of_s3(error: TrainyardError, code: str, status: int) -> None:
    fault = FAULTS.fault(error)
    assert (fault.code, fault.status, fault.message) == (code, status, error.message)


def test_what_is_not_found_is_named_in_a_member() -> None:
    assert FAULTS.fault(NotFound("bucket", "data")).members == {"BucketName": "data"}
    assert FAULTS.fault(NotFound("key", "a/b")).members == {"Key": "a/b"}
    assert FAULTS.fault(NotFound("upload", "abc")).members == {"UploadId": "abc"}
