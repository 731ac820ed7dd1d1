"""Objects removed, one by one or many at once."""

from dataclasses import dataclass, field

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectStore, Precondition, PreconditionFailed
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import NO_VERSION, bucket_of, checked_key, location_of
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.conditions import failed_write, unquoted
from trainyard.server.services.s3.faults import FAULTS, malformed, no_such_version, not_served

MAX_KEYS = 1000


def delete_object(call: Call, shape: Shape) -> Shape:
    where, etag = location_of(call, shape), shape.get("IfMatch")
    if etag is None:
        call.yard.objects.delete(where)
    else:
        _delete_matching(call.yard.objects, where, etag=etag)
    return {}


def delete_objects(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    entries = shape["Delete"]["Objects"]
    if not 1 <= len(entries) <= MAX_KEYS:
        raise malformed(f"A batch has 1 to {MAX_KEYS} keys; this one has {len(entries)}.")
    bucket, objects = bucket_of(call, shape), call.yard.objects
    objects.bucket(bucket)
    batch = _Batch()
    for entry in entries:
        batch.add(objects, bucket, entry=entry)
    objects.delete_many(bucket, batch.keys)
    return {"Deleted": [] if shape["Delete"].get("Quiet") else batch.deleted, "Errors": batch.errors}


OPERATIONS: Operations = {"DeleteObject": delete_object, "DeleteObjects": delete_objects}


@dataclass(slots=True)
class _Batch:
    """A batch being worked off: `keys` go together at the end, those with a condition at once, each on its own."""

    keys: list[str] = field(default_factory=list)
    deleted: list[Shape] = field(default_factory=list)
    errors: list[Shape] = field(default_factory=list)

    def add(self, objects: ObjectStore, bucket: BucketRef, *, entry: Shape) -> None:
        named = {"Key": entry["Key"], "VersionId": entry.get("VersionId")}
        try:
            key = _checked(entry)
            if "ETag" in entry:
                _delete_matching(objects, Location(bucket, key), etag=entry["ETag"])
            else:
                self.keys.append(key)
        except TrainyardError as error:
            fault = FAULTS.fault(error)
            self.errors.append(named | {"Code": fault.code, "Message": fault.message})
        else:
            self.deleted.append(named)


def _checked(entry: Shape) -> str:
    if "LastModifiedTime" in entry or "Size" in entry:
        raise not_served("deletes on condition of a time or a size, which directory buckets have")
    key, version = checked_key(entry["Key"]), entry.get("VersionId", NO_VERSION)
    if version != NO_VERSION:
        raise no_such_version(key, version)
    return key


def _delete_matching(objects: ObjectStore, where: Location, *, etag: str) -> None:
    """Delete the object if it is the one the ETag names; `*` names any that is there."""
    if etag == "*":
        objects.info(where)
        objects.delete(where)
        return
    precondition = Precondition(etag=unquoted(etag))
    try:
        existed = objects.delete(where, precondition=precondition)
    except PreconditionFailed as error:
        raise failed_write(objects, where, precondition=precondition) from error
    if not existed:
        raise NotFound("key", where.key)
