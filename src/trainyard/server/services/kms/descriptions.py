"""Describe and list keys."""

import json

from trainyard.foundation.errors import NotFound
from trainyard.objects.encryption.keys import S3_ALIAS, EncryptionKey, KeyState
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.kms.lookup import find_key, keyring_of
from trainyard.wire.fault import Fault

PAGE = 100
POLICY_NAME = "default"


def describe_key(call: Call, shape: Shape) -> Shape:
    reference = shape["KeyId"]
    if reference.rpartition(":")[2] == S3_ALIAS and reference in (S3_ALIAS, _s3_alias_arn(call)):
        key = keyring_of(call).s3_key(call.account, region=call.region, now=call.now)
    else:
        key = find_key(call, reference)
    return {"KeyMetadata": key_metadata(key)}


def list_keys(call: Call, shape: Shape) -> Shape:
    limit = shape.get("Limit", PAGE)
    found = keyring_of(call).keys(call.account, after=shape.get("Marker", ""), limit=limit + 1)
    page = found[:limit]
    shown: Shape = {"Keys": [{"KeyId": key.id, "KeyArn": key.arn} for key in page], "Truncated": len(found) > limit}
    return shown | ({"NextMarker": page[-1].id} if len(found) > limit else {})


def get_key_policy(call: Call, shape: Shape) -> Shape:
    """Return what holds for every key: its account may do everything with it, and nobody else anything."""
    find_key(call, shape["KeyId"], may_be_alias=False)
    if shape.get("PolicyName", POLICY_NAME) != POLICY_NAME:
        raise NotFound("key policy", shape["PolicyName"])
    statement = {
        "Sid": "Enable IAM User Permissions",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{call.account}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    policy = {"Version": "2012-10-17", "Id": "key-default-1", "Statement": [statement]}
    return {"Policy": json.dumps(policy, indent=2), "PolicyName": POLICY_NAME}


def list_key_policies(call: Call, shape: Shape) -> Shape:
    find_key(call, shape["KeyId"], may_be_alias=False)
    return {"PolicyNames": [POLICY_NAME], "Truncated": False}


def get_key_rotation_status(call: Call, shape: Shape) -> Shape:
    """Tell that no key is rotated."""
    key = find_key(call, shape["KeyId"], may_be_alias=False)
    return {"KeyRotationEnabled": False, "KeyId": key.arn}


def disable_key_rotation(call: Call, shape: Shape) -> Shape:
    find_key(call, shape["KeyId"], may_be_alias=False)
    return {}


def enable_key_rotation(call: Call, shape: Shape) -> Shape:
    """Refuse: a client that was told otherwise would believe that its keys change."""
    find_key(call, shape["KeyId"], may_be_alias=False)
    raise Fault(
        "UnsupportedOperationException",
        "Trainyard does not rotate keys. Create a new key, and point the alias to it with UpdateAlias.",
    )


OPERATIONS: Operations = {
    "DescribeKey": describe_key,
    "ListKeys": list_keys,
    "GetKeyPolicy": get_key_policy,
    "ListKeyPolicies": list_key_policies,
    "GetKeyRotationStatus": get_key_rotation_status,
    "DisableKeyRotation": disable_key_rotation,
    "EnableKeyRotation": enable_key_rotation,
}


def key_metadata(key: EncryptionKey) -> Shape:
    deletion = {} if key.deletion_at is None else {"DeletionDate": key.deletion_at}
    return {
        "AWSAccountId": key.account,
        "KeyId": key.id,
        "Arn": key.arn,
        "CreationDate": key.created_at,
        "Enabled": key.state is KeyState.ENABLED,
        "Description": key.description,
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": key.state.value,
        "Origin": "AWS_KMS",
        "KeyManager": key.manager.value,
        "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "KeySpec": "SYMMETRIC_DEFAULT",
        "EncryptionAlgorithms": ["SYMMETRIC_DEFAULT"],
        "MultiRegion": False,
        **deletion,
    }


def _s3_alias_arn(call: Call) -> str:
    return f"arn:aws:kms:{call.region}:{call.account}:{S3_ALIAS}"
