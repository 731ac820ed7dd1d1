"""KMS: the encryption keys of accounts, and what is encrypted with them directly."""

from trainyard.foundation.errors import AlreadyExists, Conflict, InvalidRequest, LimitExceeded, NotFound, Unavailable
from trainyard.objects.encryption.keys import ALIAS_KIND, KEY_KIND, KeyDestroyed, KeyDisabled, KeyPendingDeletion
from trainyard.server.services.contract import Operations
from trainyard.server.services.kms import aliases, cryptography, descriptions, keys, tags
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **keys.OPERATIONS,
    **descriptions.OPERATIONS,
    **aliases.OPERATIONS,
    **cryptography.OPERATIONS,
    **tags.OPERATIONS,
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("NotFoundException"),
        AlreadyExists: FaultRow("AlreadyExistsException"),
        InvalidRequest: FaultRow("ValidationException"),
        LimitExceeded: FaultRow("LimitExceededException"),
        Conflict: FaultRow("KMSInvalidStateException"),
        KeyDisabled: FaultRow("DisabledException"),
        KeyDestroyed: FaultRow("NotFoundException"),
        KeyPendingDeletion: FaultRow("KMSInvalidStateException"),
        Unavailable: FaultRow("KMSInternalException", 500),
    },
    not_found={
        KEY_KIND: FaultRow("NotFoundException", words="Key '{name}' does not exist"),
        ALIAS_KIND: FaultRow("NotFoundException", words="Alias {name} is not found."),
    },
    already_exists={
        ALIAS_KIND: FaultRow("AlreadyExistsException", words="An alias with the name {name} already exists"),
    },
)
