"""Who an object belongs to: the account of its bucket, in full and alone."""

import hashlib
from functools import lru_cache

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of


def get_bucket_acl(call: Call, shape: Shape) -> Shape:
    return _owner_alone(call.yard.objects.bucket(bucket_of(call, shape)).ref.account)


def get_object_acl(call: Call, shape: Shape) -> Shape:
    return _owner_alone(call.yard.objects.info(location_of(call, shape)).where.bucket.account)


def get_bucket_ownership_controls(call: Call, shape: Shape) -> Shape:
    call.yard.objects.bucket(bucket_of(call, shape))
    return {"OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}}


OPERATIONS: Operations = {
    "GetBucketAcl": get_bucket_acl,
    "GetObjectAcl": get_object_acl,
    "GetBucketOwnershipControls": get_bucket_ownership_controls,
}


def owner(account: str) -> Shape:
    """The owner as S3 names one."""
    return {"ID": canonical_id(account)}


@lru_cache(maxsize=1024)
def canonical_id(account: str) -> str:
    """The canonical user id of an account: 64 hexadecimal digits that do not tell the account, and never change."""
    return hashlib.sha256(f"canonical user of {account}".encode()).hexdigest()


def _owner_alone(account: str) -> Shape:
    grantee = {"Type": "CanonicalUser", **owner(account)}
    return {"Owner": owner(account), "Grants": [{"Grantee": grantee, "Permission": "FULL_CONTROL"}]}
