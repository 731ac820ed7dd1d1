"""Objects listed: ListObjects, ListObjectsV2 and ListObjectVersions."""

from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import Listing, ObjectSummary
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import NO_VERSION, bucket_of
from trainyard.server.services.s3.attributes import STANDARD
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.server.services.s3.ownership import owner
from trainyard.server.services.s3.paging import Encoding, encoding_of, page_limit, read_token, write_token


def list_objects(call: Call, shape: Shape) -> Shape:
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    page = _page(call, bucket, shape=shape, after=shape.get("Marker") or "")
    answer = _head(bucket, shape, page=page)
    answer["Marker"] = encode(shape.get("Marker") or "")
    answer["Contents"] = [_entry(entry, encode) | {"Owner": owner(bucket.account)} for entry in page.objects]
    # Without a delimiter the last key is the marker of the next page, and S3 leaves it to the client to take it.
    if page.next_after is not None and shape.get("Delimiter"):
        answer["NextMarker"] = encode(page.next_after)
    return answer


def list_objects_v2(call: Call, shape: Shape) -> Shape:
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    token, start = shape.get("ContinuationToken"), shape.get("StartAfter")
    page = _page(call, bucket, shape=shape, after=read_token(token) if token else start or "")
    answer = _head(bucket, shape, page=page)
    extra = {"Owner": owner(bucket.account)} if shape.get("FetchOwner") else {}
    answer["Contents"] = [_entry(entry, encode) | extra for entry in page.objects]
    answer["KeyCount"] = len(page.objects) + len(page.prefixes)
    answer["ContinuationToken"] = token
    answer["NextContinuationToken"] = write_token(page.next_after) if page.next_after is not None else None
    answer["StartAfter"] = encode(start) if start is not None else None
    return answer


def list_object_versions(call: Call, shape: Shape) -> Shape:
    """The objects as the only versions they have, since no bucket here is versioned."""
    if shape.get("VersionIdMarker") is not None and shape.get("KeyMarker") is None:
        raise invalid_argument(
            "A version-id marker cannot be specified without a key marker.",
            name="version-id-marker",
            value=shape["VersionIdMarker"],
        )
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    page = _page(call, bucket, shape=shape, after=shape.get("KeyMarker") or "")
    answer = _head(bucket, shape, page=page)
    told = {"VersionId": NO_VERSION, "IsLatest": True, "Owner": owner(bucket.account)}
    answer["Versions"] = [_entry(entry, encode) | told for entry in page.objects]
    answer["KeyMarker"] = encode(shape.get("KeyMarker") or "")
    answer["VersionIdMarker"] = shape.get("VersionIdMarker") or ""
    if page.next_after is not None:
        answer["NextKeyMarker"] = encode(page.next_after)
        answer["NextVersionIdMarker"] = NO_VERSION
    return answer


OPERATIONS: Operations = {
    "ListObjects": list_objects,
    "ListObjectsV2": list_objects_v2,
    "ListObjectVersions": list_object_versions,
}


def _page(call: Call, bucket: BucketRef, *, shape: Shape, after: str) -> Listing:
    limit = page_limit(shape, "MaxKeys", name="max-keys")
    if limit == 0:
        call.yard.objects.bucket(bucket)
        return Listing((), (), None)
    return call.yard.objects.list_objects(
        bucket,
        prefix=shape.get("Prefix") or "",
        delimiter=shape.get("Delimiter") or "",
        after=after,
        limit=limit,
    )


def _head(bucket: BucketRef, shape: Shape, *, page: Listing) -> Shape:
    """The members that all listings begin with."""
    encode = encoding_of(shape)
    delimiter = shape.get("Delimiter")
    return {
        "Name": bucket.name,
        "Prefix": encode(shape.get("Prefix") or ""),
        "Delimiter": encode(delimiter) if delimiter else None,
        "MaxKeys": page_limit(shape, "MaxKeys", name="max-keys"),
        "EncodingType": shape.get("EncodingType"),
        "IsTruncated": page.next_after is not None,
        "CommonPrefixes": [{"Prefix": encode(prefix)} for prefix in page.prefixes],
    }


def _entry(summary: ObjectSummary, encode: Encoding) -> Shape:
    entry: Shape = {
        "Key": encode(summary.key),
        "LastModified": summary.modified_at,
        "ETag": f'"{summary.etag}"',
        "Size": summary.size,
        "StorageClass": summary.storage_class or STANDARD,
    }
    if summary.checksum is not None:
        entry["ChecksumAlgorithm"] = [summary.checksum.algorithm.value]
        entry["ChecksumType"] = summary.checksum.type.value
    return entry
