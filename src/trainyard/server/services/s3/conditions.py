"""The demands that a request makes on an object: If-Match and its kin."""

from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ANY_STATE, ObjectInfo, ObjectStore, Precondition
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import failed_condition, unserved_header
from trainyard.wire.fault import Fault


@dataclass(frozen=True, slots=True)
class ReadConditions:
    """The four conditions of HTTP, with the precedence that S3 gives them."""

    match: str | None
    none_match: str | None
    modified_since: datetime | None
    unmodified_since: datetime | None

    def unmet(self, info: ObjectInfo) -> str | None:
        """The header that says the object has changed, when it may not have. An ETag outweighs a date."""
        if self.match is not None:
            return None if _names(self.match, info.etag) else "If-Match"
        if self.unmodified_since is not None and _last_modified(info) > self.unmodified_since:
            return "If-Unmodified-Since"
        return None

    def unchanged(self, info: ObjectInfo) -> str | None:
        """The header that says the object has not changed, when it should have."""
        if self.none_match is not None:
            return "If-None-Match" if _names(self.none_match, info.etag) else None
        if self.modified_since is not None and _last_modified(info) <= self.modified_since:
            return "If-Modified-Since"
        return None


def check_read(shape: Shape, info: ObjectInfo, *, now: datetime) -> None:
    """412 or 304 unless the object is as the reader wants it."""
    conditions = _conditions(shape, "", now=now)
    if unmet := conditions.unmet(info):
        raise failed_condition(unmet)
    if conditions.unchanged(info):
        raise Fault(
            "NotModified",
            "The object has not changed.",
            status=304,
            headers={"etag": f'"{info.etag}"', "last-modified": format_datetime(info.modified_at, usegmt=True)},
        )


def check_source(shape: Shape, info: ObjectInfo, *, now: datetime) -> None:
    """412 unless the source of a copy is as the request demands."""
    conditions = _conditions(shape, "CopySource", now=now)
    failed = conditions.unmet(info) or conditions.unchanged(info)
    if failed:
        raise failed_condition(f"x-amz-copy-source-{failed}")


def precondition_of(shape: Shape) -> Precondition:
    """What must hold of the object that a write replaces."""
    match, none_match = shape.get("IfMatch"), shape.get("IfNoneMatch")
    if match is not None and none_match is not None:
        raise unserved_header("If-Match,If-None-Match", "Multiple conditional request headers present in the request")
    if match is not None:
        if match == "*":
            raise _unserved_value("If-Match")
        return Precondition(etag=unquoted(match))
    if none_match is not None:
        if none_match != "*":
            raise _unserved_value("If-None-Match")
        return Precondition(absent=True)
    return ANY_STATE


def failed_write(objects: ObjectStore, where: Location, *, precondition: Precondition) -> TrainyardError:
    """Why a write with this precondition failed: If-Match on a key without an object is not found."""
    if precondition.absent:
        return failed_condition("If-None-Match")
    try:
        objects.info(where)
    except NotFound as error:
        return error
    return failed_condition("If-Match")


def unquoted(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


def _unserved_value(header: str) -> Fault:
    return unserved_header(header, f"We don't accept the provided value of {header} header for this API")


def _conditions(shape: Shape, prefix: str, *, now: datetime) -> ReadConditions:
    since = shape.get(f"{prefix}IfModifiedSince")
    return ReadConditions(
        match=shape.get(f"{prefix}IfMatch"),
        none_match=shape.get(f"{prefix}IfNoneMatch"),
        # Nothing can have changed since a time that is to come, so S3 passes over it.
        modified_since=since if since is not None and since <= now else None,
        unmodified_since=shape.get(f"{prefix}IfUnmodifiedSince"),
    )


def _names(etags: str, etag: str) -> bool:
    """Whether a list of ETags, or `*`, has this one."""
    return any(name.strip() == "*" or unquoted(name) == etag for name in etags.split(","))


def _last_modified(info: ObjectInfo) -> datetime:
    """The time as clients know it: the header has whole seconds."""
    return info.modified_at.replace(microsecond=0)
