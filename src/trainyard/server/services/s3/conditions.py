"""Conditional requests: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since."""

from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ANY_STATE, ObjectInfo, ObjectStore, Precondition
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import failed_condition, unsupported_header
from trainyard.wire.fault import Fault


@dataclass(frozen=True, slots=True)
class ReadConditions:
    """The four conditions of HTTP, with the precedence that S3 gives them."""

    match: str | None
    none_match: str | None
    modified_since: datetime | None
    unmodified_since: datetime | None

    def failed_match(self, info: ObjectInfo) -> str | None:
        """Return the header that fails because the object has changed, or None. An ETag outranks a date."""
        if self.match is not None:
            return None if _names(self.match, info.etag) else "If-Match"
        if self.unmodified_since is not None and _last_modified(info) > self.unmodified_since:
            return "If-Unmodified-Since"
        return None

    def failed_none_match(self, info: ObjectInfo) -> str | None:
        """Return the header that fails because the object has not changed, or None."""
        if self.none_match is not None:
            return "If-None-Match" if _names(self.none_match, info.etag) else None
        if self.modified_since is not None and _last_modified(info) <= self.modified_since:
            return "If-Modified-Since"
        return None


def require_read_conditions(shape: Shape, info: ObjectInfo, *, now: datetime) -> None:
    """Raise 412 or 304 unless the object meets the conditions of a read."""
    conditions = _conditions(shape, "", now=now)
    if header := conditions.failed_match(info):
        raise failed_condition(header)
    if conditions.failed_none_match(info):
        raise Fault(
            "NotModified",
            "The object has not changed.",
            status=304,
            headers={"etag": f'"{info.etag}"', "last-modified": format_datetime(info.modified_at, usegmt=True)},
        )


def require_source_conditions(shape: Shape, info: ObjectInfo, *, now: datetime) -> None:
    """Raise 412 unless the source of a copy meets the conditions of the request."""
    conditions = _conditions(shape, "CopySource", now=now)
    failed = conditions.failed_match(info) or conditions.failed_none_match(info)
    if failed:
        raise failed_condition(f"x-amz-copy-source-{failed}")


def precondition_of(shape: Shape) -> Precondition:
    """Return the precondition on the object that a write replaces."""
    match, none_match = shape.get("IfMatch"), shape.get("IfNoneMatch")
    if match is not None and none_match is not None:
        raise unsupported_header(
            "If-Match,If-None-Match", "Multiple conditional request headers present in the request"
        )
    if match is not None:
        if match == "*":
            raise _unserved_value("If-Match")
        return Precondition(etag=unquote_etag(match))
    if none_match is not None:
        if none_match != "*":
            raise _unserved_value("If-None-Match")
        return Precondition(absent=True)
    return ANY_STATE


def write_failure(objects: ObjectStore, where: Location, *, precondition: Precondition) -> TrainyardError:
    """Return the error for a failed precondition: NotFound for If-Match on a key without an object, else 412."""
    if precondition.absent:
        return failed_condition("If-None-Match")
    try:
        objects.info(where)
    except NotFound as error:
        return error
    return failed_condition("If-Match")


def unquote_etag(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


def _unserved_value(header: str) -> Fault:
    return unsupported_header(header, f"We don't accept the provided value of {header} header for this API")


def _conditions(shape: Shape, prefix: str, *, now: datetime) -> ReadConditions:
    since = shape.get(f"{prefix}IfModifiedSince")
    return ReadConditions(
        match=shape.get(f"{prefix}IfMatch"),
        none_match=shape.get(f"{prefix}IfNoneMatch"),
        # S3 ignores a time in the future.
        modified_since=since if since is not None and since <= now else None,
        unmodified_since=shape.get(f"{prefix}IfUnmodifiedSince"),
    )


def _names(etags: str, etag: str) -> bool:
    """Whether a list of ETags, or `*`, includes this one."""
    return any(name.strip() == "*" or unquote_etag(name) == etag for name in etags.split(","))


def _last_modified(info: ObjectInfo) -> datetime:
    """Return the time in whole seconds, as clients see it in the header."""
    return info.modified_at.replace(microsecond=0)
