"""The encryption of an object, as its headers describe it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.objects.contract import Attributes

ALGORITHM: Final = "x-amz-server-side-encryption"
KEY: Final = "x-amz-server-side-encryption-aws-kms-key-id"
BUCKET_KEY: Final = "x-amz-server-side-encryption-bucket-key-enabled"

HEADERS: Final = (ALGORITHM, KEY, BUCKET_KEY)

# With a key of the store, and with a key of the account.
STORE_KEY: Final = "AES256"
ACCOUNT_KEY: Final = "aws:kms"


@dataclass(frozen=True, slots=True)
class Encryption:
    """How an object is encrypted. `key` is empty, or names a key of the account in any form; stored is its ARN."""

    algorithm: str
    key: str = ""
    has_bucket_key: bool = False

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """Return what the headers ask for; None if they ask for no encryption."""
        algorithm = headers.get(ALGORITHM)
        if algorithm is None:
            return None
        if algorithm not in (STORE_KEY, ACCOUNT_KEY):
            raise InvalidRequest(f'The encryption "{algorithm}" is not supported; use {STORE_KEY} or {ACCOUNT_KEY}.')
        return cls(algorithm, headers.get(KEY, ""), headers.get(BUCKET_KEY) == "true")

    @property
    def uses_account_key(self) -> bool:
        return self.algorithm == ACCOUNT_KEY

    @property
    def headers(self) -> dict[str, str]:
        headers = {ALGORITHM: self.algorithm}
        if self.key:
            headers[KEY] = self.key
        if self.has_bucket_key:
            headers[BUCKET_KEY] = "true"
        return headers


def key_headers(key: str) -> dict[str, str]:
    """Return the headers that ask for encryption with a key of the account; none without a key."""
    return Encryption(ACCOUNT_KEY, key).headers if key else {}


def encryption_of(attributes: Attributes) -> Encryption | None:
    """Return the encryption that the attributes ask for; None if they ask for none, or for one that nobody offers."""
    return Encryption.of(attributes.headers) if attributes.headers.get(ALGORITHM) in (STORE_KEY, ACCOUNT_KEY) else None


def encryption_headers(attributes: Attributes) -> dict[str, str]:
    """Return the headers that describe the encryption."""
    return {name: attributes.headers[name] for name in HEADERS if name in attributes.headers}


def with_encryption(attributes: Attributes, encryption: Encryption | None) -> Attributes:
    """Return the attributes with this encryption in place of the one they have."""
    others = {name: text for name, text in attributes.headers.items() if name not in HEADERS}
    return replace(attributes, headers=others | (encryption.headers if encryption else {}))
