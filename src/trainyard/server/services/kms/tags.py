"""The tags of keys."""

from dataclasses import replace

from trainyard.foundation.errors import InvalidRequest
from trainyard.objects.encryption.keys import EncryptionKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.kms.lookup import find_key, find_own_key, keyring_of
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def tag_resource(call: Call, shape: Shape) -> Shape:
    added = tags_of(shape)

    def add(key: EncryptionKey) -> EncryptionKey:
        require_tags(added, known=key.tags)
        return replace(key, tags={**key.tags, **added})

    keyring_of(call).change(call.account, find_own_key(call, shape["KeyId"]).id, add)
    return {}


def untag_resource(call: Call, shape: Shape) -> Shape:
    gone = set(shape["TagKeys"])

    def remove(key: EncryptionKey) -> EncryptionKey:
        return replace(key, tags={name: value for name, value in key.tags.items() if name not in gone})

    keyring_of(call).change(call.account, find_own_key(call, shape["KeyId"]).id, remove)
    return {}


def list_resource_tags(call: Call, shape: Shape) -> Shape:
    key = find_key(call, shape["KeyId"], may_be_alias=False)
    tags = [{"TagKey": name, "TagValue": value} for name, value in sorted(key.tags.items())]
    return {"Tags": tags, "Truncated": False}


OPERATIONS: Operations = {
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListResourceTags": list_resource_tags,
}


def tags_of(shape: Shape) -> dict[str, str]:
    """Return the tags that a request gives to a key."""
    tags = {tag["TagKey"]: tag["TagValue"] for tag in shape.get("Tags", ())}
    try:
        require_tags(tags)
    except InvalidRequest as error:
        raise Fault("TagException", error.message) from error
    return tags
