"""The tags of buckets and objects."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_plus

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.faults import invalid_argument
from trainyard.wire.fault import Fault

MAX_OBJECT_TAGS = 10
MAX_BUCKET_TAGS = 50
MAX_KEY_LENGTH = 128
MAX_VALUE_LENGTH = 256

_CHARACTERS = re.compile(r"[\w\s+\-=.:/@]*")
_INVALID_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def get_bucket_tagging(call: Call, shape: Shape) -> Shape:
    ref = bucket_of(call, shape)
    tags = call.yard.objects.bucket(ref).tags
    if not tags:
        raise Fault("NoSuchTagSet", "The TagSet does not exist", status=404, members={"BucketName": ref.name})
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
    """Return the tags of a `TagSet`, checked."""
    return _require_tags([(tag["Key"], tag["Value"]) for tag in tag_set], limit=limit)


def parse_tagging_header(text: str) -> dict[str, str]:
    """Return the tags of an `x-amz-tagging` header, which has the form of a URL query."""
    try:
        pairs = [_decode_pair(piece) for piece in text.split("&") if piece]
    except ValueError:
        raise _malformed_header(text) from None
    keys = [key for key, _ in pairs]
    if "" in keys or len(keys) > len(set(keys)):
        raise _malformed_header(text)
    return _require_tags(pairs, limit=MAX_OBJECT_TAGS)


def _decode_pair(piece: str) -> tuple[str, str]:
    if _INVALID_ESCAPE.search(piece):
        raise ValueError(piece)
    key, _, value = piece.partition("=")
    return unquote_plus(key, errors="strict"), unquote_plus(value, errors="strict")


def _malformed_header(text: str) -> Fault:
    return invalid_argument(
        "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name "
        "duplicates.",
        name="x-amz-tagging",
        value=text,
    )


def _require_tags(pairs: Sequence[tuple[str, str]], *, limit: int) -> dict[str, str]:
    if len(pairs) > limit:
        raise Fault("BadRequest", f"There are {len(pairs)} tags; at most {limit} are allowed.")
    tags: dict[str, str] = {}
    for key, value in pairs:
        _require_tag(key, value)
        if key in tags:
            raise _invalid_tag("Cannot provide multiple Tags with the same key", key)
        tags[key] = value
    return tags


def _require_tag(key: str, value: str) -> None:
    if key.startswith("aws:"):
        raise _invalid_tag("System tags cannot be added/updated by requester", key)
    if not 1 <= len(key) <= MAX_KEY_LENGTH or not _CHARACTERS.fullmatch(key):
        raise _invalid_tag("The TagKey you have provided is invalid", key)
    if len(value) > MAX_VALUE_LENGTH or not _CHARACTERS.fullmatch(value):
        raise _invalid_tag("The TagValue you have provided is invalid", key)


def _invalid_tag(message: str, key: str) -> Fault:
    return Fault("InvalidTag", message, members={"TagKey": key})
