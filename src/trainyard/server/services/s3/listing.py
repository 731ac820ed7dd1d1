"""ListObjects, ListObjectsV2, ListObjectVersions, and what all listings share: limits, tokens, encoding of names."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import Listing, ObjectSummary
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import NULL_VERSION, bucket_of, is_default_bucket
from trainyard.server.services.s3.attributes import STANDARD
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.server.services.s3.ownership import owner
from trainyard.wire.fault import Fault

MAX_PAGE = 1000

Encoding = Callable[[str], str]


def list_objects(call: Call, shape: Shape) -> Shape:
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    page = _page(call, bucket, shape=shape, after=shape.get("Marker") or "")
    answer = _common_members(bucket, shape, page=page)
    answer["Marker"] = encode(shape.get("Marker") or "")
    answer["Contents"] = [_entry(entry, encode) | {"Owner": owner(bucket.account)} for entry in page.objects]
    # Without a delimiter, clients use the last key as the marker of the next page, so S3 sends no NextMarker.
    if page.next_after is not None and shape.get("Delimiter"):
        answer["NextMarker"] = encode(page.next_after)
    return answer


def list_objects_v2(call: Call, shape: Shape) -> Shape:
    try:
        return _list_objects_v2(call, shape)
    except NotFound:
        # With a default_bucket_prefix, the sagemaker SDK looks for its default bucket by this operation, but creates
        # it only after the error that HeadBucket gives. On AWS it fails.
        if shape.get("ExpectedBucketOwner") == call.account and is_default_bucket(call, shape["Bucket"]):
            raise Fault("404", "Not Found", status=404) from None
        raise


def list_object_versions(call: Call, shape: Shape) -> Shape:
    """List every object as its only version: the yard has no versioning."""
    if shape.get("VersionIdMarker") is not None and shape.get("KeyMarker") is None:
        raise invalid_argument(
            "A version-id marker cannot be specified without a key marker.",
            name="version-id-marker",
            value=shape["VersionIdMarker"],
        )
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    page = _page(call, bucket, shape=shape, after=shape.get("KeyMarker") or "")
    answer = _common_members(bucket, shape, page=page)
    version = {"VersionId": NULL_VERSION, "IsLatest": True, "Owner": owner(bucket.account)}
    answer["Versions"] = [_entry(entry, encode) | version for entry in page.objects]
    answer["KeyMarker"] = encode(shape.get("KeyMarker") or "")
    answer["VersionIdMarker"] = shape.get("VersionIdMarker") or ""
    if page.next_after is not None:
        answer["NextKeyMarker"] = encode(page.next_after)
        answer["NextVersionIdMarker"] = NULL_VERSION
    return answer


OPERATIONS: Operations = {
    "ListObjects": list_objects,
    "ListObjectsV2": list_objects_v2,
    "ListObjectVersions": list_object_versions,
}


def page_limit(shape: Shape, member: str, *, name: str) -> int:
    """Return how many entries the client wants, at most a full page."""
    limit = shape.get(member)
    if limit is None:
        return MAX_PAGE
    if limit < 0:
        raise invalid_argument(f"{name} must be an integer between 0 and 2147483647.", name=name, value=limit)
    return min(int(limit), MAX_PAGE)


def encoding_of(shape: Shape) -> Encoding:
    """Return how to write names: unchanged, or percent-encoded for `encoding-type=url`."""
    return _percent_encode if shape.get("EncodingType") == "url" else str


def format_token(text: str) -> str:
    """Return an opaque continuation token."""
    return urlsafe_b64encode(text.encode()).decode()


def parse_token(token: str) -> str:
    try:
        return b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise invalid_argument(
            "The continuation token provided is incorrect", name="continuation-token", value=token
        ) from None


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


def _common_members(bucket: BucketRef, shape: Shape, *, page: Listing) -> Shape:
    """Return the members that all listings of objects share."""
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


def _list_objects_v2(call: Call, shape: Shape) -> Shape:
    bucket, encode = bucket_of(call, shape), encoding_of(shape)
    token, start = shape.get("ContinuationToken"), shape.get("StartAfter")
    page = _page(call, bucket, shape=shape, after=parse_token(token) if token else start or "")
    answer = _common_members(bucket, shape, page=page)
    extra = {"Owner": owner(bucket.account)} if shape.get("FetchOwner") else {}
    answer["Contents"] = [_entry(entry, encode) | extra for entry in page.objects]
    answer["KeyCount"] = len(page.objects) + len(page.prefixes)
    answer["ContinuationToken"] = token
    answer["NextContinuationToken"] = format_token(page.next_after) if page.next_after is not None else None
    answer["StartAfter"] = encode(start) if start is not None else None
    return answer


def _percent_encode(text: str) -> str:
    # A space becomes %20, which every client decodes; not all decode a plus sign.
    return quote(text, safe="/")
