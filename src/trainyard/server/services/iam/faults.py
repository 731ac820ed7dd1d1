"""The error codes and messages of IAM."""

from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotPermitted,
    Unavailable,
)
from trainyard.wire.fault import Fault, FaultRow, FaultTable

_NOT_FOUND = {
    "role": "The role with name {name} cannot be found.",
    "role policy": "The role policy with name {name} cannot be found.",
    "user": "The user with name {name} cannot be found.",
    "access key": "The Access Key with id {name} cannot be found.",
    "instance-profile": "Instance Profile {name} cannot be found.",
    "policy": "Policy {name} was not found.",
    "attached policy": "Policy {name} was not found.",
    "attachable policy": "Policy {name} does not exist or is not attachable.",
    "boundary": "Scope ARN: {name} does not exist or is not attachable.",
}
_ALREADY_EXISTS = {
    "role": "Role with name {name} already exists.",
    "user": "User with name {name} already exists.",
    "instance-profile": "Instance Profile {name} already exists.",
    "policy": "A policy called {name} already exists. Duplicate names are not allowed.",
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("NoSuchEntity", 404),
        AlreadyExists: FaultRow("EntityAlreadyExists", 409),
        InvalidRequest: FaultRow("InvalidInput"),
        Conflict: FaultRow("DeleteConflict", 409),
        LimitExceeded: FaultRow("LimitExceeded", 409),
        NotPermitted: FaultRow("AccessDenied", 403),
        Unavailable: FaultRow("ServiceFailure", 503),
    },
    not_found={kind: FaultRow("NoSuchEntity", 404, words=words) for kind, words in _NOT_FOUND.items()},
    already_exists={kind: FaultRow("EntityAlreadyExists", 409, words=words) for kind, words in _ALREADY_EXISTS.items()},
)


def delete_conflict(message: str) -> Fault:
    return Fault("DeleteConflict", message, status=409)


def validation_error(message: str) -> Fault:
    return Fault("ValidationError", message)


def malformed_policy(message: str) -> Fault:
    return Fault("MalformedPolicyDocument", message)
