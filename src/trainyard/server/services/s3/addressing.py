"""Find the bucket and the object of a request.

Every operation, and the source of every copy, goes through `resolve_bucket`, so that no caller can see anything of
another account: what a caller may not see is not found.
"""

import re
from dataclasses import dataclass

from trainyard.foundation.errors import Conflict, NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectStore
from trainyard.server.records.contract import Records
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.s3.faults import invalid_argument, refuse_unserved
from trainyard.wire.addressing import decode_path
from trainyard.wire.fault import Fault

MAX_KEY_BYTES = 1024
NULL_VERSION = "null"

_BUCKET_NAME = re.compile(r"(?=.{3,63}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
# Matches at every position, because the number of an account can begin anywhere in a longer number.
_ACCOUNT = re.compile(r"(?=([0-9]{12}))")
_SDK_DEFAULT_NAME = re.compile(r"sagemaker-[a-z0-9-]+-(?P<account>[0-9]{12})")
_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def bucket_of(call: Call, shape: Shape) -> BucketRef:
    """Return the bucket that the request names. For a plain user, its existence is checked only on use."""
    refuse_unserved(shape)
    return resolve_bucket(call, shape["Bucket"], owner=shape.get("ExpectedBucketOwner"))


def location_of(call: Call, shape: Shape) -> Location:
    """Return the location of the object that the request names."""
    key = require_key(shape["Key"])
    require_null_version(shape.get("VersionId"))
    return Location(bucket_of(call, shape), key)


def source_of(call: Call, shape: Shape) -> Location:
    """Return the location of the object that `x-amz-copy-source` names."""
    source = parse_copy_source(shape["CopySource"])
    require_null_version(source.version)
    bucket = resolve_bucket(call, source.bucket, owner=shape.get("ExpectedSourceBucketOwner"))
    return Location(bucket, source.key)


def resolve_bucket(call: Call, name: str, *, owner: str | None = None) -> BucketRef:
    """Return the bucket that a name means for this caller.

    For a user, it is a bucket of the user's own account. An administrator's own bucket comes first, then another
    account's; `owner` decides if several accounts have one. Without `owner`, a name that contains an account's number
    means a bucket of that account, so that nobody else can receive what is meant for its owner. A bucket that the
    caller can see but that does not belong to `owner` is refused.
    """
    own = BucketRef(call.account, name)
    if call.caller.is_admin:
        return _resolve_in_any_account(call, own, owner)
    if owner is not None and owner != own.account:
        call.yard.objects.bucket(own)
        raise _other_owner(name, owner)
    return own


def require_null_version(version: str | None) -> None:
    """Refuse versions other than "null", the version of every object in a bucket without versioning."""
    if version is not None and version != NULL_VERSION:
        raise invalid_argument("Invalid version id specified", name="versionId", value=version)


def require_key(key: str) -> str:
    """Return the key if it is valid."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise Fault("InvalidURI", "The key is not valid UTF-8.") from None
    if size > MAX_KEY_BYTES:
        raise Fault(
            "KeyTooLongError",
            f"The key has {size} bytes in UTF-8; at most {MAX_KEY_BYTES} are allowed.",
            members={"Size": str(size), "MaxSizeAllowed": str(MAX_KEY_BYTES)},
        )
    if "\0" in key:
        raise invalid_argument(
            "A key cannot contain the character U+0000, because the XML of a listing cannot represent it.",
            name="key",
            value=key.replace("\0", "%00"),
        )
    return key


def require_bucket_name(name: str) -> str:
    """Return the name if a bucket can be created with it."""
    if (
        not _BUCKET_NAME.fullmatch(name)
        or _IP_ADDRESS.fullmatch(name)
        or name.startswith(_RESERVED_PREFIXES)
        or name.endswith(_RESERVED_SUFFIXES)
    ):
        raise Fault(
            "InvalidBucketName",
            f'Invalid bucket name "{name}": use 3 to 63 lower-case letters, digits, hyphens and dots, with a letter or '
            "digit at both ends and on both sides of each dot, and neither an IP address nor a prefix or suffix that "
            "S3 reserves.",
            members={"BucketName": name},
        )
    return name


def is_default_bucket(call: Call, name: str) -> bool:
    """Whether a name is what SDKs choose for the default bucket of the caller's account."""
    default = _SDK_DEFAULT_NAME.fullmatch(name)
    return default is not None and default["account"] == call.account


def refuse_foreign_account_name(call: Call, name: str) -> None:
    """Refuse to create a bucket whose name contains another account's number.

    The default bucket name of the SDKs is refused even if no such account exists yet.
    """
    default = _SDK_DEFAULT_NAME.fullmatch(name)
    others = _accounts_in_name(call.yard.records, name) - {call.account}
    if others or (default is not None and default["account"] != call.account):
        raise Fault(
            "BucketAlreadyExists",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. "
            "Please select a different name and try again.",
            status=409,
            members={"BucketName": name},
        )


@dataclass(frozen=True, slots=True)
class CopySource:
    """The object that `x-amz-copy-source` names."""

    bucket: str
    key: str
    version: str | None


def parse_copy_source(text: str) -> CopySource:
    """Parse `bucket/key?versionId=V`, percent-encoded, with or without a leading slash."""
    path, _, version = text.partition("?versionId=")
    bucket, _, key = decode_path(path).removeprefix("/").partition("/")
    if not bucket or not key or bucket.startswith("arn:"):
        raise invalid_argument(
            "The copy source must be a percent-encoded bucket and key: sourcebucket/sourcekey.",
            name="x-amz-copy-source",
            value=text,
        )
    return CopySource(bucket, require_key(key), version or None)


def _resolve_in_any_account(call: Call, own: BucketRef, owner: str | None) -> BucketRef:
    objects = call.yard.objects
    if (owner is None or owner == own.account) and _exists(objects, own):
        return own
    owners = {bucket.ref.account: bucket.ref for bucket in objects.buckets(name=own.name)}
    if owner is None and (entitled := _accounts_in_name(call.yard.records, own.name)):
        owners = {account: ref for account, ref in owners.items() if account in entitled}
    if not owners:
        raise NotFound("bucket", own.name)
    if owner is not None:
        if owner not in owners:
            raise _other_owner(own.name, owner)
        return owners[owner]
    if len(owners) > 1:
        names = ", ".join(sorted(owners))
        raise Conflict(
            "bucket", own.name, f"exists in the accounts {names}; name one of them in x-amz-expected-bucket-owner"
        )
    return next(iter(owners.values()))


def _accounts_in_name(records: Records, name: str) -> set[str]:
    """Return the accounts, including those of removed users, whose numbers a name contains."""
    return {account for account in _ACCOUNT.findall(name) if _is_account(records, account)}


def _is_account(records: Records, account: str) -> bool:
    try:
        records.user(account)
    except NotFound:
        return False
    return True


def _exists(objects: ObjectStore, ref: BucketRef) -> bool:
    try:
        objects.bucket(ref)
    except NotFound:
        return False
    return True


def _other_owner(name: str, owner: str) -> Fault:
    return Fault("AccessDenied", f'The bucket "{name}" does not belong to account {owner}.', status=403)
