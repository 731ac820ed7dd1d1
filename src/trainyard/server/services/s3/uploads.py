"""Uploads in parts: begun, listed, given up."""

from trainyard.foundation.locations import BucketRef
from trainyard.objects.checksums import multipart_type
from trainyard.objects.contract import ChecksumAlgorithm, ChecksumType, ObjectPart, Upload, UploadPage
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of
from trainyard.server.services.s3.attributes import attributes_of, encryption_members, storage_class
from trainyard.server.services.s3.checksums import algorithm_of, digest_member
from trainyard.server.services.s3.faults import invalid_request
from trainyard.server.services.s3.ownership import owner
from trainyard.server.services.s3.paging import encoding_of, page_limit


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
        **encryption_members(upload.attributes),
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
        **_belongings(upload),
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
            | _belongings(upload)
            for upload in page.uploads
        ],
        "CommonPrefixes": [{"Prefix": encode(prefix)} for prefix in page.prefixes],
        "EncodingType": shape.get("EncodingType"),
    }


OPERATIONS: Operations = {
    "CreateMultipartUpload": create_multipart_upload,
    "AbortMultipartUpload": abort_multipart_upload,
    "ListParts": list_parts,
    "ListMultipartUploads": list_multipart_uploads,
}


def _checksum_type(shape: Shape, algorithm: ChecksumAlgorithm | None) -> ChecksumType | None:
    wanted = shape["ChecksumType"].upper() if "ChecksumType" in shape else None
    if wanted is not None and wanted not in list(ChecksumType):
        raise invalid_request(f'"{wanted}" is no checksum type; the types are {", ".join(ChecksumType)}.')
    if algorithm is not None:
        return multipart_type(algorithm, wanted and ChecksumType(wanted))
    if wanted is not None:
        raise invalid_request("x-amz-checksum-type needs x-amz-checksum-algorithm beside it.")
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


def _belongings(upload: Upload) -> Shape:
    """What listings tell of an upload beside its name."""
    belongs_to = owner(upload.where.bucket.account)
    return {
        "Owner": belongs_to,
        "Initiator": belongs_to,
        "StorageClass": storage_class(upload.attributes),
        **_algorithm_members(upload),
    }
