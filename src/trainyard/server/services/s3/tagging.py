"""Tags of buckets and objects."""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.wire.fault import Fault

MAX_OBJECT_TAGS = 10
MAX_BUCKET_TAGS = 50
MAX_KEY_LENGTH = 128
MAX_VALUE_LENGTH = 256


def get_bucket_tagging(call: Call, shape: Shape) -> Shape:
    ref = bucket_of(call, shape)
    tags = call.yard.objects.bucket(ref).tags
    if not tags:
        raise Fault(
            "NoSuchTagSet", f'The bucket "{ref.name}" has no tags.', status=404, members={"BucketName": ref.name}
        )
    return {"TagSet": tag_set(tags)}


def put_bucket_tagging(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    tags = parse_tag_set(shape["Tagging"]["TagSet"], limit=MAX_BUCKET_TAGS)
    call.yard.objects.tag_bucket(bucket_of(call, shape), tags)
    return {}


def delete_bucket_tagging(call: Call, shape: Shape) -> Shape:
    call.yard.objects.tag_bucket(bucket_of(call, shape), {})
    return {}


def get_object_tagging(call: Call, shape: Shape) -> Shape:
    info = call.yard.objects.info(location_of(call, shape))
    return {"TagSet": tag_set(info.attributes.tags)}


def put_object_tagging(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    tags = parse_tag_set(shape["Tagging"]["TagSet"], limit=MAX_OBJECT_TAGS)
    call.yard.objects.tag_object(location_of(call, shape), tags)
    return {}


def delete_object_tagging(call: Call, shape: Shape) -> Shape:
    call.yard.objects.tag_object(location_of(call, shape), {})
    return {}


OPERATIONS: Operations = {
    "GetBucketTagging": get_bucket_tagging,
    "PutBucketTagging": put_bucket_tagging,
    "DeleteBucketTagging": delete_bucket_tagging,
    "GetObjectTagging": get_object_tagging,
    "PutObjectTagging": put_object_tagging,
    "DeleteObjectTagging": delete_object_tagging,
}


def tag_set(tags: Mapping[str, str]) -> list[Shape]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def parse_tag_set(tag_set: Sequence[Shape], *, limit: int) -> dict[str, str]:
    """The tags of a `TagSet`, checked."""
    return _checked([(tag["Key"], tag["Value"]) for tag in tag_set], limit=limit)


def parse_tagging_header(text: str) -> dict[str, str]:
    """The tags of an `x-amz-tagging` header, which writes them like the query of a URL."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
    except ValueError:
        raise invalid_argument(
            "x-amz-tagging holds the tags like the query of a URL: key=value&key=value, percent-encoded UTF-8.",
            name="x-amz-tagging",
            value=text,
        ) from None
    return _checked(pairs, limit=MAX_OBJECT_TAGS)


def _checked(pairs: Sequence[tuple[str, str]], *, limit: int) -> dict[str, str]:
    if len(pairs) > limit:
        raise Fault("BadRequest", f"There are {len(pairs)} tags; {limit} are allowed.")
    tags: dict[str, str] = {}
    for key, value in pairs:
        _check_tag(key, value)
        if key in tags:
            raise Fault("InvalidTag", f'The tag key "{key}" is given twice.', members={"TagKey": key})
        tags[key] = value
    return tags


def _check_tag(key: str, value: str) -> None:
    if not 1 <= len(key) <= MAX_KEY_LENGTH or key.startswith("aws:"):
        raise Fault(
            "InvalidTag",
            f'"{key}" cannot be a tag key: it has 1 to {MAX_KEY_LENGTH} characters and does not begin with "aws:".',
            members={"TagKey": key},
        )
    if len(value) > MAX_VALUE_LENGTH:
        raise Fault(
            "InvalidTag",
            f'The value of tag "{key}" has {len(value)} characters; {MAX_VALUE_LENGTH} are allowed.',
            members={"TagKey": key},
        )
