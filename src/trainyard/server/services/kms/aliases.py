"""Aliases: names of keys that can be given to another key."""

import re

from trainyard.foundation.errors import NotFound
from trainyard.objects.encryption.keys import (
    ALIAS_KIND,
    S3_ALIAS,
    EncryptionKey,
    KeyAlias,
    KeyPendingDeletion,
    KeyState,
)
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.kms.lookup import find_key, find_own_key, keyring_of
from trainyard.wire.fault import Fault

PAGE = 50

_NAME = re.compile(r"alias/[a-zA-Z0-9/_-]+")
_RESERVED = "alias/aws/"


def create_alias(call: Call, shape: Shape) -> Shape:
    name = _require_name(shape)
    key = _target(call, shape)
    try:
        keyring_of(call).add_alias(KeyAlias(call.account, name, key.id, call.region, call.now, call.now))
    except NotFound as error:
        raise NotFound(error.kind, key.arn) from error
    return {}


def update_alias(call: Call, shape: Shape) -> Shape:
    name = _require_name(shape)
    key = _target(call, shape)
    try:
        keyring_of(call).move_alias(call.account, name, key_id=key.id, now=call.now)
    except NotFound as error:
        raise _missing(call, name) from error
    return {}


def delete_alias(call: Call, shape: Shape) -> Shape:
    name = _require_name(shape)
    try:
        keyring_of(call).remove_alias(call.account, name)
    except NotFound as error:
        raise _missing(call, name) from error
    return {}


def list_aliases(call: Call, shape: Shape) -> Shape:
    """List the caller's aliases; that of the key of S3 also while it has no key yet."""
    limit, keyring = shape.get("Limit", PAGE), keyring_of(call)
    key_id = find_key(call, shape["KeyId"], may_be_alias=False).id if "KeyId" in shape else ""
    after = shape.get("Marker", "")
    found = [_entry(alias) for alias in keyring.aliases(call.account, key_id=key_id, after=after, limit=limit + 1)]
    if not key_id and after < S3_ALIAS and S3_ALIAS not in (entry["AliasName"] for entry in found):
        arn = f"arn:aws:kms:{call.region}:{call.account}:{S3_ALIAS}"
        found = sorted([*found, {"AliasName": S3_ALIAS, "AliasArn": arn}], key=lambda entry: entry["AliasName"])
    page = found[:limit]
    shown: Shape = {"Aliases": page, "Truncated": len(found) > limit}
    return shown | ({"NextMarker": page[-1]["AliasName"]} if len(found) > limit else {})


OPERATIONS: Operations = {
    "CreateAlias": create_alias,
    "UpdateAlias": update_alias,
    "DeleteAlias": delete_alias,
    "ListAliases": list_aliases,
}


def _require_name(shape: Shape) -> str:
    name: str = shape["AliasName"]
    if not name.startswith("alias/"):
        raise Fault("ValidationException", f"Invalid identifier: {name}. The name of an alias begins with alias/.")
    if not _NAME.fullmatch(name):
        raise Fault(
            "InvalidAliasNameException",
            f"{name} contains invalid characters for an alias; use letters, digits, / _ and -.",
        )
    if name.startswith(_RESERVED):
        raise Fault("NotAuthorizedException", f"{name}: the prefix {_RESERVED} is reserved.")
    return name


def _target(call: Call, shape: Shape) -> EncryptionKey:
    key = find_own_key(call, shape["TargetKeyId"])
    if key.state is KeyState.PENDING_DELETION:
        raise KeyPendingDeletion(key.arn)
    return key


def _missing(call: Call, name: str) -> NotFound:
    return NotFound(ALIAS_KIND, f"arn:aws:kms:{call.region}:{call.account}:{name}")


def _entry(alias: KeyAlias) -> Shape:
    return {
        "AliasName": alias.name,
        "AliasArn": alias.arn,
        "TargetKeyId": alias.key_id,
        "CreationDate": alias.created_at,
        "LastUpdatedDate": alias.changed_at,
    }
