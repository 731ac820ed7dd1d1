"""Multipart uploads: create, upload and copy parts, list, abort."""

from collections.abc import Sequence
from datetime import datetime

from trainyard.foundation.locations import BucketRef
from trainyard.objects.checksums import multipart_type
from trainyard.objects.contract import (
    ChecksumAlgorithm,
    ChecksumType,
    ObjectPart,
    ObjectReader,
    ObjectWriter,
    Upload,
    UploadPage,
    WriteResult,
)
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of, source_of
from trainyard.server.services.s3.attributes import attributes_of, encryption_members, storage_class
from trainyard.server.services.s3.byte_ranges import ByteRange, copied_range, require_part_number
from trainyard.server.services.s3.checksums import ExpectedDigests, algorithm_of, digest_member, expected_digests
from trainyard.server.services.s3.conditions import require_source_conditions
from trainyard.server.services.s3.faults import invalid_request, too_large
from trainyard.server.services.s3.listing import encoding_of, page_limit
from trainyard.server.services.s3.ownership import owner
from trainyard.server.services.s3.request_body import MAX_BODY_BYTES, body_size, receive_body, require_space

COPY_CHUNK_BYTES = 1024 * 1024


def create_multipart_upload(call: Call, shape: Shape) -> Shape:
    where, algorithm = location_of(call, shape), algorithm_of(shape)
    upload = call.yard.objects.create_upload(
        where,
        attributes_of(shape),
        now=call.now,
        algorithm=algorithm,
        checksum_type=_checksum_type(shape, algorithm),
    )
    return {
        "Bucket": where.bucket.name,
        "Key": where.key,
        "UploadId": upload.id,
        **_algorithm_members(upload),
        **encryption_members(upload.attributes.headers),
    }


def abort_multipart_upload(call: Call, shape: Shape) -> Shape:
    call.yard.objects.abort_upload(location_of(call, shape), shape["UploadId"])
    return {}


def list_parts(call: Call, shape: Shape) -> Shape:
    where, marker = location_of(call, shape), shape.get("PartNumberMarker") or 0
    limit = page_limit(shape, "MaxParts", name="max-parts")
    upload = call.yard.objects.upload(where, shape["UploadId"])
    found = call.yard.objects.parts(where, upload.id, after=marker, limit=limit + 1)
    page = found[:limit]
    return {
        "Bucket": where.bucket.name,
        "Key": where.key,
        "UploadId": upload.id,
        "PartNumberMarker": marker,
        "NextPartNumberMarker": page[-1].number if page else None,
        "MaxParts": limit,
        "IsTruncated": len(found) > len(page) > 0,
        "Parts": [_part_entry(part) for part in page],
        **_upload_members(upload),
    }


def list_multipart_uploads(call: Call, shape: Shape) -> Shape:
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    page = _upload_page(call, bucket, shape=shape)
    delimiter = shape.get("Delimiter")
    return {
        "Bucket": bucket.name,
        "KeyMarker": encode(shape.get("KeyMarker") or ""),
        "UploadIdMarker": (shape.get("UploadIdMarker") or "") if shape.get("KeyMarker") else "",
        "NextKeyMarker": encode(page.next_key) if page.next_key is not None else None,
        "NextUploadIdMarker": page.next_upload_id,
        "Prefix": encode(shape.get("Prefix") or ""),
        "Delimiter": encode(delimiter) if delimiter else None,
        "MaxUploads": page_limit(shape, "MaxUploads", name="max-uploads"),
        "IsTruncated": page.next_key is not None,
        "Uploads": [
            {"UploadId": upload.id, "Key": encode(upload.where.key), "Initiated": upload.started_at}
            | _upload_members(upload)
            for upload in page.uploads
        ],
        "CommonPrefixes": [{"Prefix": encode(prefix)} for prefix in page.prefixes],
        "EncodingType": shape.get("EncodingType"),
    }


async def upload_part(call: Call, shape: Shape) -> Shape:
    part = _PartUpload(call, shape, require_part_number(shape["PartNumber"]), expected_digests(call, shape))
    return await receive_body(shape["Body"], body_size(shape), begin=part.begin, finish=part.finish)


def upload_part_copy(call: Call, shape: Shape) -> Shape:
    number, objects = require_part_number(shape["PartNumber"]), call.yard.objects
    source, where = source_of(call, shape), location_of(call, shape)
    upload = objects.upload(where, shape["UploadId"])
    with objects.open(source) as reader:
        require_source_conditions(shape, reader.info, now=call.now)
        byte_range = copied_range(shape.get("CopySourceRange"), reader.info)
        if byte_range.size > MAX_BODY_BYTES:
            raise too_large(byte_range.size, MAX_BODY_BYTES)
        writer = objects.part_writer(where, upload.id, number, algorithms=_algorithms(upload))
        written = _copy_range(reader, writer, byte_range=byte_range, now=call.now)
    result = {"ETag": f'"{written.etag}"', "LastModified": written.modified_at, **digest_member(written.checksum)}
    return {"CopyPartResult": result, **encryption_members(upload.attributes.headers)}


OPERATIONS: Operations = {
    "CreateMultipartUpload": create_multipart_upload,
    "AbortMultipartUpload": abort_multipart_upload,
    "ListParts": list_parts,
    "ListMultipartUploads": list_multipart_uploads,
    "UploadPart": upload_part,
    "UploadPartCopy": upload_part_copy,
}


def _checksum_type(shape: Shape, algorithm: ChecksumAlgorithm | None) -> ChecksumType | None:
    wanted = shape["ChecksumType"].upper() if "ChecksumType" in shape else None
    if wanted is not None and wanted not in list(ChecksumType):
        raise invalid_request(f'Unknown checksum type "{wanted}"; use {" or ".join(ChecksumType)}.')
    if algorithm is not None:
        return multipart_type(algorithm, wanted and ChecksumType(wanted))
    if wanted is not None:
        raise invalid_request("x-amz-checksum-type also needs x-amz-checksum-algorithm.")
    return None


def _algorithm_members(upload: Upload) -> Shape:
    return {"ChecksumAlgorithm": upload.algorithm, "ChecksumType": upload.checksum_type}


def _part_entry(part: ObjectPart) -> Shape:
    return {
        "PartNumber": part.number,
        "LastModified": part.modified_at,
        "ETag": f'"{part.etag}"',
        "Size": part.size,
        **digest_member(part.checksum),
    }


def _upload_page(call: Call, bucket: BucketRef, *, shape: Shape) -> UploadPage:
    limit = page_limit(shape, "MaxUploads", name="max-uploads")
    if limit == 0:
        call.yard.objects.bucket(bucket)
        return UploadPage((), (), None, None)
    key_marker = shape.get("KeyMarker") or ""
    return call.yard.objects.uploads(
        bucket,
        prefix=shape.get("Prefix") or "",
        delimiter=shape.get("Delimiter") or "",
        after_key=key_marker,
        after_upload_id=(shape.get("UploadIdMarker") or "") if key_marker else "",
        limit=limit,
    )


def _upload_members(upload: Upload) -> Shape:
    """Return the members of an upload in a listing, besides its key and id."""
    upload_owner = owner(upload.where.bucket.account)
    return {
        "Owner": upload_owner,
        "Initiator": upload_owner,
        "StorageClass": storage_class(upload.attributes),
        **_algorithm_members(upload),
    }


class _PartUpload:
    """One part that is being received. `begin` and `finish` run in a worker thread."""

    def __init__(self, call: Call, shape: Shape, number: int, digests: ExpectedDigests) -> None:
        self._call, self._shape, self._number, self._digests = call, shape, number, digests

    def begin(self) -> ObjectWriter:
        objects, where = self._call.yard.objects, location_of(self._call, self._shape)
        self._upload = objects.upload(where, self._shape["UploadId"])
        _check_algorithm(self._upload, self._digests.algorithm)
        require_space(objects, where, body_size(self._shape))
        algorithms = _algorithms(self._upload, self._digests.algorithm)
        return objects.part_writer(where, self._upload.id, self._number, algorithms=algorithms)

    def finish(self, writer: ObjectWriter) -> Shape:
        expected = self._digests.checksums(self._shape["Body"])
        written = writer.commit(now=self._call.now, expected=expected, md5=self._digests.md5)
        return {
            "ETag": f'"{written.etag}"',
            **digest_member(written.checksum),
            **encryption_members(self._upload.attributes.headers),
        }


def _check_algorithm(upload: Upload, sent: ChecksumAlgorithm | None) -> None:
    """Refuse a part whose checksum algorithm is not the one of its upload.

    A part without a checksum is refused too if the checksum of the whole object is composite.
    """
    if upload.algorithm in (None, sent):
        return
    if sent is not None or upload.checksum_type is ChecksumType.COMPOSITE:
        raise invalid_request(
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm.lower()}, "
            f"actual checksum Type: {sent.lower() if sent else 'null'}"
        )


def _algorithms(upload: Upload, sent: ChecksumAlgorithm | None = None) -> Sequence[ChecksumAlgorithm]:
    """Return the checksum to compute of a part: the algorithm of its upload, or else the one the client sent."""
    algorithm = upload.algorithm or sent
    return () if algorithm is None else (algorithm,)


def _copy_range(reader: ObjectReader, writer: ObjectWriter, *, byte_range: ByteRange, now: datetime) -> WriteResult:
    try:
        for offset in range(byte_range.offset, byte_range.offset + byte_range.size, COPY_CHUNK_BYTES):
            writer.write(reader.read(offset, min(COPY_CHUNK_BYTES, byte_range.offset + byte_range.size - offset)))
        return writer.commit(now=now)
    except BaseException:
        writer.abort()
        raise
