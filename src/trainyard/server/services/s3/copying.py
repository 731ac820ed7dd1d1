"""Objects copied: CopyObject."""

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import Location
from trainyard.objects.contract import Attributes, ObjectInfo, Precondition, PreconditionFailed
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of, source_of
from trainyard.server.services.s3.attributes import (
    DEFAULT_TYPE,
    carried_over,
    description_of,
    encryption_members,
    keeping_of,
    metadata_of,
)
from trainyard.server.services.s3.checksums import algorithm_of, checksum_members
from trainyard.server.services.s3.conditions import check_source, failed_write, precondition_of
from trainyard.server.services.s3.faults import invalid_request
from trainyard.server.services.s3.intake import MAX_BODY_BYTES
from trainyard.server.services.s3.tagging import parse_tagging_header

# How often a copy begins anew because its source was replaced meanwhile.
ATTEMPTS = 5

_CHANGES = frozenset({"StorageClass", "ServerSideEncryption", "WebsiteRedirectLocation", "ChecksumAlgorithm"})


def copy_object(call: Call, shape: Shape) -> Shape:
    source, target = source_of(call, shape), location_of(call, shape)
    precondition = precondition_of(shape)
    for _ in range(ATTEMPTS):
        copied = _copy(call, shape, source=source, target=target, precondition=precondition)
        if copied is not None:
            return _answer(copied)
    raise Unavailable(f"{source} is being replaced faster than it can be copied; try again.")


OPERATIONS: Operations = {"CopyObject": copy_object}


def _copy(
    call: Call, shape: Shape, *, source: Location, target: Location, precondition: Precondition
) -> ObjectInfo | None:
    """Copy the source as it is now; None when it was replaced before the copy was made."""
    objects = call.yard.objects
    info = objects.info(source)
    check_source(shape, info, now=call.now)
    if source == target and not _changes_something(shape):
        raise invalid_request(
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes."
        )
    if info.size > MAX_BODY_BYTES:
        raise invalid_request(
            f"The source has {info.size} bytes; over {MAX_BODY_BYTES} it must be copied in parts with UploadPartCopy."
        )
    try:
        return objects.copy(
            source,
            target,
            now=call.now,
            attributes=_attributes(shape, info.attributes),
            algorithm=algorithm_of(shape),
            source_etag=info.etag,
            precondition=precondition,
        )
    except PreconditionFailed as error:
        if objects.info(source).etag != info.etag:
            return None
        raise failed_write(objects, target, precondition=precondition) from error


def _attributes(shape: Shape, source: Attributes) -> Attributes:
    headers, metadata, tags = carried_over(source), source.metadata, source.tags
    if _replaces_metadata(shape):
        headers, metadata = {"content-type": DEFAULT_TYPE, **description_of(shape)}, metadata_of(shape)
    if shape.get("TaggingDirective") == "REPLACE":
        tags = parse_tagging_header(shape.get("Tagging") or "")
    return Attributes(headers | keeping_of(shape), metadata, tags)


def _changes_something(shape: Shape) -> bool:
    return _replaces_metadata(shape) or bool(_CHANGES & shape.keys())


def _replaces_metadata(shape: Shape) -> bool:
    return bool(shape.get("MetadataDirective") == "REPLACE")


def _answer(copied: ObjectInfo) -> Shape:
    result = {"ETag": f'"{copied.etag}"', "LastModified": copied.modified_at, **checksum_members(copied.checksum)}
    return {"CopyObjectResult": result, **encryption_members(copied.attributes)}
