"""The S3 locations of a training job: read from the request, and looked up before the job is accepted."""

from collections.abc import Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import ChannelPlan
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.objects.contract import ObjectStore
from trainyard.server.services.contract import Shape


def channels_of(shape: Shape) -> tuple[ChannelPlan, ...]:
    """The channels in the order of the request; InvalidRequest when a name cannot be a folder or comes twice."""
    channels = tuple(_channel(each) for each in shape.get("InputDataConfig", ()))
    names = [channel.name for channel in channels]
    for name in names:
        if name in (".", ".."):
            raise InvalidRequest(f'"{name}" cannot be the name of a channel.')
        if names.count(name) > 1:
            raise InvalidRequest(f'The channel name "{name}" is used more than once; give each channel its own.')
    return channels


def require_bucket(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    """InvalidRequest, which names the member, when the bucket of an S3 location is not there."""
    where = _location(uri, account, member)
    try:
        objects.bucket(where.bucket)
    except NotFound as error:
        raise InvalidRequest(
            f'The bucket "{where.bucket.name}" of {member} does not exist; create it first, or name another.'
        ) from error


def require_object(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    where = _location(uri, account, member)
    try:
        objects.info(where)
    except NotFound as error:
        raise InvalidRequest(f'There is no object at "{uri}", which {member} names.') from error


def require_channels(objects: ObjectStore, channels: Sequence[ChannelPlan], *, account: str) -> None:
    """InvalidRequest for the first channel that would be empty."""
    for channel in channels:
        member = f'the channel "{channel.name}"'
        if channel.is_manifest:
            require_object(objects, channel.uri, account=account, member=member)
            continue
        require_bucket(objects, channel.uri, account=account, member=member)
        where = _location(channel.uri, account, member)
        if not objects.list_objects(where.bucket, prefix=where.key, limit=1).objects:
            raise InvalidRequest(
                f'There are no objects under "{channel.uri}", which {member} names; upload the data first, or correct '
                "the prefix."
            )


def _location(uri: str, account: str, member: str) -> Location:
    try:
        return parse_s3_uri(uri, account)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.message[:-1]} ({member}).") from error


def _channel(shape: dict[str, Any]) -> ChannelPlan:
    if "S3DataSource" not in shape["DataSource"]:
        raise InvalidRequest(f'The channel "{shape["ChannelName"]}" has no S3DataSource.')
    source = shape["DataSource"]["S3DataSource"]
    return ChannelPlan(
        name=shape["ChannelName"],
        uri=source["S3Uri"],
        is_manifest=source["S3DataType"] == "ManifestFile",
        is_sharded=source.get("S3DataDistributionType") == "ShardedByS3Key",
        shuffle_seed=shape.get("ShuffleConfig", {}).get("Seed"),
        content_type=shape.get("ContentType"),
    )
