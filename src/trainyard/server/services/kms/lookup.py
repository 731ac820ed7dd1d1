"""Find the keyring and the key that a request names."""

import re

from trainyard.foundation.errors import NotFound
from trainyard.objects.contract import EncryptsObjects
from trainyard.objects.encryption.keyring import Keyring
from trainyard.objects.encryption.keys import ALIAS_KIND, KEY_KIND, EncryptionKey, KeyManager
from trainyard.server.services.contract import Call
from trainyard.wire.fault import Fault

_KEY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def keyring_of(call: Call) -> Keyring:
    objects = call.yard.objects
    if not isinstance(objects, EncryptsObjects):
        raise Fault(
            "UnsupportedOperationException",
            "This yard keeps its objects in another S3 and has no keys of its own. Use the keys of that S3, by their "
            "ids, where a request names a key.",
        )
    return objects.keyring


def find_key(call: Call, reference: str, *, may_be_alias: bool = True) -> EncryptionKey:
    """Return the key that a request names. NotFound has the ARN, as in the messages of KMS."""
    name = reference.rpartition(":")[2].removeprefix("key/")
    if not name.startswith("alias/") and not _KEY_ID.fullmatch(name):
        raise Fault("NotFoundException", f"Invalid keyId '{reference}'")
    if name.startswith("alias/") and not may_be_alias:
        raise Fault("ValidationException", f"Invalid keyId {reference}: name the key by its id or its ARN.")
    try:
        return keyring_of(call).find(call.account, reference)
    except NotFound as error:
        kind = ALIAS_KIND if name.startswith("alias/") else KEY_KIND
        raise NotFound(kind, _arn(call, reference, name)) from error


def find_own_key(call: Call, reference: str) -> EncryptionKey:
    """Return a key that its user may change, by its id or ARN."""
    key = find_key(call, reference, may_be_alias=False)
    if key.manager is not KeyManager.CUSTOMER:
        raise Fault("AccessDeniedException", f"{key.arn} is managed by the yard; it cannot be changed.")
    return key


def _arn(call: Call, reference: str, name: str) -> str:
    if reference.startswith("arn:"):
        return reference
    path = name if name.startswith("alias/") else f"key/{name}"
    return f"arn:aws:kms:{call.region}:{call.account}:{path}"
