"""CompleteMultipartUpload: make one object of the uploaded parts."""

from collections.abc import Sequence
from itertools import pairwise

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.objects.checksums import etag_of_parts
from trainyard.objects.contract import (
    Checksum,
    ChecksumType,
    CompletedPart,
    InvalidPart,
    ObjectInfo,
    ObjectStore,
    PartTooSmall,
    PreconditionFailed,
    Upload,
)
from trainyard.objects.multipart import MINIMUM_PART_BYTES
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of
from trainyard.server.services.s3.attributes import encryption_members
from trainyard.server.services.s3.byte_ranges import MAX_PART_NUMBER
from trainyard.server.services.s3.checksums import MEMBERS, checksum_members, checksum_of_request
from trainyard.server.services.s3.conditions import precondition_of, unquote_etag, write_failure
from trainyard.server.services.s3.faults import invalid_argument, invalid_request, malformed_xml
from trainyard.wire.fault import Fault


def complete_multipart_upload(call: Call, shape: Shape) -> Shape:
    where, parts, objects = location_of(call, shape), _named_parts(shape), call.yard.objects
    try:
        upload = objects.upload(where, shape["UploadId"])
    except NotFound:
        # A client that lost the answer asks again, and S3 repeats its first answer.
        if completed := _completed_before(objects, where, parts=parts):
            return _completion(call, completed)
        raise
    _check_checksums(upload, parts)
    _check_total(objects, upload, parts=parts, stated_size=shape.get("MpuObjectSize"))
    expected, precondition = _expected_checksum(shape, upload, count=len(parts)), precondition_of(shape)
    try:
        info = objects.complete_upload(
            where, upload.id, parts, now=call.now, expected=expected, precondition=precondition
        )
    except PreconditionFailed as error:
        raise write_failure(objects, where, precondition=precondition) from error
    except InvalidPart as error:
        raise _invalid_part(error, upload) from error
    except PartTooSmall as error:
        raise _too_small(error) from error
    return _completion(call, info)


OPERATIONS: Operations = {"CompleteMultipartUpload": complete_multipart_upload}


def _named_parts(shape: Shape) -> list[CompletedPart]:
    """Return the parts that the request names, in order."""
    parts = (shape.get("MultipartUpload") or {}).get("Parts") or []
    if not parts or not all("PartNumber" in part and "ETag" in part for part in parts):
        raise malformed_xml("The request must name at least one part, each with a PartNumber and an ETag.")
    for part in parts:
        if part["PartNumber"] < 1:
            raise invalid_argument("PartNumber must be >= 1", name="PartNumber", value=part["PartNumber"])
    named = [CompletedPart(part["PartNumber"], unquote_etag(part["ETag"]), _part_checksum(part)) for part in parts]
    if any(first.number >= second.number for first, second in pairwise(named)):
        raise Fault(
            "InvalidPartOrder",
            "The list of parts was not in ascending order. Parts must be ordered by part number.",
            members={"UploadId": shape["UploadId"]},
        )
    return named


def _part_checksum(part: Shape) -> str | None:
    return next((part[member] for member in MEMBERS.values() if member in part), None)


def _completed_before(objects: ObjectStore, where: Location, *, parts: Sequence[CompletedPart]) -> ObjectInfo | None:
    """Return the object if it is what these parts make."""
    try:
        info = objects.info(where)
        return info if info.etag == etag_of_parts(part.etag for part in parts) else None
    except (NotFound, ValueError):
        return None


def _check_checksums(upload: Upload, parts: Sequence[CompletedPart]) -> None:
    """Require the checksum of every part for a composite checksum, as S3 does."""
    if upload.algorithm is None or upload.checksum_type is not ChecksumType.COMPOSITE:
        return
    for part in parts:
        if part.checksum is None:
            raise invalid_request(
                f"The upload was created using a {upload.algorithm.lower()} checksum. The complete request must "
                f"include the checksum for each part. It was missing for part {part.number} in the request."
            )


def _check_total(
    objects: ObjectStore, upload: Upload, *, parts: Sequence[CompletedPart], stated_size: int | None
) -> None:
    if stated_size is None:
        return
    numbers = {part.number for part in parts}
    found = objects.parts(upload.where, upload.id, limit=MAX_PART_NUMBER)
    total = sum(part.size for part in found if part.number in numbers)
    if total != stated_size:
        raise invalid_request(f"x-amz-mp-object-size is {stated_size}, but the named parts have {total} bytes.")


def _expected_checksum(shape: Shape, upload: Upload, *, count: int) -> Checksum | None:
    """Return the checksum that the request gives for the whole object."""
    wanted_type = shape.get("ChecksumType")
    if wanted_type is not None and wanted_type != upload.checksum_type:
        raise invalid_request(
            f"The upload was created with the checksum type {upload.checksum_type}, not {wanted_type}."
        )
    is_composite = upload.checksum_type is ChecksumType.COMPOSITE
    checksum = checksum_of_request(shape, suffix=f"-{count}" if is_composite else "")
    if checksum is None:
        return None
    if checksum.algorithm is not upload.algorithm or upload.checksum_type is None:
        raise invalid_request(
            f"The upload was created with {upload.algorithm or 'no'} checksums, not {checksum.algorithm}."
        )
    if is_composite:
        return Checksum(checksum.algorithm, f"{checksum.value}-{count}", ChecksumType.COMPOSITE)
    return checksum


def _invalid_part(error: InvalidPart, upload: Upload) -> Fault:
    return Fault(
        "InvalidPart",
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the "
        "specified entity tag may not match the part's entity tag.",
        members={"UploadId": upload.id, "PartNumber": str(error.number), "ETag": error.etag},
    )


def _too_small(error: PartTooSmall) -> Fault:
    return Fault(
        "EntityTooSmall",
        "Your proposed upload is smaller than the minimum allowed size",
        members={
            "ProposedSize": str(error.size),
            "MinSizeAllowed": str(MINIMUM_PART_BYTES),
            "PartNumber": str(error.number),
            "ETag": error.etag,
        },
    )


def _completion(call: Call, info: ObjectInfo) -> Shape:
    scheme = "https" if call.http.is_secure else "http"
    return {
        "Location": f"{scheme}://{call.http.host}{call.http.path}",
        "Bucket": info.where.bucket.name,
        "Key": info.where.key,
        "ETag": f'"{info.etag}"',
        **checksum_members(info.checksum),
        **encryption_members(info.attributes.headers),
    }
