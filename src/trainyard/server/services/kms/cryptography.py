"""Encrypt and decrypt small texts, and generate data keys."""

import json
import os
import uuid
from dataclasses import dataclass

from trainyard.foundation.errors import NotFound
from trainyard.objects.encryption.cipher import WrongKey
from trainyard.objects.encryption.keys import S3_ALIAS, EncryptionKey, KeyManager, require_enabled
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.kms.lookup import find_key, keyring_of
from trainyard.wire.fault import Fault

ALGORITHM = "SYMMETRIC_DEFAULT"
MAX_PLAINTEXT_BYTES = 4096

_KEY_SPECS = {"AES_256": 32, "AES_128": 16}
_UNSERVED = ("Recipient", "GrantTokens", "DryRunModifiers")
# A ciphertext: this version, the id of the key, and what the keyring returned.
_VERSION = b"\x01"
_KEY_ID_BYTES = 16


def encrypt(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    key = _usable_key(call, shape["KeyId"])
    return {
        "CiphertextBlob": _seal(call, key, shape["Plaintext"], shape.get("EncryptionContext")),
        "KeyId": key.arn,
        "EncryptionAlgorithm": ALGORITHM,
    }


def decrypt(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    opened = _open(call, _ciphertext(shape), shape.get("EncryptionContext"), expected=shape.get("KeyId"))
    return {"KeyId": opened.key.arn, "Plaintext": opened.plaintext, "EncryptionAlgorithm": ALGORITHM}


def re_encrypt(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    context, expected = shape.get("SourceEncryptionContext"), shape.get("SourceKeyId")
    opened = _open(call, _ciphertext(shape), context, expected=expected)
    key = _usable_key(call, shape["DestinationKeyId"])
    return {
        "CiphertextBlob": _seal(call, key, opened.plaintext, shape.get("DestinationEncryptionContext")),
        "SourceKeyId": opened.key.arn,
        "KeyId": key.arn,
        "SourceEncryptionAlgorithm": ALGORITHM,
        "DestinationEncryptionAlgorithm": ALGORITHM,
    }


def generate_data_key(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    key, plaintext = _usable_key(call, shape["KeyId"]), os.urandom(_data_key_size(shape))
    sealed = _seal(call, key, plaintext, shape.get("EncryptionContext"))
    return {"CiphertextBlob": sealed, "Plaintext": plaintext, "KeyId": key.arn}


def generate_data_key_without_plaintext(call: Call, shape: Shape) -> Shape:
    answer = generate_data_key(call, shape)
    del answer["Plaintext"]
    return answer


def generate_random(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    keyring_of(call)
    if "NumberOfBytes" not in shape:
        raise Fault("ValidationException", "NumberOfBytes is required.")
    return {"Plaintext": os.urandom(shape["NumberOfBytes"])}


OPERATIONS: Operations = {
    "Encrypt": encrypt,
    "Decrypt": decrypt,
    "ReEncrypt": re_encrypt,
    "GenerateDataKey": generate_data_key,
    "GenerateDataKeyWithoutPlaintext": generate_data_key_without_plaintext,
    "GenerateRandom": generate_random,
}


@dataclass(frozen=True, slots=True)
class _Opened:
    key: EncryptionKey
    plaintext: bytes


def _require_served(shape: Shape) -> None:
    for member in _UNSERVED:
        if shape.get(member):
            raise Fault("UnsupportedOperationException", f"Trainyard does not serve {member}; leave it out.")
    for member, value in shape.items():
        if member.endswith("EncryptionAlgorithm") and value != ALGORITHM:
            raise Fault("InvalidKeyUsageException", f"Algorithm {value} is incompatible with key spec {ALGORITHM}.")
    if shape.get("DryRun"):
        raise Fault("UnsupportedOperationException", "Trainyard does not serve DryRun; leave it out.")


def _ciphertext(shape: Shape) -> bytes:
    """Return the ciphertext, which AWS's model leaves optional because a dry run needs none."""
    if "CiphertextBlob" not in shape:
        raise Fault("ValidationException", "CiphertextBlob is required.")
    blob: bytes = shape["CiphertextBlob"]
    return blob


def _usable_key(call: Call, reference: str) -> EncryptionKey:
    if reference == S3_ALIAS:
        key = keyring_of(call).s3_key(call.account, region=call.region, now=call.now)
    else:
        key = find_key(call, reference)
    if key.manager is not KeyManager.CUSTOMER:
        raise Fault("AccessDeniedException", f"{key.arn} can be used by S3 only.")
    require_enabled(key.arn, key.state)
    return key


def _data_key_size(shape: Shape) -> int:
    if ("KeySpec" in shape) == ("NumberOfBytes" in shape):
        raise Fault("ValidationException", "Please specify either number of bytes or key spec.")
    size: int = shape["NumberOfBytes"] if "NumberOfBytes" in shape else _KEY_SPECS[shape["KeySpec"]]
    return size


def _seal(call: Call, key: EncryptionKey, plaintext: bytes, context: dict[str, str] | None) -> bytes:
    wrapped = keyring_of(call).wrap(key.id, plaintext, context=_context_bytes(context))
    return _VERSION + uuid.UUID(key.id).bytes + wrapped


def _open(call: Call, blob: bytes, context: dict[str, str] | None, *, expected: str | None) -> _Opened:
    """Decrypt a ciphertext of a key of the caller. Those of others are as invalid as any other bytes."""
    keyring = keyring_of(call)
    if blob[:1] != _VERSION or len(blob) <= 1 + _KEY_ID_BYTES:
        raise _invalid_ciphertext()
    key_id = str(uuid.UUID(bytes=blob[1 : 1 + _KEY_ID_BYTES]))
    try:
        key = keyring.find(call.account, key_id)
    except NotFound as error:
        raise _invalid_ciphertext() from error
    if expected is not None and find_key(call, expected).id != key_id:
        raise Fault(
            "IncorrectKeyException",
            "The key ID in the request does not identify a CMK that can perform this operation.",
        )
    try:
        plaintext = keyring.unwrap(key_id, blob[1 + _KEY_ID_BYTES :], context=_context_bytes(context))
    except WrongKey as error:
        raise _invalid_ciphertext() from error
    return _Opened(key, plaintext)


def _context_bytes(context: dict[str, str] | None) -> bytes:
    """Return a context as bytes that no other context and no object has."""
    return b"kms" + json.dumps(context or {}, sort_keys=True, separators=(",", ":")).encode()


def _invalid_ciphertext() -> Fault:
    return Fault("InvalidCiphertextException", "The ciphertext is not valid for this key and encryption context.")
