"""Decides how a new object is encrypted, and with which key."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from trainyard.objects.contract import Attributes
from trainyard.objects.encryption.headers import ALGORITHM, Encryption, with_encryption
from trainyard.objects.encryption.keyring import Keyring
from trainyard.objects.encryption.keys import S3_ALIAS


@dataclass(frozen=True, slots=True)
class ResolvedEncryption:
    """The attributes with everything that describes the encryption, and the key; None for no encryption."""

    attributes: Attributes
    key_id: str | None


def resolve_encryption(
    keyring: Keyring, attributes: Attributes, *, default: Mapping[str, str], account: str, region: str, now: datetime
) -> ResolvedEncryption:
    """Find the key for an object with these attributes in a bucket of `account` with this default encryption."""
    if ALGORITHM not in attributes.headers and not default:
        return ResolvedEncryption(attributes, None)
    encryption = Encryption.of(attributes.headers) or Encryption.of(default)
    if encryption is None:
        return ResolvedEncryption(attributes, None)
    if not encryption.uses_account_key:
        return ResolvedEncryption(with_encryption(attributes, encryption), keyring.store_key(account, now=now).id)
    key = keyring.find_usable(account, encryption.key or S3_ALIAS, region=region, now=now)
    return ResolvedEncryption(with_encryption(attributes, replace(encryption, key=key.arn)), key.id)
