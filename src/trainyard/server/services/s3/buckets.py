"""Buckets: create, list, look up, delete."""

import re

from trainyard.foundation.arns import arn
from trainyard.foundation.errors import AlreadyExists, Conflict
from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import Bucket
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, refuse_foreign_account_name, require_bucket_name
from trainyard.server.services.s3.faults import invalid_argument, not_served, refuse_unserved
from trainyard.server.services.s3.listing import format_token, parse_token
from trainyard.server.services.s3.ownership import owner
from trainyard.server.services.s3.tagging import MAX_BUCKET_TAGS, parse_tag_set
from trainyard.wire.fault import Fault

MAX_BUCKETS = 10_000

# The first region of S3. There, a bucket can be created again by its owner, and its location is null.
FIRST_REGION = "us-east-1"

_REGION_ALIASES = {"EU": "eu-west-1"}
# Any name is a region, because clients sign for any.
_REGION = re.compile(r"[a-z0-9-]{1,63}")


def list_buckets(call: Call, shape: Shape) -> Shape:
    """List the caller's buckets; for an administrator, those of all accounts."""
    token = shape.get("ContinuationToken")
    after = parse_token(token) if token else ""
    found = [
        bucket
        for bucket in call.yard.objects.buckets(account=call.caller.scope)
        if _sort_key(bucket) > after and _is_match(bucket, shape)
    ]
    page = found[: _limit(shape)]
    return {
        "Buckets": [_entry(bucket) for bucket in page],
        "Owner": owner(call.account),
        "ContinuationToken": format_token(_sort_key(page[-1])) if len(found) > len(page) else None,
        "Prefix": shape.get("Prefix"),
    }


def create_bucket(call: Call, shape: Shape) -> Shape:
    """Create a bucket in the caller's account. Names are per account; one with another account's number is refused."""
    refuse_unserved(shape)
    _refuse_unserved_kinds(shape)
    configuration = shape.get("CreateBucketConfiguration") or {}
    ref = BucketRef(call.account, require_bucket_name(shape["Bucket"]))
    refuse_foreign_account_name(call, ref.name)
    region = _region(configuration.get("LocationConstraint") or call.region)
    tags = parse_tag_set(configuration.get("Tags") or [], limit=MAX_BUCKET_TAGS)
    objects = call.yard.objects
    try:
        objects.create_bucket(ref, region=region, now=call.now)
    except AlreadyExists as error:
        if not region == objects.bucket(ref).region == FIRST_REGION:
            raise _already_owned(ref) from error
    if tags:
        objects.tag_bucket(ref, tags)
    return {"Location": f"/{ref.name}", "BucketArn": _arn(ref)}


def head_bucket(call: Call, shape: Shape) -> Shape:
    bucket = call.yard.objects.bucket(bucket_of(call, shape))
    return {"BucketArn": _arn(bucket.ref), "BucketRegion": bucket.region, "AccessPointAlias": False}


def get_bucket_location(call: Call, shape: Shape) -> Shape:
    region = call.yard.objects.bucket(bucket_of(call, shape)).region
    return {"LocationConstraint": None if region == FIRST_REGION else region}


def delete_bucket(call: Call, shape: Shape) -> Shape:
    ref = bucket_of(call, shape)
    try:
        call.yard.objects.delete_bucket(ref)
    except Conflict as error:
        message = "The bucket you tried to delete is not empty"
        raise Fault("BucketNotEmpty", message, status=409, members={"BucketName": ref.name}) from error
    return {}


OPERATIONS: Operations = {
    "ListBuckets": list_buckets,
    "CreateBucket": create_bucket,
    "HeadBucket": head_bucket,
    "GetBucketLocation": get_bucket_location,
    "DeleteBucket": delete_bucket,
}


def _limit(shape: Shape) -> int:
    limit: int = shape.get("MaxBuckets", MAX_BUCKETS)
    if not 1 <= limit <= MAX_BUCKETS:
        raise invalid_argument(
            f"max-buckets must be an integer between 1 and {MAX_BUCKETS}.", name="max-buckets", value=limit
        )
    return limit


def _region(constraint: str) -> str:
    region = _REGION_ALIASES.get(constraint, constraint)
    if not _REGION.fullmatch(region):
        raise Fault(
            "InvalidLocationConstraint",
            f'"{constraint}" is not a valid region name.',
            members={"LocationConstraint": constraint},
        )
    return region


def _already_owned(ref: BucketRef) -> Fault:
    message = "Your previous request to create the named bucket succeeded and you already own it."
    return Fault("BucketAlreadyOwnedByYou", message, status=409, members={"BucketName": ref.name})


def _sort_key(bucket: Bucket) -> str:
    """Return the sort key of a bucket: name, then account. A space sorts before every character of a name."""
    return f"{bucket.ref.name} {bucket.ref.account}"


def _is_match(bucket: Bucket, shape: Shape) -> bool:
    region = shape.get("BucketRegion")
    return bucket.ref.name.startswith(shape.get("Prefix") or "") and region in (None, bucket.region)


def _entry(bucket: Bucket) -> Shape:
    return {
        "Name": bucket.ref.name,
        "CreationDate": bucket.created_at,
        "BucketRegion": bucket.region,
        "BucketArn": _arn(bucket.ref),
    }


def _refuse_unserved_kinds(shape: Shape) -> None:
    configuration = shape.get("CreateBucketConfiguration") or {}
    if shape.get("ObjectLockEnabledForBucket"):
        raise not_served("buckets with object lock")
    if configuration.get("Location") or configuration.get("Bucket"):
        raise not_served("directory buckets")
    if shape.get("ObjectOwnership", "BucketOwnerEnforced") != "BucketOwnerEnforced":
        raise not_served("access control lists; the owner of a bucket always owns its objects")
    if shape.get("BucketNamespace", "global") != "global":
        raise not_served("bucket namespaces; every account has its own")


def _arn(ref: BucketRef) -> str:
    return arn("s3", "", "", ref.name)
