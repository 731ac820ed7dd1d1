"""Create, enable, disable and delete keys."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.objects.encryption.keys import EncryptionKey, KeyPendingDeletion, KeyState
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.kms.descriptions import key_metadata
from trainyard.server.services.kms.lookup import find_own_key, keyring_of
from trainyard.server.services.kms.tags import tags_of
from trainyard.wire.fault import Fault

DEFAULT_WINDOW_DAYS = 30
# The model of AWS allows 1 to 365 days, KMS itself only these.
MIN_WINDOW_DAYS, MAX_WINDOW_DAYS = 7, 30

_SERVED = {
    "KeyUsage": "ENCRYPT_DECRYPT",
    "KeySpec": "SYMMETRIC_DEFAULT",
    "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
    "Origin": "AWS_KMS",
    "MultiRegion": False,
}
_UNSERVED = ("CustomKeyStoreId", "XksKeyId")


def create_key(call: Call, shape: Shape) -> Shape:
    _require_served(shape)
    key = keyring_of(call).create(
        call.account,
        region=call.region,
        now=call.now,
        description=shape.get("Description", ""),
        tags=tags_of(shape),
    )
    return {"KeyMetadata": key_metadata(key)}


def enable_key(call: Call, shape: Shape) -> Shape:
    _change_state(call, shape, KeyState.ENABLED)
    return {}


def disable_key(call: Call, shape: Shape) -> Shape:
    _change_state(call, shape, KeyState.DISABLED)
    return {}


def schedule_key_deletion(call: Call, shape: Shape) -> Shape:
    """Make a key unusable now, and destroy it when its waiting period of 7 to 30 days is over."""
    days = shape.get("PendingWindowInDays", DEFAULT_WINDOW_DAYS)
    if not MIN_WINDOW_DAYS <= days <= MAX_WINDOW_DAYS:
        raise Fault(
            "ValidationException",
            f"PendingWindowInDays is {days}; it must be between {MIN_WINDOW_DAYS} and {MAX_WINDOW_DAYS}.",
        )
    changed = _change(call, shape, lambda key: _schedule_deletion(key, call.now + timedelta(days=days)))
    return {
        "KeyId": changed.arn,
        "DeletionDate": changed.deletion_at,
        "KeyState": changed.state.value,
        "PendingWindowInDays": days,
    }


def cancel_key_deletion(call: Call, shape: Shape) -> Shape:
    """Keep a key, disabled."""
    return {"KeyId": _change(call, shape, _cancel_deletion).arn}


def update_key_description(call: Call, shape: Shape) -> Shape:
    _change(call, shape, lambda key: replace(_usable(key), description=shape["Description"]))
    return {}


OPERATIONS: Operations = {
    "CreateKey": create_key,
    "EnableKey": enable_key,
    "DisableKey": disable_key,
    "ScheduleKeyDeletion": schedule_key_deletion,
    "CancelKeyDeletion": cancel_key_deletion,
    "UpdateKeyDescription": update_key_description,
}


def _require_served(shape: Shape) -> None:
    """Refuse keys that the yard does not have. A policy would restrict nothing, so none is accepted."""
    wrong = [member for member, served in _SERVED.items() if shape.get(member, served) != served]
    wrong += [member for member in _UNSERVED if member in shape]
    if wrong:
        named = ", ".join(f"{member} {shape[member]}" for member in wrong)
        raise Fault(
            "UnsupportedOperationException",
            f"Trainyard does not serve {named}: its keys are symmetric, made here and used to encrypt and decrypt.",
        )
    if "Policy" in shape:
        raise Fault(
            "UnsupportedOperationException",
            "Trainyard enforces no key policies: a key can be used by its own account only. Leave Policy out.",
        )


def _change_state(call: Call, shape: Shape, state: KeyState) -> None:
    _change(call, shape, lambda key: replace(_usable(key), state=state))


def _change(call: Call, shape: Shape, change: Callable[[EncryptionKey], EncryptionKey]) -> EncryptionKey:
    return keyring_of(call).change(call.account, find_own_key(call, shape["KeyId"]).id, change)


def _usable(key: EncryptionKey) -> EncryptionKey:
    if key.state is KeyState.PENDING_DELETION:
        raise KeyPendingDeletion(key.arn)
    return key


def _schedule_deletion(key: EncryptionKey, at: datetime) -> EncryptionKey:
    return replace(_usable(key), state=KeyState.PENDING_DELETION, deletion_at=at)


def _cancel_deletion(key: EncryptionKey) -> EncryptionKey:
    if key.state is not KeyState.PENDING_DELETION:
        raise Fault("KMSInvalidStateException", f"{key.arn} is not pending deletion.")
    return replace(key, state=KeyState.DISABLED, deletion_at=None)
