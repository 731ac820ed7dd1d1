"""Encryption keys of accounts, as the keyring describes them, and why one cannot be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from trainyard.foundation.errors import TrainyardError

KEY_KIND: Final = "encryption key"
ALIAS_KIND: Final = "key alias"
# The key with which objects are encrypted if a request names none.
S3_ALIAS: Final = "alias/aws/s3"


class KeyState(StrEnum):
    ENABLED = "Enabled"
    DISABLED = "Disabled"
    PENDING_DELETION = "PendingDeletion"


class KeyManager(StrEnum):
    """Who created a key: a user, the yard on behalf of a service, or the store for objects without a named key."""

    CUSTOMER = "CUSTOMER"
    AWS = "AWS"
    STORE = "STORE"


class KeyUnusable(TrainyardError):
    """The key exists but cannot be used in its state."""


class KeyDisabled(KeyUnusable):
    """The key is disabled."""

    def __init__(self, arn: str) -> None:
        super().__init__(f"{arn} is disabled.")


class KeyPendingDeletion(KeyUnusable):
    """The key is going to be destroyed."""

    def __init__(self, arn: str) -> None:
        super().__init__(f"{arn} is pending deletion.")


class KeyDestroyed(KeyUnusable):
    """The key was deleted, and with it what was encrypted."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"Key '{key_id}' does not exist: it was deleted, so what is encrypted with it cannot be decrypted any more."
        )


def require_enabled(arn: str, state: KeyState) -> None:
    """Raise KeyUnusable unless a key in this state can be used."""
    if state is not KeyState.ENABLED:
        raise KeyDisabled(arn) if state is KeyState.DISABLED else KeyPendingDeletion(arn)


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key without its material. `deletion_at` is set while it is pending deletion."""

    id: str
    account: str
    region: str
    state: KeyState
    manager: KeyManager
    created_at: datetime
    deletion_at: datetime | None = None
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        return f"arn:aws:kms:{self.region}:{self.account}:key/{self.id}"


@dataclass(frozen=True, slots=True)
class KeyAlias:
    """Another name of a key, which begins with `alias/`."""

    account: str
    name: str
    key_id: str
    region: str
    created_at: datetime
    changed_at: datetime

    @property
    def arn(self) -> str:
        return f"arn:aws:kms:{self.region}:{self.account}:{self.name}"
