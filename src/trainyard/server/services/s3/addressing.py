"""Which bucket and which object a request means.

Every operation finds its bucket through `resolve`, also the source of a copy, so that nothing of another account can be
seen by any of them: what a caller may not see is not found.
"""

import re
from dataclasses import dataclass

from trainyard.foundation.errors import Conflict, NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectStore
from trainyard.server.records.contract import Records
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.server.services.s3.options import refuse_unserved
from trainyard.wire.fault import Fault
from trainyard.wire.percent import decode_path

MAX_KEY_BYTES = 1024
NO_VERSION = "null"

_BUCKET_NAME = re.compile(r"(?=.{3,63}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_ACCOUNT = re.compile(r"(?=([0-9]{12}))")  # wherever in a number it begins
_USUAL_NAME = re.compile(r"sagemaker-[a-z0-9-]+-(?P<account>[0-9]{12})")
_RESERVED_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def bucket_of(call: Call, shape: Shape) -> BucketRef:
    """The bucket that the request names; whether a plain user has it shows only when it is used."""
    refuse_unserved(shape)
    return resolve(call, shape["Bucket"], owner=shape.get("ExpectedBucketOwner"))


def location_of(call: Call, shape: Shape) -> Location:
    """The object that the request names."""
    key = checked_key(shape["Key"])
    check_version(shape.get("VersionId"))
    return Location(bucket_of(call, shape), key)


def source_of(call: Call, shape: Shape) -> Location:
    """The object that `x-amz-copy-source` names."""
    source = parse_copy_source(shape["CopySource"])
    check_version(source.version)
    bucket = resolve(call, source.bucket, owner=shape.get("ExpectedSourceBucketOwner"))
    return Location(bucket, source.key)


def resolve(call: Call, name: str, *, owner: str | None = None) -> BucketRef:
    """The bucket of that name for this caller.

    For a user it is one of the own account. An administrator's own comes first, then another account's; `owner` tells
    which when several have one. Without it, a name with the number of an account in it means a bucket of that account,
    so that nobody else can receive what is meant for the owner. A bucket that the caller can see but that is not
    `owner`'s is refused.
    """
    own = BucketRef(call.account, name)
    if call.caller.is_admin:
        return _of_any_account(call, own, owner)
    if owner is not None and owner != own.account:
        call.yard.objects.bucket(own)
        raise _other_owner(name, owner)
    return own


def check_version(version: str | None) -> None:
    """Buckets here are not versioned: each object is version "null", and no other id can name one."""
    if version is not None and version != NO_VERSION:
        raise invalid_argument("Invalid version id specified", name="versionId", value=version)


def checked_key(key: str) -> str:
    """The key, if it can be one."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise Fault("InvalidURI", "A key is text in UTF-8; this one is not.") from None
    if size > MAX_KEY_BYTES:
        raise Fault(
            "KeyTooLongError",
            f"The key has {size} bytes in UTF-8; {MAX_KEY_BYTES} are allowed.",
            members={"Size": str(size), "MaxSizeAllowed": str(MAX_KEY_BYTES)},
        )
    if "\0" in key:
        raise invalid_argument(
            "A key cannot contain the character U+0000: no listing could name it, since XML cannot carry it.",
            name="key",
            value=key.replace("\0", "%00"),
        )
    return key


def checked_bucket_name(name: str) -> str:
    """The name, if a bucket may be created with it."""
    if (
        not _BUCKET_NAME.fullmatch(name)
        or _ADDRESS.fullmatch(name)
        or name.startswith(_RESERVED_STARTS)
        or name.endswith(_RESERVED_ENDS)
    ):
        raise Fault(
            "InvalidBucketName",
            f'"{name}" cannot name a bucket: use 3 to 63 lower-case letters, digits, hyphens and dots, a letter or '
            "digit at both ends and beside each dot, no IP address, and none of the prefixes and suffixes that S3 "
            "reserves.",
            members={"BucketName": name},
        )
    return name


def refuse_name_of_another(call: Call, name: str) -> None:
    """Refuse a bucket whose name is for another account: it has that account's number in it.

    The name that SDKs give to the bucket of an account is refused also where there is no such account yet.
    """
    usual = _USUAL_NAME.fullmatch(name)
    others = _accounts_named(call.yard.records, name) - {call.account}
    if others or (usual is not None and usual["account"] != call.account):
        raise Fault(
            "BucketAlreadyExists",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. "
            "Please select a different name and try again.",
            status=409,
            members={"BucketName": name},
        )


@dataclass(frozen=True, slots=True)
class CopySource:
    bucket: str
    key: str
    version: str | None


def parse_copy_source(text: str) -> CopySource:
    """Read `bucket/key?versionId=V`, percent-encoded, with or without a slash in front."""
    path, _, version = text.partition("?versionId=")
    bucket, _, key = decode_path(path).removeprefix("/").partition("/")
    if not bucket or not key or bucket.startswith("arn:"):
        raise invalid_argument(
            "The copy source must be a bucket and a key, percent-encoded: sourcebucket/sourcekey.",
            name="x-amz-copy-source",
            value=text,
        )
    return CopySource(bucket, checked_key(key), version or None)


def _of_any_account(call: Call, own: BucketRef, owner: str | None) -> BucketRef:
    objects = call.yard.objects
    if (owner is None or owner == own.account) and _exists(objects, own):
        return own
    owners = {bucket.ref.account: bucket.ref for bucket in objects.buckets(name=own.name)}
    if owner is None and (entitled := _accounts_named(call.yard.records, own.name)):
        owners = {account: ref for account, ref in owners.items() if account in entitled}
    if not owners:
        raise NotFound("bucket", own.name)
    if owner is not None:
        if owner not in owners:
            raise _other_owner(own.name, owner)
        return owners[owner]
    if len(owners) > 1:
        names = ", ".join(sorted(owners))
        raise Conflict("bucket", own.name, f"is one of the accounts {names}; name one in x-amz-expected-bucket-owner")
    return next(iter(owners.values()))


def _accounts_named(records: Records, name: str) -> set[str]:
    """The accounts of the yard, also of users who were removed, whose numbers are in a name."""
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
