"""Ownership and access control lists: the account of a bucket alone has full control of its objects."""

import hashlib
from functools import lru_cache

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.faults import GRANTS, not_served
from trainyard.wire.fault import Fault


def get_bucket_acl(call: Call, shape: Shape) -> Shape:
    return _owner_only_acl(call.yard.objects.bucket(bucket_of(call, shape)).ref.account)


def get_object_acl(call: Call, shape: Shape) -> Shape:
    return _owner_only_acl(call.yard.objects.info(location_of(call, shape)).where.bucket.account)


def put_bucket_acl(call: Call, shape: Shape) -> Shape:
    """Accept only the list of grants that already holds: full control for the owner."""
    verify_body(call)
    _refuse_other_grants(shape, call.yard.objects.bucket(bucket_of(call, shape)).ref.account)
    return {}


def put_object_acl(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    _refuse_other_grants(shape, call.yard.objects.info(location_of(call, shape)).where.bucket.account)
    return {}


def get_bucket_ownership_controls(call: Call, shape: Shape) -> Shape:
    call.yard.objects.bucket(bucket_of(call, shape))
    return {"OwnershipControls": _OWNER_ENFORCED}


def put_bucket_ownership_controls(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    call.yard.objects.bucket(bucket_of(call, shape))
    if shape["OwnershipControls"] != _OWNER_ENFORCED:
        raise not_served(f"{GRANTS}; the object ownership is always BucketOwnerEnforced")
    return {}


OPERATIONS: Operations = {
    "GetBucketAcl": get_bucket_acl,
    "GetObjectAcl": get_object_acl,
    "PutBucketAcl": put_bucket_acl,
    "PutObjectAcl": put_object_acl,
    "GetBucketOwnershipControls": get_bucket_ownership_controls,
    "PutBucketOwnershipControls": put_bucket_ownership_controls,
}

_OWNER_ENFORCED: Shape = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}


def owner(account: str) -> Shape:
    """Return the owner in the form of S3."""
    return {"DisplayName": account, "ID": canonical_id(account)}


@lru_cache(maxsize=1024)
def canonical_id(account: str) -> str:
    """Return the canonical user id of an account: 64 hexadecimal digits that never change and hide the account."""
    return hashlib.sha256(f"canonical user of {account}".encode()).hexdigest()


def _refuse_other_grants(shape: Shape, account: str) -> None:
    policy = shape.get("AccessControlPolicy")
    if policy is None and "ACL" not in shape:
        raise Fault("MissingSecurityHeader", "Your request was missing a required header")
    for grant in (policy or {}).get("Grants") or []:
        is_owners = grant.get("Grantee", {}).get("ID") == canonical_id(account)
        if not is_owners or grant.get("Permission") != "FULL_CONTROL":
            raise not_served(GRANTS)


def _owner_only_acl(account: str) -> Shape:
    grantee = {"Type": "CanonicalUser", **owner(account)}
    return {"Owner": owner(account), "Grants": [{"Grantee": grantee, "Permission": "FULL_CONTROL"}]}
